// SPDX-License-Identifier: BSL-1.0
//
// The examples of a sliding window are the newest; draws are reproducible, and ranks weigh theirs by their number.
#include "gradus/data/sliding_window.hpp"

#include <algorithm>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gradus/comm/threads.hpp"
#include "gradus/data/window_loader.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/stepwise.hpp"
#include "gradus/train/trainer.hpp"

BOOST_AUTO_TEST_SUITE(sliding_window_of_examples)

namespace {

namespace comm = gradus::comm;
namespace data = gradus::data;
namespace nn = gradus::nn;
using gradus::index_t;

constexpr data::window_options six_of_2x3{.capacity = 6, .input = {1, 2, 1, 3}, .target = {1, 1, 1, 1}};

/// Pushes examples number first to first + count - 1: inputs 10 n + k, targets n.
template <class Element>
void push_numbers(data::sliding_window<Element>& window, int first, int count) {
  std::vector<double> inputs;
  std::vector<float> targets;
  for (int n = first; n < first + count; ++n) {
    for (int k = 0; k < 6; ++k) {
      inputs.push_back(10 * n + k);
    }
    targets.push_back(static_cast<float>(n));
  }
  window.push(data::examples_of(inputs, {1, 2, 1, 3}), targets);
}

template <class Element>
std::vector<double> numbers_in(const data::sliding_window<Element>& window) {
  return window.with_examples([](const auto& examples) {
    std::vector<double> numbers;
    for (index_t age = 0; age < examples.size(); ++age) {
      const double number = static_cast<double>(*examples.target(age));
      for (int k = 0; k < 6; ++k) {
        if (static_cast<double>(examples.input(age)[k]) != 10 * number + k) {
          throw std::runtime_error{"input and target are of two examples"};
        }
      }
      numbers.push_back(number);
    }
    return numbers;
  });
}

template <class Loader>
std::vector<double> targets_of_batches(Loader& loader, std::uint64_t epoch, index_t first = 0) {
  std::vector<double> all;
  loader.start_epoch(epoch, first);
  while (const auto* batch = loader.next()) {
    for (index_t k = 0; k < batch->targets.extent(0); ++k) {
      const double number = static_cast<double>(batch->targets(k, 0, 0, 0));
      BOOST_REQUIRE(static_cast<double>(batch->images(k, 1, 0, 2)) == 10 * number + 5);
      all.push_back(number);
    }
  }
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_newest_examples_stay) {
  data::sliding_window<float> window{six_of_2x3};
  BOOST_TEST(window.size() == 0);
  std::vector<double> want;
  int next = 0;
  for (const int count : {1, 3, 0, 2, 4, 6, 7, 20, 1}) {
    push_numbers(window, next, count);
    next += count;
    want.clear();
    for (int n = next - 1; n >= 0 && n >= next - 6; --n) {
      want.push_back(n);
    }
    BOOST_TEST(numbers_in(window) == want, boost::test_tools::per_element());
    BOOST_TEST(window.size() == std::min(next, 6));
    BOOST_TEST(window.pushed() == static_cast<std::uint64_t>(next));
  }
}

BOOST_AUTO_TEST_CASE(any_strides_are_pushed) {
  // Samples along the columns of a field (x, y, channel), as a Fortran program has it: 2 channels of 3 values.
  const index_t samples = 4;
  std::vector<float> field(static_cast<std::size_t>(samples * 2 * 3 + 5));
  for (index_t n = 0; n < samples; ++n) {
    for (index_t c = 0; c < 2; ++c) {
      for (index_t w = 0; w < 3; ++w) {
        field[static_cast<std::size_t>(n + samples * (w + 3 * c))] = static_cast<float>(10 * n + 3 * c + w);
      }
    }
  }
  const data::example_array<float> inputs{
      .data = field.data(), .shape = {samples, 2, 1, 3}, .strides = {1, 3 * samples, 0, samples}};
  const std::vector<int> targets{0, 1, 2, 3};
  data::sliding_window<double> window{six_of_2x3};
  window.push(inputs, targets);
  BOOST_TEST(numbers_in(window) == (std::vector<double>{3, 2, 1, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(draws_are_reproducible) {
  gradus::cpu device{{.intra_op_threads = 1}};
  data::sliding_window<float> window{six_of_2x3};
  const data::window_loader_options options{.global_batch_size = 5, .steps_per_epoch = 400, .seed = 3};
  data::window_loader<float, gradus::nhwc> loader{device, window, options};
  data::window_loader<double, gradus::nchw> other{device, window, options};
  push_numbers(window, 0, 8);
  const std::vector<double> drawn = targets_of_batches(loader, 7);
  BOOST_TEST(drawn == targets_of_batches(other, 7), boost::test_tools::per_element());
  BOOST_TEST(drawn == targets_of_batches(loader, 7), boost::test_tools::per_element());
  BOOST_TEST(drawn != targets_of_batches(loader, 8));
  const std::vector<double> rest = targets_of_batches(loader, 7, 100);  // as a training that goes on
  BOOST_TEST(std::equal(rest.begin(), rest.end(), drawn.begin() + 500, drawn.end()));
  std::map<double, int> counts;
  for (const double each : drawn) {
    ++counts[each];
  }
  BOOST_TEST(counts.size() == 6U);
  for (const auto& [number, count] : counts) {  // of 2000: 333 each, with a deviation of 17
    BOOST_TEST(number >= 2);
    BOOST_TEST(std::abs(count - 333) < 5 * 17);
  }
}

BOOST_AUTO_TEST_CASE(the_newest_come_first_if_asked) {
  gradus::cpu device{{.intra_op_threads = 1}};
  data::sliding_window<float> window{six_of_2x3};
  data::window_loader<float, gradus::nhwc> loader{
      device, window, {.global_batch_size = 4, .steps_per_epoch = 2, .order = data::window_order::newest_first}};
  push_numbers(window, 0, 6);
  BOOST_TEST(targets_of_batches(loader, 0) == (std::vector<double>{5, 4, 3, 2, 1, 0, 5, 4}),
             boost::test_tools::per_element());
  loader.start_epoch(1);
  BOOST_TEST(loader.next()->targets(0, 0, 0, 0) == 3);
  push_numbers(window, 6, 1);
  const auto* batch = loader.next();  // of the same epoch
  BOOST_TEST(batch->targets(0, 0, 0, 0) == 6);
  BOOST_TEST(batch->targets(3, 0, 0, 0) == 3);
}

// Expectation over all examples: each rank's weights sum to its part of the batch.
BOOST_AUTO_TEST_CASE(ranks_weigh_their_examples_by_their_number) {
  comm::run_ranks(3, [](comm::threads& world) {
    gradus::cpu device{{.intra_op_threads = 1}};
    data::sliding_window<float> window{{.capacity = 100, .input = {1, 2, 1, 3}, .target = {1, 1, 1, 1}}};
    const int counts[] = {30, 0, 10};
    push_numbers(window, 0, counts[world.rank()]);
    data::window_loader<float, gradus::nhwc> loader{device, window, world, {.global_batch_size = 8}};
    loader.take_shard({.rank = world.rank(), .ranks = 3});
    loader.start_epoch(0);
    const auto* batch = loader.next();
    double sum = batch->weights.empty() ? static_cast<double>(batch->images.extent(0)) : 0.0;  // all are 1
    for (const float each : batch->weights) {
      sum += static_cast<double>(each);
    }
    const double want = 8.0 * counts[world.rank()] / 40;
    if (batch->images.extent(0) != (world.rank() == 1   ? 0
                                    : world.rank() == 0 ? 3
                                                        : 2) ||
        std::fabs(sum - want) > 1e-5 || batch->global_examples != 8) {
      throw std::runtime_error{"weights of rank " + std::to_string(world.rank())};
    }
  });
}

// A field and its mean: the network learns it while examples come from another thread, and from the training's own.
BOOST_AUTO_TEST_CASE(a_network_learns_while_examples_are_pushed) {
  comm::run_ranks(2, [](comm::threads& world) {
    gradus::cpu device{{.intra_op_threads = 1}};
    data::sliding_window<float> window{{.capacity = 64, .input = {1, 1, 2, 2}, .target = {1, 1, 1, 1}}};
    std::uint64_t made = 0;
    const auto push = [&](std::uint64_t seed) {
      const gradus::random_stream random{seed, "field"};
      std::vector<float> fields(16);
      std::vector<float> means(4);
      for (std::size_t i = 0; i < fields.size(); ++i) {
        fields[i] = static_cast<float>(random.uniform(made++));
        means[i / 4] += fields[i] / 4;
      }
      window.push(data::examples_of(fields, {1, 1, 2, 2}), means);
    };
    push(static_cast<std::uint64_t>(world.rank()));
    std::atomic<bool> enough{false};
    std::thread simulation{[&] {
      while (!enough.load()) {
        push(static_cast<std::uint64_t>(world.rank()));
      }
    }};
    nn::network<float, gradus::nhwc> net{device, {1, 2, 2}};
    net.loss(nn::mean_squared_error{}, net.add("mean", nn::dense{.out_features = 1}, net.input()));
    net.compile({.max_batch_size = 8, .seed = 1});
    data::window_loader<float, gradus::nhwc> loader{
        device, window, world, {.global_batch_size = 16, .steps_per_epoch = 10}};
    gradus::train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9}, world};
    trainer.start(loader, {.learning_rate = 0.1});
    double loss = 0;
    for (int i = 0; i < 40; ++i) {
      loss = trainer.train_steps(10).local_loss;
    }
    enough.store(true);
    simulation.join();
    if (!(loss < 1e-4)) {
      throw std::runtime_error{"the loss is still " + std::to_string(loss)};
    }
  });
}

BOOST_AUTO_TEST_CASE(mistakes_of_windows_are_errors) {
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const gradus::error& failure) {
      return failure.what();
    }
    return "no error";
  };
  gradus::cpu device{{.intra_op_threads = 1}};
  BOOST_TEST(message([] {
               data::sliding_window<float> none{{.capacity = 0, .input = {1, 1, 1, 1}}};
             }).find("sliding_window: expected a capacity of at least 1") == 0U);
  data::sliding_window<float> window{six_of_2x3};
  const std::vector<float> seven(7);
  BOOST_TEST(message([&] {
               window.push(data::examples_of(seven, {1, 1, 1, 7}), seven);
             }).find("sliding_window.push: expected inputs of (n, 2, 1, 3)") == 0U);
  const std::vector<float> six(6);
  BOOST_TEST(message([&] {
               window.push(data::examples_of(six, {1, 2, 1, 3}), six);
             }).find("sliding_window.push: expected a target for each of 1 examples, got 6 targets") == 0U);
  data::window_loader<float, gradus::nhwc> loader{device, window, {.global_batch_size = 4}};
  BOOST_TEST(message([&] { static_cast<void>(loader.next()); }).find("window_loader.next: expected an epoch") == 0U);
  BOOST_TEST(message([&] { loader.start_epoch(0); }).find("window_loader: expected examples") == 0U);
  BOOST_TEST(message([&] { loader.take_shard({.rank = 1, .ranks = 2}); }).find("window_loader.take_shard") == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
