// SPDX-License-Identifier: BSL-1.0
//
// A learning rate that watches a metric: in a training, on several ranks, and refused options.
#include "gradus/train/reduce_on_plateau.hpp"

#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "../../support/training_runs.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/error.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/callback_state.hpp"

namespace {

using gradus::train::reduce_on_plateau;
using gradus::train::reduce_on_plateau_options;

std::string refusal_of(const reduce_on_plateau_options& options) {
  try {
    const reduce_on_plateau rate{options};
  } catch (const gradus::configuration_error& failure) {
    return failure.what();
  }
  return "";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(reducing_on_a_plateau)

// Without steps the loss stays the same: each epoch but the first is one without improvement. The second call of fit
// goes on.
BOOST_AUTO_TEST_CASE(a_training_without_progress_gets_smaller_rates) {
  const auto ranks = gradus::comm::run_ranks(2, [](gradus::comm::threads& world) {
    gradus::cpu device{{.intra_op_threads = 1}};
    gradus::data::loader<double, gradus::nhwc> loader{
        device, gradus_test::small_dataset(), {.global_batch_size = 32, .seed = 11}};
    gradus::nn::network<double, gradus::nhwc> net{device, {2, 9, 8}};
    gradus_test::build_training_network(net);
    net.compile({.max_batch_size = 32, .seed = 11});
    gradus::train::trainer trainer{net, gradus::optim::sgd{}, world};
    reduce_on_plateau rate{{.initial = 1e-6,
                            .factor = 0.5,
                            .patience = 1,
                            .threshold = 0.5,
                            .minimum = 0,
                            .metric = [](const gradus::train::epoch_report&) { return 1.0; }}};
    std::vector<double> rates;
    const auto note = [&](const gradus::train::step_report& step) {
      if (step.step_in_epoch == 0) {
        rates.push_back(step.learning_rate);
      }
    };
    trainer.fit(loader, {.epochs = 4, .learning_rate = rate}, rate, note);
    trainer.fit(loader, {.epochs = 2, .learning_rate = rate}, rate, note);
    return rates;
  });
  for (const std::vector<double>& rates : ranks) {
    BOOST_TEST((rates == std::vector<double>{1e-6, 1e-6, 1e-6, 0.5e-6, 0.5e-6, 0.25e-6}));
  }
}

BOOST_AUTO_TEST_CASE(the_metric_is_that_of_the_evaluation_where_there_is_one) {
  const gradus::train::epoch_report trained{.loss = 2, .accuracy = 0.25};
  gradus::train::epoch_report evaluated = trained;
  evaluated.evaluation = gradus::train::evaluation_report{.loss = 3, .accuracy = 0.125};
  BOOST_TEST(gradus::train::loss_of(trained) == 2.0);
  BOOST_TEST(gradus::train::loss_of(evaluated) == 3.0);
  BOOST_TEST(gradus::train::accuracy_of(trained) == 0.25);
  BOOST_TEST(gradus::train::accuracy_of(evaluated) == 0.125);
}

// Numbers of a damaged checkpoint: they are converted to int.
BOOST_AUTO_TEST_CASE(a_state_that_cannot_be_is_refused) {
  constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {not_a_number, -1.0, 2e9, 1e300}) {
    for (const std::size_t index : {1U, 2U}) {
      std::vector<double> numbers{0.5, 1, 2, 3, 0, 0.25};
      numbers[index] = bad;
      gradus::train::callback_state state;
      state.put("reduce_on_plateau", numbers);
      reduce_on_plateau rate{{.initial = 1}};
      std::string message;
      try {
        rate.load_state(state);
      } catch (const gradus::format_error& failure) {
        message = failure.what();
      }
      BOOST_TEST(message.find("a number of epochs from 0 to 1000000000") != std::string::npos, message);
      BOOST_TEST(rate(0) == 1.0);
    }
  }
}

BOOST_AUTO_TEST_CASE(options_that_make_no_sense_are_refused) {
  constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
  BOOST_TEST(refusal_of({}) == "");
  const auto says = [](const reduce_on_plateau_options& options, std::string_view part) {
    const std::string message = refusal_of(options);
    BOOST_TEST(message.find(part) != std::string::npos, "'" << part << "' is not in: " << message);
  };
  for (const double bad : {-1.0, not_a_number}) {
    says({.initial = bad}, "initial = ");
    says({.factor = bad}, "a factor in [0, 1)");
    says({.threshold = bad}, "threshold = ");
    says({.minimum = bad}, "minimum = ");
  }
  says({.factor = 1}, "a factor in [0, 1)");
  says({.patience = -1}, "patience and cooldown");
  says({.cooldown = -1}, "patience and cooldown");
  says({.metric = nullptr}, "train::loss_of");
  BOOST_TEST(reduce_on_plateau{}.description() != reduce_on_plateau{{.patience = 3}}.description());
  BOOST_TEST(reduce_on_plateau{}.description() != reduce_on_plateau{{.maximize = true}}.description());
}

BOOST_AUTO_TEST_SUITE_END()
