// SPDX-License-Identifier: BSL-1.0
//
// Clipped gradients: the definition, sums of many squares, threads and parts, scaled losses, invalid values.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "gradus/core/error.hpp"
#include "gradus/optim/adagrad.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/adam_w.hpp"
#include "gradus/optim/averaged_weights.hpp"
#include "gradus/optim/clipped_norm.hpp"
#include "gradus/optim/clipped_value.hpp"
#include "gradus/optim/lamb.hpp"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/rms_prop.hpp"
#include "gradus/optim/scaled_loss.hpp"
#include "gradus/optim/sgd.hpp"

namespace clipping_tests {

namespace optim = gradus::optim;
using gradus::index_t;
using optim::clipped_norm;
using optim::clipped_value;
using optim::scaled_loss;
using optim::sgd;

static_assert(optim::explain_update_rule<clipped_norm<sgd>>());
static_assert(optim::explain_update_rule<clipped_value<sgd>>());
static_assert(optim::explain_update_rule<scaled_loss<clipped_norm<optim::averaged_weights<clipped_value<sgd>>>>>());
static_assert(clipped_norm<sgd>::elementwise && !clipped_norm<optim::lars>::elementwise);
static_assert(clipped_value<sgd>::elementwise && !clipped_value<optim::lars>::elementwise);
static_assert(optim::clips_norm<clipped_norm<sgd>> && !optim::clips_norm<sgd> &&
              !optim::clips_norm<clipped_value<sgd>>);

/// Parameters of no, one and several blocks; a gap, and some without decay.
const std::vector<optim::segment>& parameters() {
  static const std::vector<optim::segment> all{{.name = "a", .offset = 0, .size = 1},
                                               {.name = "b", .offset = 1, .size = 40000},
                                               {.name = "c", .offset = 40007, .size = 16384, .decay = false},
                                               {.name = "d", .offset = 56391, .size = 0},
                                               {.name = "e", .offset = 56391, .size = 77}};
  return all;
}
constexpr index_t elements = 56468;

template <class Element>
std::vector<Element> numbers(int seed, double factor = 1) {
  std::vector<Element> values(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<Element>(factor * ((static_cast<int>(i) * 7919 + seed * 1047) % 2001 - 990) / 1024);
  }
  return values;
}

/// By the definition, in long double.
template <class Element>
double norm_of(const std::vector<Element>& gradients) {
  long double sum = 0;
  for (const optim::segment& each : parameters()) {
    for (index_t i = each.offset; i < each.offset + each.size; ++i) {
      const auto g = static_cast<long double>(gradients[static_cast<std::size_t>(i)]);
      sum += g * g;
    }
  }
  return static_cast<double>(std::sqrt(sum));
}

template <class Element>
double largest_distance(const std::vector<Element>& have, const std::vector<Element>& want) {
  double worst = 0;
  for (std::size_t i = 0; i < have.size(); ++i) {
    const double difference = std::abs(static_cast<double>(have[i]) - static_cast<double>(want[i]));
    worst = std::isnan(difference) || difference > worst ? difference : worst;
  }
  return worst;
}

/// The rule with gradients that this test has clipped, and the clipped rule with gradients as they are.
template <class Element, class Rule, class Clipped, class Clip>
void compare_with_definition(const Rule& rule, const Clipped& clipped, const Clip& clip) {
  gradus::cpu device{{.intra_op_threads = 2}};
  typename Rule::template state<Element> plain{device, rule, elements};
  typename Clipped::template state<Element> state{device, clipped, elements};
  auto want = numbers<Element>(1);
  auto have = want;
  for (std::uint64_t step = 0; step < 5; ++step) {
    const auto gradients = numbers<Element>(static_cast<int>(step) + 2, step == 3 ? 0.001 : 1);
    auto by_hand = gradients;
    clip(by_hand);
    plain.update(device, parameters(), want.data(), by_hand.data(), {0.01, step});
    state.update(device, parameters(), have.data(), gradients.data(), {0.01, step});
  }
  const double tolerance = sizeof(Element) == 4 ? 2e-6 : 1e-14;
  BOOST_TEST(largest_distance(have, want) <= tolerance, Rule::name << " " << largest_distance(have, want));
  BOOST_TEST(largest_distance(have, numbers<Element>(1)) > 1e-3);
}

template <class Element, class Rule>
void compare_both(const Rule& rule) {
  compare_with_definition<Element>(rule, clipped_norm<Rule>{.rule = rule, .max_norm = 20}, [](auto& gradients) {
    const double factor = std::min(1.0, 20 / (norm_of(gradients) + 1e-6));
    for (Element& each : gradients) {
      each = static_cast<Element>(factor * static_cast<double>(each));
    }
  });
  compare_with_definition<Element>(rule, clipped_value<Rule>{.rule = rule, .limit = 0.25}, [](auto& gradients) {
    for (Element& each : gradients) {
      each = std::max(Element(-0.25), std::min(each, Element(0.25)));
    }
  });
}

using clipped_elements = std::tuple<float, double>;

BOOST_AUTO_TEST_SUITE(clipped_gradients)

BOOST_AUTO_TEST_CASE_TEMPLATE(every_rule_steps_with_clipped_gradients, Element, clipped_elements) {
  compare_both<Element>(sgd{.momentum = 0.9, .nesterov = true, .weight_decay = 0.1});
  compare_both<Element>(sgd{});
  compare_both<Element>(optim::adam{.weight_decay = 0.1, .amsgrad = true});
  compare_both<Element>(optim::adam_w{});
  compare_both<Element>(optim::rms_prop{.momentum = 0.9, .epsilon = 1e-3, .centered = true});
  compare_both<Element>(optim::rms_prop{.momentum = 0.9, .epsilon = 1, .tensorflow = true});
  compare_both<Element>(optim::adagrad{.epsilon = 1e-3});
  compare_both<Element>(optim::lars{.trust = 1});
  compare_both<Element>(optim::lamb{});
}

BOOST_AUTO_TEST_CASE(norms_are_reported_before_they_are_clipped) {
  gradus::cpu device{{.intra_op_threads = 1}};
  clipped_norm<sgd>::state<double> state{device, {.max_norm = 100}, elements};
  auto values = numbers<double>(1);
  const auto small = numbers<double>(2, 0.5);
  const auto large = numbers<double>(3, 2);
  state.update(device, parameters(), values.data(), large.data(), {0.1, 0});
  state.update(device, parameters(), values.data(), small.data(), {0.1, 1});
  BOOST_TEST(norm_of(small) < 100);
  BOOST_TEST(norm_of(large) > 100);
  BOOST_TEST(std::abs(state.gradient_norm().value() - norm_of(small)) < 1e-11);
  const optim::gradient_norm_report report = state.take_norm_report();
  BOOST_TEST(report.steps == 2);
  BOOST_TEST(report.clipped_steps == 1);
  BOOST_TEST(report.last == state.gradient_norm().value());
  BOOST_TEST(std::abs(report.largest - norm_of(large)) < 1e-11);
  BOOST_TEST(std::abs(report.mean - (norm_of(large) + norm_of(small)) / 2) < 1e-11);
  const optim::gradient_norm_report next = state.take_norm_report();
  BOOST_TEST(next.steps == 0);
  BOOST_TEST(next.mean == 0.0);
  BOOST_TEST(next.largest == 0.0);
}

BOOST_AUTO_TEST_CASE(a_norm_below_the_limit_changes_no_bit) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const sgd rule{.momentum = 0.9, .weight_decay = 0.01};
  sgd::state<float> plain{device, rule, elements};
  for (const double most : {1e4, std::numeric_limits<double>::infinity()}) {
    clipped_norm<sgd>::state<float> state{device, {.rule = rule, .max_norm = most}, elements};
    plain = sgd::state<float>{device, rule, elements};
    auto want = numbers<float>(1);
    auto have = want;
    for (std::uint64_t step = 0; step < 3; ++step) {
      const auto gradients = numbers<float>(static_cast<int>(step) + 2);
      plain.update(device, parameters(), want.data(), gradients.data(), {0.1, step});
      state.update(device, parameters(), have.data(), gradients.data(), {0.1, step});
    }
    BOOST_TEST((have == want));
    BOOST_TEST(state.take_norm_report().clipped_steps == 0);
  }
}

// Threads share blocks, and ranks and buckets divide the list: the sum is the same bits.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_sum_of_squares_depends_on_neither_threads_nor_calls, Element, clipped_elements) {
  const auto gradients = numbers<Element>(5);
  gradus::cpu one{{.intra_op_threads = 1}};
  double want = 0;
  optim::add_squares(one, parameters(), gradients.data(), &want);
  BOOST_TEST(std::abs(std::sqrt(want) - norm_of(gradients)) < 1e-12 * norm_of(gradients));
  for (const int threads : {1, 2, 3}) {
    gradus::cpu device{{.intra_op_threads = threads}};
    double have = 0;
    optim::add_squares(device, parameters(), gradients.data(), &have);
    BOOST_TEST(have == want);
    have = 0;
    for (const optim::segment& each : parameters()) {
      optim::add_squares(device, std::span<const optim::segment>{&each, 1}, gradients.data(), &have);
    }
    BOOST_TEST(have == want);
  }
}

// 10 million squares of 0.1 in float: a sum in float would stop growing. More than 512 blocks.
BOOST_AUTO_TEST_CASE(many_small_squares_add_up) {
  const std::vector<float> gradients(10'000'000, 0.1F);
  const optim::segment all[] = {{.name = "all", .offset = 0, .size = 10'000'000}};
  gradus::cpu device{{.intra_op_threads = 2}};
  double sum = 0;
  optim::add_squares(device, std::span<const optim::segment>{all}, gradients.data(), &sum);
  const double want = 1e7 * static_cast<double>(0.1F) * static_cast<double>(0.1F);
  BOOST_TEST(std::abs(sum - want) < 1e-13 * want);
}

// The norm is that of the gradients divided by the scale. A step that is not finite is skipped, and has no norm.
BOOST_AUTO_TEST_CASE(scaled_losses_are_clipped_by_the_norm_without_the_scale) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const sgd rule{.momentum = 0.9, .weight_decay = 0.01};
  const auto check = [&](const auto& clipped, bool norms) {
    using Clipped = std::remove_cvref_t<decltype(clipped)>;
    typename Clipped::template state<float> plain{device, clipped, elements};
    typename scaled_loss<Clipped>::template state<float> scaled{
        device, {.rule = clipped, .scaling = {.initial = 8, .dynamic = false}}, elements};
    auto want = numbers<float>(1);
    auto have = want;
    std::uint64_t made = 0;
    for (std::uint64_t step = 0; step < 6; ++step) {
      auto gradients = numbers<float>(static_cast<int>(step) + 2, 8);
      if (step == 2) {
        gradients[40010] = std::numeric_limits<float>::infinity();
      } else {
        const auto unscaled = numbers<float>(static_cast<int>(step) + 2);
        plain.update(device, parameters(), want.data(), unscaled.data(), {0.1, made++});
      }
      scaled.update(device, parameters(), have.data(), gradients.data(), {0.1, step});
      BOOST_TEST(largest_distance(have, want) < 1e-6, "step " << step);
      if constexpr (optim::clips_norm<Clipped>) {
        BOOST_TEST(scaled.gradient_norm().has_value() == (step != 2));
      }
    }
    BOOST_TEST(scaled.report().skipped_steps == 1);
    if constexpr (optim::clips_norm<Clipped>) {
      const optim::gradient_norm_report report = scaled.take_norm_report();
      BOOST_TEST(report.steps == 5);
      BOOST_TEST(report.clipped_steps == 5);
      BOOST_TEST(std::abs(report.last - plain.gradient_norm().value()) < 1e-12 * report.last);
    }
    BOOST_TEST(norms == optim::clips_norm<Clipped>);
  };
  check(clipped_norm<sgd>{.rule = rule, .max_norm = 2}, true);
  check(clipped_value<sgd>{.rule = rule, .limit = 0.25}, false);
}

// Rules that tests and updates in parts, as ranks do that own parts, take the steps of one that gets all at once.
BOOST_AUTO_TEST_CASE(parts_are_clipped_by_the_norm_of_all) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const clipped_norm<sgd> rule{.rule = {.momentum = 0.9}, .max_norm = 3};
  clipped_norm<sgd>::state<double> whole{device, rule, elements};
  clipped_norm<sgd>::state<double> parts{device, rule, elements};
  auto want = numbers<double>(1);
  auto have = want;
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto gradients = numbers<double>(static_cast<int>(step) + 2);
    whole.update(device, parameters(), want.data(), gradients.data(), {0.1, step});
    for (const optim::segment& each : parameters()) {
      parts.test(device, std::span<const optim::segment>{&each, 1}, gradients.data());
    }
    parts.use_norm(device);
    for (const optim::segment& each : parameters()) {
      parts.update_clipped(device, std::span<const optim::segment>{&each, 1}, have.data(), gradients.data(),
                           {0.1, step});
    }
    BOOST_TEST((have == want));
  }
}

BOOST_AUTO_TEST_CASE(not_a_number_is_not_clipped_away) {
  gradus::cpu device{{.intra_op_threads = 1}};
  for (const std::size_t bad : {std::size_t{0}, std::size_t{5}, static_cast<std::size_t>(elements) - 1}) {
    auto gradients = numbers<float>(2);
    gradients[bad] = std::numeric_limits<float>::quiet_NaN();
    auto values = numbers<float>(1);
    clipped_value<sgd>::state<float> by_value{device, {.limit = 0.5}, elements};
    by_value.update(device, parameters(), values.data(), gradients.data(), {0.1, 0});
    BOOST_TEST(std::isnan(values[bad]));
    BOOST_TEST(std::isfinite(values[1]));
    clipped_norm<sgd>::state<float> by_norm{device, {}, elements};
    values = numbers<float>(1);
    by_norm.update(device, parameters(), values.data(), gradients.data(), {0.1, 0});
    BOOST_TEST(std::isnan(values[bad]));
    BOOST_TEST(std::isnan(by_norm.take_norm_report().largest));
  }
}

/// Gradients of a step: finite, huge, infinite, not numbers.
struct odd_gradients {
  double value;  // of element 5
  double norm;
};

template <class Element>
std::vector<odd_gradients> odd_values() {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<odd_gradients> all{{1e30, 1e30}, {infinity, infinity}, {-infinity, infinity}, {nan, nan}};
  if constexpr (sizeof(Element) == 8) {
    all.push_back({1e200, infinity});  // its square is above the range of double
  }
  return all;
}

template <class Element>
bool same_bits(const std::vector<Element>& a, const std::vector<Element>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(Element)) == 0;
}

template <class Element, class Rule>
void check_infinite_limit(const Rule& rule) {
  gradus::cpu device{{.intra_op_threads = 1}};
  for (const odd_gradients& odd : odd_values<Element>()) {
    typename Rule::template state<Element> plain{device, rule, elements};
    typename clipped_norm<Rule>::template state<Element> state{
        device, {.rule = rule, .max_norm = std::numeric_limits<double>::infinity()}, elements};
    auto want = numbers<Element>(1);
    auto have = want;
    for (std::uint64_t step = 0; step < 3; ++step) {
      auto gradients = numbers<Element>(static_cast<int>(step) + 2);
      gradients[5] = step == 1 ? static_cast<Element>(odd.value) : gradients[5];
      plain.update(device, parameters(), want.data(), gradients.data(), {0.1, step});
      state.update(device, parameters(), have.data(), gradients.data(), {0.1, step});
      BOOST_TEST(same_bits(have, want), Rule::name << ", gradient " << odd.value << ", step " << step);
      const double norm = state.gradient_norm().value();
      const double expected = step == 1 ? odd.norm : norm_of(gradients);
      BOOST_TEST((norm == expected || (std::isnan(norm) && std::isnan(expected)) ||
                  std::abs(norm - expected) <= 1e-6 * expected),
                 norm << " for " << expected);
    }
    BOOST_TEST(state.take_norm_report().clipped_steps == 0);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(an_infinite_limit_changes_no_bit_whatever_the_norm_is, Element, clipped_elements) {
  check_infinite_limit<Element>(sgd{.momentum = 0.9, .weight_decay = 0.01});
  check_infinite_limit<Element>(sgd{});
  check_infinite_limit<Element>(optim::adam{.weight_decay = 0.1});
}

// As torch.nn.utils.clip_grad_norm_ with error_if_nonfinite=False, followed by torch.optim.SGD: the factor is 0 or NaN.
BOOST_AUTO_TEST_CASE_TEMPLATE(norms_that_are_not_finite_make_gradients_zero_or_not_numbers, Element, clipped_elements) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const sgd rule{.momentum = 0.9, .weight_decay = 0.25};
  for (const odd_gradients& odd : odd_values<Element>()) {
    typename sgd::state<Element> plain{device, rule, elements};
    typename clipped_norm<sgd>::template state<Element> state{device, {.rule = rule, .max_norm = 2}, elements};
    auto gradients = numbers<Element>(2);
    gradients[5] = static_cast<Element>(odd.value);
    auto by_hand = gradients;
    const Element factor = static_cast<Element>(2 / (odd.norm + 1e-6));
    for (Element& each : by_hand) {
      each *= factor;
    }
    auto want = numbers<Element>(1);
    auto have = want;
    plain.update(device, parameters(), want.data(), by_hand.data(), {0.125, 0});
    state.update(device, parameters(), have.data(), gradients.data(), {0.125, 0});
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < have.size(); ++i) {
      const bool both = std::isnan(have[i]) && std::isnan(want[i]);
      wrong += both || std::abs(have[i] - want[i]) <= Element(1e-6) ? 0U : 1U;
    }
    BOOST_TEST(wrong == 0U, wrong << " elements, gradient " << odd.value);
    BOOST_TEST(std::isnan(have[5]) == !std::isfinite(odd.value));
    BOOST_TEST(std::isnan(have[6]) == std::isnan(odd.value));
    BOOST_TEST(state.take_norm_report().clipped_steps == 1);
  }
}

BOOST_AUTO_TEST_CASE(limits_that_make_no_sense_are_refused) {
  const auto message_of = [](const auto& rule) {
    try {
      rule.check();
    } catch (const gradus::configuration_error& failure) {
      return std::string{failure.what()};
    }
    return std::string{};
  };
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {0.0, -1.0, -infinity, nan}) {
    const std::string norm = message_of(clipped_norm<sgd>{.max_norm = bad});
    BOOST_TEST(norm.find("a max_norm above 0") != std::string::npos, norm);
    const std::string value = message_of(clipped_value<sgd>{.limit = bad});
    BOOST_TEST(value.find("a finite limit above 0") != std::string::npos, value);
  }
  BOOST_TEST(!message_of(clipped_value<sgd>{.limit = infinity}).empty());
  BOOST_TEST(message_of(clipped_norm<sgd>{.max_norm = infinity}).empty());
  BOOST_TEST(!message_of(clipped_norm<sgd>{.rule = {.momentum = 2}}).empty());
  BOOST_TEST(!message_of(clipped_value<sgd>{.rule = {.momentum = 2}}).empty());
}

BOOST_AUTO_TEST_CASE(descriptions_tell_clipped_rules_apart) {
  BOOST_TEST((clipped_norm<sgd>{}.description() == "clipped_norm(1) of " + sgd{}.description()));
  BOOST_TEST((clipped_norm<sgd>{.max_norm = 2}.description() != clipped_norm<sgd>{}.description()));
  BOOST_TEST((clipped_norm<sgd>{.rule = {.momentum = 0.5}}.description() != clipped_norm<sgd>{}.description()));
  BOOST_TEST((clipped_value<sgd>{}.description() == "clipped_value(1) of " + sgd{}.description()));
  BOOST_TEST((clipped_value<sgd>{.limit = 2}.description() != clipped_value<sgd>{}.description()));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace clipping_tests
