// SPDX-License-Identifier: BSL-1.0
//
// Learning-rate schedules: values at chosen epochs, and refused parameters.
#include <boost/test/unit_test.hpp>

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/optim/schedules.hpp"

namespace {

using namespace gradus::optim;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(schedules)

BOOST_AUTO_TEST_CASE(constant_and_numbers) {
  const schedule rate = 0.25;
  BOOST_TEST(rate(0) == 0.25);
  BOOST_TEST(rate(1e6) == 0.25);
  BOOST_TEST(schedule{constant{.rate = 0.5}}(3) == 0.5);
}

BOOST_AUTO_TEST_CASE(a_lambda_is_a_schedule) {
  const schedule rate = [](double epoch) { return 1.0 / (1.0 + epoch); };
  BOOST_TEST(rate(1) == 0.5);
  BOOST_TEST(rate.description() == "user-defined");
  const schedule copy = rate;
  BOOST_TEST(copy(3) == 0.25);
}

BOOST_AUTO_TEST_CASE(piecewise_changes_at_its_boundaries) {
  const schedule rate = piecewise{.rates = {0.3, 0.2, 0.1}, .boundaries = {10, 25}};
  BOOST_TEST(rate(0) == 0.3);
  BOOST_TEST(rate(9.999) == 0.3);
  BOOST_TEST(rate(10) == 0.2);
  BOOST_TEST(rate(24.9) == 0.2);
  BOOST_TEST(rate(25) == 0.1);
  BOOST_TEST(rate(1000) == 0.1);
}

BOOST_AUTO_TEST_CASE(steps_multiply_at_their_boundaries, *boost::unit_test::tolerance(1e-14)) {
  const schedule rate = steps{.initial = 0.8, .factor = 0.5, .boundaries = {30, 60, 80}};
  BOOST_TEST(rate(29.99) == 0.8);
  BOOST_TEST(rate(30) == 0.4);
  BOOST_TEST(rate(60) == 0.2);
  BOOST_TEST(rate(90) == 0.1);
}

BOOST_AUTO_TEST_CASE(cosine_goes_from_initial_to_final, *boost::unit_test::tolerance(1e-14)) {
  const schedule rate = cosine{.initial = 1.0, .epochs = 60, .final = 0.2};
  BOOST_TEST(rate(0) == 1.0);
  BOOST_TEST(rate(20) == 0.2 + 0.8 * 0.75);  // cos(pi / 3) = 1 / 2
  BOOST_TEST(rate(30) == 0.6);
  BOOST_TEST(rate(60) == 0.2);
  BOOST_TEST(rate(61) == 0.2);
}

BOOST_AUTO_TEST_CASE(polynomial_goes_from_initial_to_final, *boost::unit_test::tolerance(1e-14)) {
  const schedule rate = polynomial{.initial = 1.1, .epochs = 10, .power = 2, .final = 0.1};
  BOOST_TEST(rate(0) == 1.1);
  BOOST_TEST(rate(5) == 0.35);
  BOOST_TEST(rate(10) == 0.1);
  BOOST_TEST(rate(100) == 0.1);
}

BOOST_AUTO_TEST_CASE(exponential_falls, *boost::unit_test::tolerance(1e-14)) {
  const schedule stairs = exponential{.initial = 1, .factor = 0.5, .every = 2};
  BOOST_TEST(stairs(1.9) == 1.0);
  BOOST_TEST(stairs(2.0) == 0.5);
  const schedule smooth = exponential{.initial = 1, .factor = 0.25, .every = 2, .minimum = 0.1, .staircase = false};
  BOOST_TEST(smooth(1) == 0.5);
  BOOST_TEST(smooth(50) == 0.1);
}

BOOST_AUTO_TEST_CASE(one_cycle_rises_and_falls, *boost::unit_test::tolerance(1e-14)) {
  const schedule rate = one_cycle{
      .maximum = 1, .epochs = 10, .rising = 0.4, .div_factor = 4, .final_div_factor = 10, .anneal = annealing::linear};
  BOOST_TEST(rate(0) == 0.25);
  BOOST_TEST(rate(2) == 0.625);
  BOOST_TEST(rate(4) == 1.0);
  BOOST_TEST(rate(7) == 0.5125);
  BOOST_TEST(rate(10) == 0.025);
  BOOST_TEST(rate(100) == 0.025);
  const schedule smooth = one_cycle{.maximum = 1, .epochs = 10, .rising = 0.3, .div_factor = 4, .three_phase = true};
  BOOST_TEST(smooth(1.5) == 0.625);
  BOOST_TEST(smooth(3) == 1.0);
  BOOST_TEST(smooth(4.5) == 0.625);
  BOOST_TEST(smooth(6) == 0.25);
  BOOST_TEST(smooth(10) == 0.25e-4);
  BOOST_TEST(smooth(11) == 0.25e-4);
}

BOOST_AUTO_TEST_CASE(warm_up_reaches_the_schedule_that_follows, *boost::unit_test::tolerance(1e-14)) {
  const schedule rate = warm_up{.start = 0.1, .epochs = 5, .then = steps{.initial = 3.2, .boundaries = {30}}};
  BOOST_TEST(rate(0) == 0.1);
  BOOST_TEST(rate(2.5) == 1.65);
  BOOST_TEST(rate(5) == 3.2);
  BOOST_TEST(rate(30) == 0.32);
  const schedule from_zero = warm_up{.epochs = 4, .then = cosine{.initial = 1, .epochs = 8}};
  BOOST_TEST(from_zero(0) == 0.0);
  BOOST_TEST(from_zero(2) == 0.25);  // half way to cosine(4) = 0.5
  BOOST_TEST(from_zero(4) == 0.5);
}

BOOST_AUTO_TEST_CASE(rates_scale_with_the_batch) {
  BOOST_TEST(linearly_scaled(0.1, 256, 8192) == 3.2, boost::test_tools::tolerance(1e-14));
  BOOST_CHECK_THROW((void)linearly_scaled(0.1, 0, 8), gradus::configuration_error);
  BOOST_CHECK_THROW((void)linearly_scaled(not_a_number, 256, 8), gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(bad_values_are_refused) {
  const auto message = [](auto make) -> std::string {
    try {
      const schedule rate = make();
    } catch (const gradus::configuration_error& error) {
      return error.what();
    }
    return "";
  };
  BOOST_TEST((contains(message([] { return schedule{-0.1}; }), "constant: expected a finite rate of at least 0")));
  BOOST_TEST(
      (contains(message([] { return schedule{not_a_number}; }), "constant: expected a finite rate of at least 0")));
  BOOST_TEST((contains(message([] { return cosine{.epochs = 0}; }), "cosine: expected a finite number of epochs")));
  BOOST_TEST((contains(message([] { return polynomial{.power = not_a_number}; }),
                       "polynomial: expected a finite power above 0")));
  BOOST_TEST((contains(message([] { return one_cycle{.rising = 1}; }), "one_cycle: expected a rising share")));
  BOOST_TEST((contains(message([] { return one_cycle{.rising = 0.5, .three_phase = true}; }), "rising = 0.5")));
  BOOST_TEST((contains(message([] { return one_cycle{.maximum = -1}; }), "one_cycle: expected a finite maximum rate")));
  BOOST_TEST((contains(message([] { return one_cycle{.epochs = 0}; }), "one_cycle: expected a finite number of")));
  BOOST_TEST((contains(message([] { return one_cycle{.final_div_factor = 0}; }), "final_div_factor above 0")));
  BOOST_TEST((contains(message([] { return exponential{.factor = -1}; }), "exponential: expected a finite factor")));
  BOOST_TEST(
      (contains(message([] { return steps{.boundaries = {-1}}; }), "steps: expected a finite number of epochs")));
  BOOST_TEST(
      (contains(message([] { return warm_up{.start = not_a_number}; }), "warm_up: expected a finite start rate")));
  BOOST_TEST((contains(message([] { return piecewise{.rates = {0.1}, .boundaries = {1}}; }), "one rate more")));
  BOOST_TEST((contains(message([] { return piecewise{.rates = {.1, .2, .3}, .boundaries = {2, 2}}; }), "increase")));
}

BOOST_AUTO_TEST_CASE(descriptions_tell_schedules_apart) {
  const schedule a = warm_up{.then = cosine{.initial = 0.1}};
  const schedule b = warm_up{.then = cosine{.initial = 0.1}};
  const schedule c = warm_up{.then = cosine{.initial = 0.2}};
  BOOST_TEST(a.description() == b.description());
  BOOST_TEST(a.description() != c.description());
  const schedule cycle = one_cycle{};
  const schedule three = one_cycle{.three_phase = true};
  const schedule lines = one_cycle{.anneal = annealing::linear};
  BOOST_TEST(cycle.description() != three.description());
  BOOST_TEST(cycle.description() != lines.description());
  const schedule two_steps = steps{.boundaries = {30, 60}};
  BOOST_TEST(schedule{steps{}}.description() != two_steps.description());
  BOOST_TEST(schedule{0.005}.description() == "constant(0.005)");  // as it was written
  BOOST_TEST(schedule{0.1 + 0.2}.description() == "constant(0.30000000000000004)");
  BOOST_TEST(schedule{1e-300}.description() == "constant(1e-300)");
}

BOOST_AUTO_TEST_SUITE_END()
