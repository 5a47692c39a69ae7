// SPDX-License-Identifier: BSL-1.0
//
// The learning rate of every step against what PyTorch computes (tests/golden/schedules.txt), for odd numbers of steps.
#include "gradus/optim/schedules.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "../../support/source_directory.hpp"
#include "gradus/optim/schedule.hpp"

namespace {

namespace optim = gradus::optim;

/// The schedule of a case. @param epoch  steps of an epoch; `steps` that the case is made with
optim::schedule schedule_of(const std::string& name, double epoch, double steps) {
  const double epochs = steps / epoch;
  const optim::one_cycle cycle{.maximum = 0.4, .epochs = epochs};
  if (name == "step_lr") {
    return optim::exponential{.initial = 0.4, .factor = 0.9, .every = epochs};
  }
  if (name == "multi_step_lr") {
    return optim::steps{.initial = 0.4, .factor = 0.1, .boundaries = {epochs, 1 + epochs, 2 + (steps + 1) / epoch}};
  }
  if (name == "exponential_lr") {
    return optim::exponential{.initial = 0.4, .factor = 0.9, .every = 1 / epoch, .staircase = false};
  }
  if (name == "cosine_lr") {
    return optim::cosine{.initial = 0.4, .epochs = epochs, .final = 0.01};
  }
  if (name == "polynomial_lr") {
    return optim::polynomial{.initial = 0.4, .epochs = epochs, .power = 2};
  }
  if (name == "linear_lr") {
    return optim::warm_up{.start = 0.1, .epochs = epochs, .then = 0.4};
  }
  optim::one_cycle rates = cycle;
  if (name == "one_cycle_linear") {
    rates.anneal = optim::annealing::linear;
    rates.rising = 0.4;
  }
  rates.three_phase = name == "one_cycle_three_phase";
  return rates;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(rates_of_steps)

BOOST_AUTO_TEST_CASE(are_those_of_torch) {
  std::ifstream file{path_in_tests("golden/schedules.txt")};
  BOOST_REQUIRE_MESSAGE(file.good(), "tests/golden/schedules.txt is missing");
  std::map<std::string, int> cases;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words{line};
    std::string name;
    std::uint64_t epoch = 0;
    std::uint64_t steps = 0;
    if (!(words >> name >> epoch >> steps)) {
      continue;
    }
    ++cases[name];
    const optim::schedule rates = schedule_of(name, static_cast<double>(epoch), static_cast<double>(steps));
    std::uint64_t step = 0;
    for (double want = 0; words >> want; ++step) {
      const double have = rates.at({.step = step, .steps_per_epoch = epoch});
      BOOST_TEST(std::abs(have - want) <= 1e-13 + 1e-10 * want, name << " of " << steps << " steps, " << epoch
                                                                     << " an epoch: " << have << " in step " << step
                                                                     << ", torch has " << want);
    }
    BOOST_TEST(step >= 4U);
  }
  BOOST_TEST(cases.size() == 9U);
}

// A boundary in epochs is met in the same step, however it is written.
BOOST_AUTO_TEST_CASE(change_at_boundaries_of_rounded_epochs) {
  for (std::uint64_t epoch = 1; epoch <= 100; ++epoch) {
    for (std::uint64_t boundary = 1; boundary <= 3 * epoch; ++boundary) {
      const auto whole = static_cast<double>(boundary / epoch);
      const double written[] = {static_cast<double>(boundary) / static_cast<double>(epoch),
                                whole + static_cast<double>(boundary % epoch) / static_cast<double>(epoch)};
      for (const double epochs : written) {
        const optim::schedule list = optim::piecewise{.rates = {1, 2}, .boundaries = {epochs}};
        const optim::schedule stairs = optim::exponential{.initial = 1, .factor = 2, .every = epochs};
        const optim::schedule then = optim::warm_up{.start = 0, .epochs = epochs, .then = list};
        for (const optim::schedule* rates : {&list, &stairs, &then}) {
          BOOST_REQUIRE(rates->at({boundary - 1, epoch}) < 2);
          BOOST_REQUIRE(rates->at({boundary, epoch}) == 2);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(of_stairs_do_not_depend_on_rounding) {
  for (const double every : {0.1, 0.2, 0.3, 0.7}) {
    const optim::exponential stairs{.initial = 1, .factor = 0.5, .every = every};
    for (int k = 1; k < 30; ++k) {
      BOOST_TEST(stairs(every * k) == std::pow(0.5, k));
      BOOST_TEST(stairs(every * k - 1e-9) == std::pow(0.5, k - 1));
    }
  }
  BOOST_TEST(optim::exponential({.initial = 1, .factor = 0.5, .every = 0.2})(0.6) == 0.125);
}

BOOST_AUTO_TEST_SUITE_END()
