// SPDX-License-Identifier: BSL-1.0
//
// Update rules and schedules against what PyTorch computes (tests/golden/optimizers.txt), over 200 steps in float and
// double.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "../../support/optimizer_cases.hpp"
#include "../../support/update_state.hpp"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/schedules.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/train/reduce_on_plateau.hpp"
#include "source_directory.hpp"

namespace {

using gradus::cpu;
namespace optim = gradus::optim;
namespace train = gradus::train;

/// The numbers of each case and type.
const std::map<std::string, std::vector<double>>& golden() {
  static const auto result = [] {
    std::ifstream file{path_in_tests("golden/optimizers.txt")};
    BOOST_REQUIRE_MESSAGE(file.good(), "tests/golden/optimizers.txt is missing");
    std::map<std::string, std::vector<double>> cases;
    std::string line;
    while (std::getline(file, line)) {
      std::istringstream words{line};
      std::string name;
      std::string type;
      if (words >> name >> type && name != "#") {
        std::vector<double>& numbers = cases[name + " " + type];
        for (double number = 0; words >> number;) {
          numbers.push_back(number);
        }
      }
    }
    return cases;
  }();
  return result;
}

template <class Element>
std::string type_name() {
  return sizeof(Element) == 4 ? "float" : "double";
}

/// Compares relatively, and below 1, the magnitude of the starts, with 1: an early rounding error stays.
template <class Element>
void check_against_golden(std::string_view name, const std::vector<Element>& have, double tolerance) {
  const auto found = golden().find(std::string{name} + " " + type_name<Element>());
  BOOST_REQUIRE_MESSAGE(found != golden().end(), name << " is missing in optimizers.txt");
  const std::vector<double>& want = found->second;
  BOOST_REQUIRE_EQUAL(have.size(), want.size());
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double difference = std::abs(static_cast<double>(have[i]) - want[i]);
    worst = std::max(worst, std::isnan(difference) ? 1e300 : difference / std::max(1.0, std::abs(want[i])));
  }
  BOOST_TEST(worst <= tolerance, name << " " << type_name<Element>() << ": " << worst);
}

template <class Element>
constexpr double tolerance_of = sizeof(Element) == 4 ? 1e-6 : 1e-13;

template <class State, class Element>
void train_all_steps(cpu& device, State& state, std::vector<Element>& values,
                     const std::vector<optim::segment>& segments = gradus_test::optimizer_segments()) {
  for (int step = 0; step < gradus_test::optimizer_steps; ++step) {
    const auto gradients = gradus_test::optimizer_gradients<Element>(step);
    state.update(device, segments, values.data(), gradients.data(),
                 {gradus_test::optimizer_rate(step), static_cast<std::uint64_t>(step)});
  }
}

using elements = std::tuple<float, double>;

}  // namespace

BOOST_AUTO_TEST_SUITE(golden_optimizers)

BOOST_AUTO_TEST_CASE_TEMPLATE(rules_take_the_steps_of_torch, Element, elements) {
  cpu device{{.intra_op_threads = 1}};
  gradus_test::for_each_optimizer([&]<class Rule>(std::string_view name, const Rule& rule) {
    gradus_test::update_state<Element> state{device, rule, gradus_test::optimizer_elements};
    auto values = gradus_test::optimizer_starts<Element>();
    train_all_steps(device, state, values);
    check_against_golden(name, values, tolerance_of<Element>);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(groups_take_the_steps_of_torch, Element, elements) {
  cpu device{{.intra_op_threads = 1}};
  gradus_test::for_each_grouped_optimizer([&]<class Rule>(std::string_view name, const Rule& rule) {
    gradus_test::update_state<Element> state{device, rule, gradus_test::optimizer_elements};
    auto values = gradus_test::optimizer_starts<Element>();
    train_all_steps(device, state, values, gradus_test::grouped_segments());
    check_against_golden(name, values, tolerance_of<Element>);
  });
}

// A rule with groups is the rule for each group, at the group's learning rate.
BOOST_AUTO_TEST_CASE_TEMPLATE(groups_are_rules_of_their_own, Element, elements) {
  cpu device{{.intra_op_threads = 1}};
  const auto check = [&]<class Rule>(std::string_view name, const Rule& rule, double tolerance) {
    gradus_test::update_state<Element> state{device, rule, gradus_test::optimizer_elements};
    auto values = gradus_test::optimizer_starts<Element>();
    train_all_steps(device, state, values, gradus_test::grouped_segments());
    for (std::size_t i = 0; i < gradus_test::grouped_segments().size(); ++i) {
      gradus_test::update_state<Element> alone{device, rule, gradus_test::optimizer_elements};
      auto expected = gradus_test::optimizer_starts<Element>();
      const optim::segment& part = gradus_test::optimizer_segments()[i];
      for (int step = 0; step < gradus_test::optimizer_steps; ++step) {
        const auto gradients = gradus_test::optimizer_gradients<Element>(step);
        alone.update(device, {&part, 1}, expected.data(), gradients.data(),
                     {gradus_test::optimizer_rate(step) * gradus_test::grouped_segments()[i].learning_rate_factor,
                      static_cast<std::uint64_t>(step)});
      }
      for (auto e = static_cast<std::size_t>(part.offset); e < static_cast<std::size_t>(part.offset + part.size); ++e) {
        const auto scale = std::max(Element{1}, std::abs(expected[e]));
        BOOST_TEST(std::abs(values[e] - expected[e]) <= static_cast<Element>(tolerance) * scale,
                   name << ", element " << e << ": " << values[e] << " for " << expected[e]);
      }
    }
  };
  const auto exact = [&](std::string_view name, const auto& rule) { check(name, rule, 0); };
  gradus_test::for_each_optimizer(exact);
  gradus_test::for_each_grouped_optimizer(exact);
  exact("averaged weights", optim::update<optim::adam_w>{.average = 0.9});
  exact("scaled loss", optim::update<optim::rms_prop>{.loss_scaling = {.initial = 1}});
  check("lars", optim::lars{.trust = 0.02}, 10 * tolerance_of<Element>);  // its factor is outside the velocity
}

BOOST_AUTO_TEST_CASE_TEMPLATE(averages_are_those_of_torch, Element, elements) {
  cpu device{{.intra_op_threads = 1}};
  gradus_test::update_state<Element> state{device, gradus_test::averaged_sgd(), gradus_test::optimizer_elements};
  auto values = gradus_test::optimizer_starts<Element>();
  train_all_steps(device, state, values);
  const auto weights = values;
  state->swap_average(values);
  check_against_golden("averaged_weights", values, tolerance_of<Element>);
  state->swap_average(values);
  BOOST_TEST((values == weights));
}

// torch computes the norm of floats in float; here it is computed in double, and 165 of 200 steps are clipped.
BOOST_AUTO_TEST_CASE_TEMPLATE(clipped_gradients_are_those_of_torch, Element, elements) {
  cpu device{{.intra_op_threads = 1}};
  const auto check = [&]<class Rule>(std::string_view name, const Rule& rule, auto look) {
    gradus_test::update_state<Element> state{device, rule, gradus_test::optimizer_elements};
    auto values = gradus_test::optimizer_starts<Element>();
    train_all_steps(device, state, values);
    check_against_golden(name, values, sizeof(Element) == 4 ? 1e-6 : 1e-12);
    look(state);
  };
  check("clipped_norm_sgd", gradus_test::norm_clipped_sgd(), [](auto& state) {
    const optim::gradient_norm_report norms = *state->take_norm_report();
    BOOST_TEST(norms.steps == 200);
    BOOST_TEST(norms.clipped_steps == 165);
    BOOST_TEST(norms.largest > norms.mean);
    BOOST_TEST(norms.last == state->gradient_norm().value());
    BOOST_TEST(state->take_norm_report()->steps == 0);
  });
  check("clipped_norm_adam", gradus_test::norm_clipped_adam(),
        [](auto& state) { BOOST_TEST(state->take_norm_report()->clipped_steps == 200); });
  check("clipped_value_sgd", gradus_test::value_clipped_sgd(), [](auto& /*state*/) {});
}

BOOST_AUTO_TEST_CASE(schedules_have_the_rates_of_torch) {
  const auto check = [](std::string_view name, const optim::schedule& schedule) {
    std::vector<double> have;
    for (int step = 0; step < 50; ++step) {
      have.push_back(schedule(step));
    }
    check_against_golden(name, have, 1e-13);
  };
  check("step_lr", optim::exponential{.initial = 0.4, .factor = 0.5, .every = 7});
  check("multi_step_lr", optim::steps{.initial = 0.4, .factor = 0.1, .boundaries = {5, 12, 30}});
  check("exponential_lr", optim::exponential{.initial = 0.4, .factor = 0.9, .staircase = false});
  check("cosine_lr", optim::cosine{.initial = 0.4, .epochs = 49, .final = 0.01});
  check("polynomial_lr", optim::polynomial{.initial = 0.4, .epochs = 40, .power = 2});
  check("linear_lr", optim::warm_up{.start = 0.1, .epochs = 10, .then = 0.4});
}

// torch counts steps 0 to 49, and ends the phases at step (share * 50 - 1) and at step 49.
BOOST_AUTO_TEST_CASE(one_cycle_has_the_rates_of_torch) {
  const auto check = [](std::string_view name, double share, optim::one_cycle rates) {
    rates.maximum = 0.4;
    rates.epochs = 49;
    rates.rising = (share * 50 - 1) / 49;
    const optim::schedule schedule = rates;
    std::vector<double> have;
    for (int step = 0; step < 50; ++step) {
      have.push_back(schedule(step));
    }
    check_against_golden(name, have, 1e-12);
  };
  check("one_cycle", 0.3, {});
  check("one_cycle_linear", 0.4, {.div_factor = 10, .final_div_factor = 100, .anneal = optim::annealing::linear});
  check("one_cycle_three_phase", 0.3, {.three_phase = true});
  check("one_cycle_three_phase_linear", 0.3, {.anneal = optim::annealing::linear, .three_phase = true});
}

BOOST_AUTO_TEST_CASE(reduce_on_plateau_has_the_rates_of_torch) {
  const auto check = [](std::string_view name, train::reduce_on_plateau_options options) {
    options.initial = 0.4;
    train::reduce_on_plateau watcher{options};
    const optim::schedule schedule = watcher;  // a copy, as fit takes it
    std::vector<double> have;
    for (int epoch = 0; epoch < 60; ++epoch) {
      have.push_back(schedule(epoch));
      watcher.on_epoch(
          {.loss = epoch < 30 ? (epoch * 13 % 7) / 8.0 + 64.0 / (epoch + 1) : 1.5 - (epoch - 30) / 1024.0});
    }
    check_against_golden(name, have, 1e-12);
    for (int epoch = 0; epoch < 60; ++epoch) {  // an epoch has one rate, whenever it is asked for
      BOOST_TEST(schedule(epoch) == have[static_cast<std::size_t>(epoch)]);
      BOOST_TEST(schedule(epoch + 0.999) == have[static_cast<std::size_t>(epoch)]);
    }
  };
  check("reduce_on_plateau", {.patience = 3});
  check("reduce_on_plateau_all",
        {.factor = 0.5, .patience = 2, .threshold = 0.01, .absolute_threshold = true, .cooldown = 3, .minimum = 0.02});
  check("reduce_on_plateau_max", {.factor = 0.5, .patience = 4, .maximize = true});
}

BOOST_AUTO_TEST_SUITE_END()
