// SPDX-License-Identifier: BSL-1.0
//
// Training with real targets and weights of examples: a function is learned, and ranks compute what one process does.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include "gradus/comm/threads.hpp"
#include "gradus/data/in_memory.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/activations.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace nn = gradus::nn;
namespace data = gradus::data;
using gradus::index_t;

/// sin(3 x) for 203 numbers, and weights of which a third are 0.
struct curve {
  std::vector<double> x;
  std::vector<double> y;
  std::vector<double> weights;

  curve() {
    for (int i = 0; i < 203; ++i) {
      x.push_back(static_cast<double>(i) / 101 - 1);
      y.push_back(std::sin(3 * x.back()));
      weights.push_back(0.5 * static_cast<double>(i % 3));
    }
  }
  [[nodiscard]] auto set(bool weighted) const {
    return data::in_memory(data::examples_of(std::span{x}, {1, 1, 1, 1}), data::examples_of(std::span{y}, {1, 1, 1, 1}),
                           {.weights = weighted ? std::span<const double>{weights} : std::span<const double>{}});
  }
};

template <class Element, class Loss = nn::huber>
void build_curve_network(nn::network<Element>& net, const Loss& loss = {.delta = 0.5}, index_t micro_batch_size = 0) {
  nn::value v = net.add("hidden", nn::dense{.out_features = 16}, net.input());
  v = net.add("tanh", nn::tanh{}, v);
  net.loss(loss, net.add("output", nn::dense{.out_features = 1}, v));
  net.compile({.max_batch_size = 20, .seed = 3, .micro_batch_size = micro_batch_size});
}

/// Parameters after 3 epochs, and the loss over the data set.
struct curve_result {
  std::vector<double> parameters;
  double loss = 0;
  index_t labels = -1;
};

template <class Communicator, class Rule = gradus::optim::sgd, class Loss = nn::huber>
curve_result train_curve(Communicator& world, bool weighted, index_t micro_batch_size = 0,
                         const Rule& rule = {.momentum = 0.9}, const Loss& loss = {.delta = 0.5}) {
  const curve points;
  const auto set = points.set(weighted);
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<double> net{device, {.channels = 1}};
  build_curve_network(net, loss, micro_batch_size);
  data::loader<double, gradus::nchw> loader{device, set, {.global_batch_size = 20, .seed = 5}};
  gradus::train::trainer trainer{net, rule, world};
  trainer.fit(loader, {.epochs = 3, .learning_rate = 0.05});
  const auto report = trainer.evaluate(loader);
  curve_result result{{net.values().begin(), net.values().end()}, report.loss, report.labels};
  return result;
}

double worst_parameter(const curve_result& have, const curve_result& want) {
  double worst = have.parameters.size() == want.parameters.size() ? 0 : 1e300;
  for (std::size_t i = 0; i < want.parameters.size(); ++i) {
    const double difference = std::abs(have.parameters[i] - want.parameters[i]);
    worst = std::isnan(difference) ? 1e300 : std::max(worst, difference);
  }
  return worst;
}

/// Gradients that are accumulated over parts of the batch, on 1 and 3 ranks, against the whole batch at once.
template <class Rule, class Loss>
void check_accumulated(const Rule& rule, const Loss& loss) {
  for (const bool weighted : {false, true}) {
    gradus::comm::self alone;
    const curve_result want = train_curve(alone, weighted, 0, rule, loss);
    for (const index_t part : {1, 3, 7, 19}) {  // 20 and the last 3 of 203 examples are no multiples of most
      const curve_result have = train_curve(alone, weighted, part, rule, loss);
      BOOST_TEST(worst_parameter(have, want) < 1e-11, Rule::name << ", parts of " << part);
      BOOST_TEST(have.loss == want.loss, boost::test_tools::tolerance(1e-11));
    }
    const auto ranks = gradus::comm::run_ranks(
        3, [&](gradus::comm::threads& world) { return train_curve(world, weighted, 2, rule, loss); });
    for (const curve_result& have : ranks) {
      BOOST_TEST(worst_parameter(have, want) < 1e-11, Rule::name << " on ranks");
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(train_regression)

// Rules that are not linear in the gradients would find a step for each part.
BOOST_AUTO_TEST_CASE(accumulated_gradients_are_those_of_the_whole_batch) {
  namespace optim = gradus::optim;
  const auto squares = nn::loss_of([](auto scores, auto targets) { return mean(square(scores - targets)); });
  check_accumulated(optim::sgd{.momentum = 0.9, .weight_decay = 0.01}, nn::huber{.delta = 0.5});
  check_accumulated(optim::adam{.epsilon = 1e-3}, nn::mean_squared_error{});
  check_accumulated(optim::update<optim::sgd>{.rule = {.momentum = 0.9}, .max_norm = 0.1}, squares);
  check_accumulated(optim::update<optim::sgd>{.rule = {.momentum = 0.9}, .clip_value = 0.02},
                    nn::binary_cross_entropy_with_logits{});
}

BOOST_AUTO_TEST_CASE(ranks_compute_what_one_process_does) {
  for (const bool weighted : {false, true}) {
    gradus::comm::self alone;
    const curve_result expected = train_curve(alone, weighted);
    BOOST_TEST(expected.labels == 0);
    for (const int ranks : {2, 3}) {
      std::mutex mutex;
      std::vector<curve_result> results;
      gradus::comm::run_ranks(ranks, [&](gradus::comm::threads& world) {
        curve_result mine = train_curve(world, weighted);
        const std::lock_guard lock{mutex};
        results.push_back(std::move(mine));
      });
      for (const curve_result& each : results) {
        double worst = 0;
        for (std::size_t i = 0; i < expected.parameters.size(); ++i) {
          worst = std::max(worst, std::abs(each.parameters[i] - expected.parameters[i]));
        }
        BOOST_TEST_CONTEXT(ranks << " ranks" << (weighted ? ", weighted" : "")) {
          BOOST_TEST(worst < 1e-12);
          BOOST_TEST(each.loss == expected.loss, boost::test_tools::tolerance(1e-12));
        }
      }
    }
  }
}

// An example of weight 0 changes nothing: training without it gives the same sums, divided by more examples.
BOOST_AUTO_TEST_CASE(a_weight_of_zero_takes_an_example_out) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const std::vector<float> x{1, 2};
  const std::vector<float> near{1, 2};
  const std::vector<float> far{1, 1000};
  const std::vector<double> weights{1, 0};
  const auto gradients = [&](const std::vector<float>& y) {
    const auto set = data::in_memory(data::examples_of(std::span{x}, {1, 1, 1, 1}),
                                     data::examples_of(std::span{y}, {1, 1, 1, 1}), {.weights = weights});
    nn::network<float> net{device, {.channels = 1}};
    net.loss(nn::mean_squared_error{}, net.add("output", nn::dense{.out_features = 1}, net.input()));
    net.compile({.max_batch_size = 2, .seed = 3});
    data::loader<float, gradus::nchw> loader{device, set, {.global_batch_size = 2, .shuffle = false}};
    gradus::train::trainer trainer{net, gradus::optim::sgd{}};
    trainer.fit(loader, {.epochs = 1, .learning_rate = 0.1});
    return std::vector<float>(net.values().begin(), net.values().end());
  };
  BOOST_TEST(gradients(near) == gradients(far), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(adam_learns_a_function) {
  const curve points;
  const auto set = points.set(false);
  gradus::cpu device{{.intra_op_threads = 2}};
  nn::network<double> net{device, {.channels = 1}};
  build_curve_network(net);
  data::loader<double, gradus::nchw> loader{device, set, {.global_batch_size = 20, .seed = 5}};
  gradus::train::trainer trainer{net, gradus::optim::adam{}};
  const double before = trainer.evaluate(loader).loss;
  trainer.fit(loader, {.epochs = 40, .learning_rate = 0.01});
  BOOST_TEST(trainer.evaluate(loader).loss < before / 20);
}

BOOST_AUTO_TEST_SUITE_END()
