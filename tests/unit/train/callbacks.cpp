// SPDX-License-Identifier: BSL-1.0
//
// What callbacks may do in a step: evaluate, with the loader of the training too. The rates that they see.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <vector>

#include "../../support/training_runs.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/data/parallel_loader.hpp"
#include "gradus/optim/schedules.hpp"
#include "gradus/train/reproducible.hpp"

namespace {

namespace train = gradus::train;
using gradus_test::largest_difference;

/// Evaluates on a loader after some steps of an epoch.
template <class Loader>
struct evaluates_in_steps {
  Loader* loader;
  std::vector<gradus::index_t> after;
  std::vector<double> losses = {};
  int steps = 0;

  template <class Trainer>
  void on_step(Trainer& trainer, const train::step_report& step) {
    ++steps;
    for (const gradus::index_t each : after) {
      if (step.step_in_epoch + 1 == each) {
        losses.push_back(trainer.evaluate(*loader).loss);
      }
    }
  }
};

struct outcome {
  std::vector<double> weights;
  std::vector<double> losses;  // of epochs
  int steps = 0;
};

/// @param after  steps of an epoch after which the loader of the training is evaluated
template <class Loader, class Strategy, class Communicator>
outcome train_on(Communicator& world, const Strategy& strategy, const std::vector<gradus::index_t>& after) {
  gradus::cpu device{{.intra_op_threads = 1}};
  Loader loader{device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 3}};
  gradus::nn::network<double, gradus::nhwc> net{device, {2, 9, 8}};
  gradus_test::build_training_network(net);
  net.compile({.max_batch_size = 8, .seed = 5});
  train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9}, world, strategy};
  evaluates_in_steps<Loader> evaluates{&loader, after};
  outcome result;
  trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05}, evaluates, [&](const train::epoch_report& epoch) {
    BOOST_TEST(epoch.steps == 7);
    BOOST_TEST(epoch.examples == 53);
    result.losses.push_back(epoch.loss);
  });
  BOOST_TEST(evaluates.losses.size() == 2 * after.size());
  result.steps = evaluates.steps;
  result.weights.assign(net.values().begin(), net.values().end());
  return result;
}

template <class Loader, class Strategy>
void require_that_evaluations_change_nothing(const Strategy& strategy) {
  gradus::comm::self alone;
  const outcome want = train_on<Loader>(alone, strategy, {});
  const outcome have = train_on<Loader>(alone, strategy, {1, 3, 4, 7});
  BOOST_TEST(have.steps == 14);
  BOOST_TEST((have.weights == want.weights));
  BOOST_TEST((have.losses == want.losses));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(callbacks_in_steps)

BOOST_AUTO_TEST_CASE(evaluate_with_the_loader_of_the_training) {
  using loader = gradus::data::loader<double, gradus::nhwc>;
  using parallel_loader = gradus::data::parallel_loader<double, gradus::nhwc>;
  const gradus::parallel::all_reduce gradients{};
  require_that_evaluations_change_nothing<loader>(gradients);
  require_that_evaluations_change_nothing<parallel_loader>(gradients);
  require_that_evaluations_change_nothing<loader>(gradus::parallel::reproducible{gradients});
}

BOOST_AUTO_TEST_CASE(see_the_rates_of_whole_steps) {
  std::vector<double> rates;
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<double, gradus::nhwc> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 18, .seed = 3}};  // 3 steps
  gradus::nn::network<double, gradus::nhwc> net{device, {2, 9, 8}};
  gradus_test::build_training_network(net);
  net.compile({.max_batch_size = 18, .seed = 5});
  train::trainer trainer{net, gradus::optim::sgd{}};
  const auto record = [&](const train::step_report& step) { rates.push_back(step.learning_rate); };
  const gradus::optim::one_cycle cycle{.maximum = 0.01, .epochs = 5, .rising = 0.4};
  trainer.fit(loader, {.epochs = 2, .learning_rate = cycle}, record);
  trainer.fit(loader, {.epochs = 3, .learning_rate = cycle}, record);
  BOOST_TEST(rates.size() == 15U);
  BOOST_TEST(rates[0] == 0.01 / 25, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(rates[5] == 0.01, boost::test_tools::tolerance(1e-12));  // 0.4 of 15 steps
  BOOST_TEST(rates[14] == 0.01 / 25 / 1e4, boost::test_tools::tolerance(1e-12));

  rates.clear();
  trainer.fit(
      loader,
      {.epochs = 1, .learning_rate = gradus::optim::steps{.initial = 1e-3, .factor = 0.5, .boundaries = {5 + 1.0 / 3}}},
      record);
  BOOST_TEST(rates == (std::vector<double>{1e-3, 5e-4, 5e-4}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
