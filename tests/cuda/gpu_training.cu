// SPDX-License-Identifier: BSL-1.0
//
// Training on a GPU: as on the CPU, on one rank and on several, step by step and as a recorded graph.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "../support/update_state.hpp"
#include "gradus/comm/cuda_staging.cuh"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/data/cuda_loader.cuh"
#include "gradus/data/synthetic.hpp"
#include "gradus/kernels/cuda.cuh"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/metrics.hpp"
#include "gradus/optim/cuda_passes.cuh"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/tensor/cuda.cuh"
#include "gradus/train/captured_network.cuh"
#include "gradus/train/captured_step.cuh"
#include "gradus/train/gradient_norms.hpp"
#include "gradus/train/metrics.hpp"
#include "gradus/train/trainer.hpp"
#include "half_squares.hpp"
#include "training_runs.hpp"

namespace gpu_training {
/// In a translation unit of its own: nvcc does not compile the kernels of the CPU.
gradus_test::training_result on_cpu();
}  // namespace gpu_training

namespace {

namespace comm = gradus::comm;
using gradus_test::training_result;

using scaled_setup = gradus_test::training_setup_with<gradus::optim::update<gradus::optim::sgd>>;

// What keeps a reference refuses temporaries, as tests/compile_fail/temporaries.cpp lists it for the host.
template <class Made, class... Arguments>
inline constexpr bool made_of = std::is_constructible_v<Made, Arguments..., gradus::data::loader_options>;
using gpu_loader = gradus::data::loader<float, gradus::nhwc, gradus::cuda>;
using gpu_parallel_loader = gradus::data::parallel_loader<float, gradus::nhwc, gradus::cuda>;
using image_set = gradus::data::image_dataset;
static_assert(made_of<gpu_loader, gradus::cuda&, image_set&> &&
              made_of<gpu_parallel_loader, gradus::cuda&, image_set&>);
static_assert(!made_of<gpu_loader, gradus::cuda, image_set&> &&
              !made_of<gpu_parallel_loader, gradus::cuda, image_set&>);
static_assert(!made_of<gpu_loader, gradus::cuda&, image_set> &&
              !made_of<gpu_parallel_loader, gradus::cuda&, image_set>);
using gpu_network = gradus::nn::network<float, gradus::nhwc, gradus::cuda>;
using graph_network = gradus::train::captured_network<gpu_network>;
static_assert(std::is_constructible_v<graph_network, gpu_network&> &&
              !std::is_constructible_v<graph_network, gpu_network>);

/// The rule of other tests, with a scale of the loss.
scaled_setup scaled(double initial, int growth_interval) {
  scaled_setup setup;
  setup.rule = {.rule = gradus_test::training_setup{}.rule,
                .loss_scaling = {.initial = initial, .growth_interval = growth_interval}};
  return setup;
}

training_result on_one_gpu() {
  gradus::cuda device;
  comm::self self;
  return gradus_test::run_training_on<gradus::nhwc, float>(device, self);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(training_on_a_gpu)

BOOST_AUTO_TEST_CASE(a_gpu_trains_as_the_cpu_does) {
  const training_result expected = gpu_training::on_cpu();
  const training_result computed = on_one_gpu();
  BOOST_CHECK_SMALL(gradus_test::largest_difference(computed.weights, expected.weights), 1e-2);
  BOOST_CHECK_SMALL(gradus_test::largest_difference(computed.losses, expected.losses), 1e-3);
}

// Plain gradient descent: the weights show the gradients. The scale of the loss is on the device, and changes.
BOOST_AUTO_TEST_CASE(norms_of_gradients_are_those_that_the_weights_show) {
  const auto check = [](const auto& rule, std::size_t measured) {
    gradus::cuda device;
    gradus::data::loader<float, gradus::nhwc, gradus::cuda> loader{
        device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 11}};
    gradus::nn::network<float, gradus::nhwc, gradus::cuda> net{device, {2, 9, 8}};
    gradus_test::build_training_network(net);
    net.compile({.max_batch_size = 8, .seed = 11});
    const auto weights = [&net] {
      std::vector<double> all;
      for (const auto& each : net.parameters()) {
        const auto values = each.copy_values();
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    };
    std::vector<double> before = weights();
    std::vector<double> norms;
    std::vector<double> shown;
    gradus::train::gradient_norms measure{
        {.every = 1, .on_measured = [&](const auto& report) { norms.push_back(report.all); }}};
    gradus::train::trainer trainer{net, rule};
    trainer.fit(loader, {.epochs = 1, .learning_rate = 0.1}, measure, [&](const gradus::train::step_report& /*step*/) {
      const std::vector<double> after = weights();
      double squares = 0;
      for (std::size_t i = 0; i < after.size(); ++i) {
        squares += (after[i] - before[i]) * (after[i] - before[i]) / 0.01;
      }
      shown.push_back(std::sqrt(squares));
      before = after;
    });
    BOOST_CHECK_EQUAL(norms.size(), measured);
    for (std::size_t i = 0; i < norms.size(); ++i) {
      BOOST_CHECK_CLOSE(norms[norms.size() - 1 - i], shown[shown.size() - 1 - i], 0.1);  // percent
    }
  };
  check(gradus::optim::sgd{}, 7);
  check(gradus::optim::update<gradus::optim::sgd>{.loss_scaling = {.initial = 16, .growth_interval = 2}}, 6);
}

BOOST_AUTO_TEST_CASE(two_runs_have_the_same_bits) {
  BOOST_CHECK(on_one_gpu().weights == on_one_gpu().weights);
}

BOOST_AUTO_TEST_CASE(ranks_that_share_a_gpu_train_as_one) {
  const training_result one = on_one_gpu();
  const auto ranks = comm::run_ranks(2, [](comm::threads& world) {
    gradus::cuda device;
    comm::staged_on_cuda<comm::threads> staged{world.duplicate(), device};
    return gradus_test::run_training_on<gradus::nhwc, float>(device, staged);
  });
  for (const training_result& each : ranks) {
    BOOST_CHECK_SMALL(gradus_test::largest_difference(each.weights, one.weights), 1e-2);
    BOOST_CHECK(each.weights == ranks.front().weights);
  }
}

BOOST_AUTO_TEST_CASE(a_trainer_that_launches_captured_steps_has_the_same_bits) {
  const training_result plain = on_one_gpu();
  gradus::cuda device;
  comm::self self;
  bool recorded = false;
  const training_result launched = gradus_test::run_training_on<gradus::nhwc, float>(
      device, self, {}, gradus::parallel::all_reduce{}, {.rank = 0, .ranks = 1},
      [&](auto& trainer) { recorded = trainer.network().recorded(); },
      [](auto& net) { return gradus::train::captured_network{net}; });
  BOOST_CHECK(recorded);
  BOOST_CHECK(launched.weights == plain.weights);
  BOOST_CHECK(launched.losses == plain.losses);
}

BOOST_AUTO_TEST_CASE(ranks_that_launch_captured_steps_have_the_same_bits) {
  const auto run = [](const auto& wrap) {
    return comm::run_ranks(2, [&](comm::threads& world) {
      gradus::cuda device;
      comm::staged_on_cuda<comm::threads> staged{world.duplicate(), device};
      return gradus_test::run_training_on<gradus::nhwc, float>(device, staged, {}, gradus::parallel::all_reduce{},
                                                               {.rank = world.rank(), .ranks = world.size()},
                                                               gradus_test::ignore_trainer{}, wrap);
    });
  };
  const auto plain = run(gradus_test::as_it_is{});
  const auto launched = run([](auto& net) { return gradus::train::captured_network{net}; });
  for (std::size_t rank = 0; rank < plain.size(); ++rank) {
    BOOST_CHECK(launched[rank].weights == plain[rank].weights);
    BOOST_CHECK(launched[rank].losses == plain[rank].losses);
  }
}

// A power of two, which grows meanwhile: no bit changes, launched as a graph or not.
BOOST_AUTO_TEST_CASE(a_scale_of_the_loss_changes_no_bit) {
  const training_result plain = on_one_gpu();
  for (const bool record : {false, true}) {
    gradus::cuda device;
    comm::self self;
    gradus::optim::loss_scale_report report;
    const auto look = [&](auto& trainer) { report = *trainer.rule().report(); };
    const scaled_setup setup = scaled(1024, 10);
    const gradus::parallel::all_reduce how{};
    const training_result result = record ? gradus_test::run_training_on<gradus::nhwc, float>(
                                                device, self, setup, how, {.rank = 0, .ranks = 1}, look,
                                                [](auto& net) { return gradus::train::captured_network{net}; })
                                          : gradus_test::run_training_on<gradus::nhwc, float>(
                                                device, self, setup, how, {.rank = 0, .ranks = 1}, look);
    BOOST_CHECK(result.weights == plain.weights);
    BOOST_CHECK(result.losses == plain.losses);
    BOOST_CHECK_EQUAL(report.skipped_steps, 0);
    BOOST_CHECK_EQUAL(report.scale, 1024 * 8);  // 35 steps
    BOOST_CHECK_EQUAL(report.good_steps, 5);
  }
}

// A scale that is too large for the first steps is found by itself, on the device; then float16 learns.
BOOST_AUTO_TEST_CASE(float16_learns_from_a_scale_that_is_too_large) {
  const training_result wide = on_one_gpu();
  for (const bool record : {false, true}) {
    gradus::cuda device;
    comm::self self;
    gradus::optim::loss_scale_report report;
    const auto look = [&](auto& trainer) { report = *trainer.rule().report(); };
    const scaled_setup setup = scaled(0x1p22, 2000);
    const gradus::parallel::all_reduce how{};
    const training_result result = record ? gradus_test::run_training_on<gradus::nhwc, gradus::float16>(
                                                device, self, setup, how, {.rank = 0, .ranks = 1}, look,
                                                [](auto& net) { return gradus::train::captured_network{net}; })
                                          : gradus_test::run_training_on<gradus::nhwc, gradus::float16>(
                                                device, self, setup, how, {.rank = 0, .ranks = 1}, look);
    BOOST_CHECK_GE(report.skipped_steps, 2);
    BOOST_CHECK_LE(report.skipped_steps, 12);
    BOOST_CHECK_EQUAL(report.scale, std::ldexp(0x1p22, -static_cast<int>(report.skipped_steps)));
    BOOST_CHECK_LT(result.losses.back(), 0.9 * result.losses.front());
    BOOST_CHECK_SMALL(result.losses.back() - wide.losses.back(), 0.2 * wide.losses.back());
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_share_a_gpu_scale_alike) {
  const auto ranks = comm::run_ranks(2, [](comm::threads& world) {
    gradus::cuda device;
    comm::staged_on_cuda<comm::threads> staged{world.duplicate(), device};
    return gradus_test::run_training_on<gradus::nhwc, gradus::float16>(device, staged, scaled(0x1p22, 2000));
  });
  BOOST_CHECK(ranks[0].weights == ranks[1].weights);
  BOOST_CHECK_LT(ranks[0].losses.back(), 0.9 * ranks[0].losses.front());
}

// Of both rules; a step with a gradient that is not finite changes nothing but the scale, in the first element of a
// piece of a parameter or in the last one.
template <class Rule>
void check_skipped_steps() {
  gradus::cuda device;
  constexpr gradus::index_t size = 20000;  // three pieces
  const std::vector<gradus::optim::segment> segments{{"weight", 0, size, true}};
  gradus_test::update_state<float, gradus::cuda> state{
      device, gradus::optim::update<Rule>{.rule = Rule{.momentum = 0.5}, .loss_scaling = {.initial = 8}}, size};
  gradus::tensor<float, 1, gradus::row_major, gradus::cuda> values{device, {size}};
  gradus::tensor<float, 1, gradus::row_major, gradus::cuda> gradients{device, {size}};
  const std::vector<float> ones(static_cast<std::size_t>(size), 1.0F);
  device.copy_from_host(values.data(), ones.data(), ones.size() * sizeof(float));
  const auto step = [&](std::size_t index, float gradient) {
    std::vector<float> all(ones.size(), 8.0F);
    all[index] = gradient;
    device.copy_from_host(gradients.data(), all.data(), all.size() * sizeof(float));
    state.update(device, segments, values.data(), gradients.data(), 0.1);
    device.copy_to_host(all.data(), values.data(), all.size() * sizeof(float));
    return all;
  };
  std::vector<float> before = step(0, 8.0F);
  BOOST_CHECK(before != ones);
  gradus::index_t skipped = 0;
  double scale = 8;
  for (const std::size_t index : {0U, 8191U, 8192U, 19999U}) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      BOOST_CHECK(step(index, bad) == before);
      scale = std::max(1.0, scale / 2);
      BOOST_CHECK_EQUAL(state->report()->skipped_steps, ++skipped);
      BOOST_CHECK_EQUAL(state->report()->scale, scale);
    }
  }
  BOOST_CHECK(step(0, 8.0F) != before);
  BOOST_CHECK_EQUAL(state->report()->good_steps, 1);
}

BOOST_AUTO_TEST_CASE(a_step_that_is_not_finite_changes_nothing_but_the_scale) {
  check_skipped_steps<gradus::optim::sgd>();
  check_skipped_steps<gradus::optim::lars>();
}

// A loss by expressions knows nothing of scales on the device, and waits for its sum.
template <class Element>
void check_own_loss() {
  using network = gradus::nn::network<Element, gradus::nhwc, gradus::cuda>;
  gradus::cuda device;
  gradus::data::loader<Element, gradus::nhwc, gradus::cuda> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 5}};
  network net{device, {2, 9, 8}};
  net.loss(gradus_test::half_squares{}, net.add("scores", gradus::nn::dense{.out_features = 5}, net.input()));
  net.compile({.max_batch_size = 8, .seed = 11});
  gradus::tensor<double, 1, gradus::row_major, gradus::cuda> numbers{device, {4}};
  const double scale[4] = {64, 0, 0, 0};
  device.copy_from_host(numbers.data(), scale, sizeof(scale));
  loader.start_epoch(0);
  const auto* batch = loader.next();
  const auto step = [&](const gradus::loss_scale& used) {
    const double loss = net.train_step(batch->images, batch->labels, {.loss_scale = used}).loss;
    std::vector<float> gradients(net.gradients().size());
    device.copy_to_host(gradients.data(), net.gradients().data(), net.gradients().size_bytes());
    return std::pair{loss, gradients};
  };
  const auto [loss, gradients] = step({});
  const auto [scaled_loss, scaled_gradients] = step({.factor = 1, .numbers = numbers.data()});
  const auto [factor_loss, factor_gradients] = step({.factor = 64});
  BOOST_CHECK_GT(loss, 0);
  BOOST_CHECK_EQUAL(scaled_loss, loss);
  BOOST_CHECK_EQUAL(net.evaluate(batch->images, batch->labels).loss, loss);
  BOOST_CHECK_GT(std::abs(gradients[0]), 0);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    BOOST_CHECK_EQUAL(scaled_gradients[i], 64 * gradients[i]);
  }
  BOOST_CHECK(factor_gradients == scaled_gradients);

  gradus::train::captured_step recorded{net, gradus::optim::sgd{}};
  const auto record = [&] {
    for (int i = 0; i < 3; ++i) {
      (void)recorded(batch->images, batch->labels, 0.1, {.global_examples = 8});
    }
  };
  BOOST_CHECK_EXCEPTION(record(), gradus::device_error, [](const gradus::device_error& failure) {
    return std::string_view{failure.what()}.find("captured") != std::string_view::npos;
  });
}

BOOST_AUTO_TEST_CASE(a_loss_of_a_program_is_scaled_and_counted) {
  check_own_loss<float>();
}

BOOST_AUTO_TEST_CASE(a_captured_step_has_the_bits_of_an_eager_one) {
  using network = gradus::nn::network<float, gradus::nhwc, gradus::cuda>;
  gradus::cuda device;
  gradus::data::loader<float, gradus::nhwc, gradus::cuda> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 5}};
  const auto make = [&](network& net) {
    gradus_test::build_training_network(net);
    net.compile({.max_batch_size = 8, .seed = 11});
  };
  network plain{device, {2, 9, 8}};
  network recorded{device, {2, 9, 8}};
  make(plain);
  make(recorded);
  const gradus::optim::sgd rule{.momentum = 0.9};
  const auto segments = gradus::train::trained_parameters_of(plain).segments;
  gradus::optim::sgd::state<float, gradus::cuda> state{device, rule,
                                                       static_cast<gradus::index_t>(plain.values().size())};
  gradus::train::captured_step step{recorded, rule};
  std::uint64_t number = 0;
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    loader.start_epoch(epoch);
    while (const auto* batch = loader.next()) {
      const double rate = 0.1 / static_cast<double>(1 + number);
      const gradus::nn::step_options options{
          .step = number++, .first_example = batch->first_example, .global_examples = batch->global_examples};
      const auto expected = plain.train_step(batch->images, batch->labels, options);
      state.update(device, {segments.data(), segments.size()}, plain.values().data(), plain.gradients().data(), rate);
      const auto sums = step(batch->images, batch->labels, rate, options);
      BOOST_CHECK_EQUAL(sums.loss, expected.loss);
      BOOST_CHECK_EQUAL(sums.correct, expected.correct);
    }
  }
  BOOST_CHECK(step.recorded());
  const auto values_of = [&](network& net) {
    std::vector<float> values(net.values().size());
    device.copy_to_host(values.data(), net.values().data(), net.values().size_bytes());
    return values;
  };
  BOOST_CHECK(values_of(plain) == values_of(recorded));
}

// Scores, labels and weights are read from the memory of the device.
BOOST_AUTO_TEST_CASE(a_trainer_evaluates_metrics) {
  namespace metrics = gradus::metrics;
  const auto images = gradus::data::make_synthetic({.examples = 21, .height = 4, .width = 4, .classes = 6});
  gradus::cuda device;
  gradus::data::loader<float, gradus::nhwc, gradus::cuda> loader{device, images, {.global_batch_size = 8}};
  gradus::nn::network<float, gradus::nhwc, gradus::cuda> net{device, gradus::nn::value_shape{1, 4, 4}};
  net.loss(gradus::nn::softmax_cross_entropy{}, net.add("scores", gradus::nn::dense{.out_features = 6}, net.input()));
  net.compile({.max_batch_size = 8, .seed = 1});
  gradus::train::captured_network captured{net};
  const auto check = [&](auto& trainer) {
    const auto [report, accuracy, matrix] =
        trainer.evaluate(loader, metrics::list{metrics::accuracy{}, metrics::confusion_matrix{}});
    BOOST_CHECK_EQUAL(accuracy, report.accuracy);
    BOOST_CHECK_EQUAL(matrix.accuracy(), report.accuracy);
    double all = 0;
    for (const double count : matrix.counts) {
      all += count;
    }
    BOOST_CHECK_EQUAL(all, 21.0);
  };
  gradus::train::trainer plain{net, gradus::optim::sgd{}};
  check(plain);
  gradus::train::trainer launched{captured, gradus::optim::sgd{}};
  check(launched);
}

BOOST_AUTO_TEST_SUITE_END()
