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
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "../../support/update_state.hpp"
#include "gradus/core/error.hpp"
#include "gradus/optim/adagrad.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/adam_w.hpp"
#include "gradus/optim/lamb.hpp"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/rms_prop.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"

namespace clipping_tests {

namespace optim = gradus::optim;
using gradus::index_t;
using gradus_test::update_state;
using optim::sgd;
using optim::update;

static_assert(update<sgd>::elementwise && !update<optim::lars>::elementwise);
static_assert(std::is_same_v<optim::rule_of<update<sgd>>, sgd> && std::is_same_v<optim::rule_of<sgd>, sgd>);

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
  update_state<Element> state{device, clipped, elements};
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
  compare_with_definition<Element>(rule, update<Rule>{.rule = rule, .max_norm = 20}, [](auto& gradients) {
    const double factor = std::min(1.0, 20 / (norm_of(gradients) + 1e-6));
    for (Element& each : gradients) {
      each = static_cast<Element>(factor * static_cast<double>(each));
    }
  });
  compare_with_definition<Element>(rule, update<Rule>{.rule = rule, .clip_value = 0.25}, [](auto& gradients) {
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
  update_state<double> state{device, update<sgd>{.max_norm = 100}, elements};
  auto values = numbers<double>(1);
  const auto small = numbers<double>(2, 0.5);
  const auto large = numbers<double>(3, 2);
  state.update(device, parameters(), values.data(), large.data(), {0.1, 0});
  state.update(device, parameters(), values.data(), small.data(), {0.1, 1});
  BOOST_TEST(norm_of(small) < 100);
  BOOST_TEST(norm_of(large) > 100);
  BOOST_TEST(std::abs(state->gradient_norm().value() - norm_of(small)) < 1e-11);
  const optim::gradient_norm_report report = *state->take_norm_report();
  BOOST_TEST(report.steps == 2);
  BOOST_TEST(report.clipped_steps == 1);
  BOOST_TEST(report.last == state->gradient_norm().value());
  BOOST_TEST(std::abs(report.largest - norm_of(large)) < 1e-11);
  BOOST_TEST(std::abs(report.mean - (norm_of(large) + norm_of(small)) / 2) < 1e-11);
  const optim::gradient_norm_report next = *state->take_norm_report();
  BOOST_TEST(next.steps == 0);
  BOOST_TEST(next.mean == 0.0);
  BOOST_TEST(next.largest == 0.0);
}

BOOST_AUTO_TEST_CASE(a_norm_below_the_limit_changes_no_bit) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const sgd rule{.momentum = 0.9, .weight_decay = 0.01};
  sgd::state<float> plain{device, rule, elements};
  for (const double most : {1e4, std::numeric_limits<double>::infinity()}) {
    update_state<float> state{device, update<sgd>{.rule = rule, .max_norm = most}, elements};
    plain = sgd::state<float>{device, rule, elements};
    auto want = numbers<float>(1);
    auto have = want;
    for (std::uint64_t step = 0; step < 3; ++step) {
      const auto gradients = numbers<float>(static_cast<int>(step) + 2);
      plain.update(device, parameters(), want.data(), gradients.data(), {0.1, step});
      state.update(device, parameters(), have.data(), gradients.data(), {0.1, step});
    }
    BOOST_TEST((have == want));
    BOOST_TEST(state->take_norm_report()->clipped_steps == 0);
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
  for (const bool norms : {true, false}) {
    update<sgd> clipped{.rule = rule};
    (norms ? clipped.max_norm : clipped.clip_value) = norms ? 2 : 0.25;
    update_state<float> plain{device, clipped, elements};
    clipped.loss_scaling = {.initial = 8, .dynamic = false};
    update_state<float> scaled{device, clipped, elements};
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
      BOOST_TEST(scaled->gradient_norm().has_value() == (norms && step != 2));
    }
    BOOST_TEST(scaled->report()->skipped_steps == 1);
    BOOST_TEST(scaled->clips_norm() == norms);
    const auto report = scaled->take_norm_report();
    BOOST_REQUIRE(report.has_value() == norms);
    if (norms) {
      BOOST_TEST(report->steps == 5);
      BOOST_TEST(report->clipped_steps == 5);
      BOOST_TEST(std::abs(report->last - plain->gradient_norm().value()) < 1e-12 * report->last);
    }
  }
}

// The parts of an update in one step, by their definitions: the scale, the norm, the value, the rule, the average.
BOOST_AUTO_TEST_CASE_TEMPLATE(all_parts_of_an_update_are_made_in_their_order, Element, clipped_elements) {
  gradus::cpu device{{.intra_op_threads = 2}};
  const optim::adam rule{.weight_decay = 0.1};
  const update<optim::adam> every_part{.rule = rule,
                                       .max_norm = 20,
                                       .clip_value = 0.0625,
                                       .loss_scaling = {.initial = 16, .growth_interval = 2},
                                       .average = 0.75};
  for (int chosen = 0; chosen < gradus_test::all_combinations; ++chosen) {
    const update<optim::adam> all = gradus_test::with_parts(every_part, chosen);
    update_state<Element> state{device, all, elements};
    optim::adam::state<Element> plain{device, rule, elements};
    auto want = numbers<Element>(1);
    auto have = want;
    std::vector<Element> average(want.size());
    std::uint64_t made = 0;
    for (std::uint64_t step = 0; step < 6; ++step) {
      const auto scale = static_cast<Element>(state->scale().factor);
      auto gradients = numbers<Element>(static_cast<int>(step) + 2);
      auto by_hand = gradients;
      for (Element& each : gradients) {
        each *= scale;
      }
      const bool skipped = all.loss_scaling.enabled && step == 3;
      if (skipped) {
        gradients[17] = std::numeric_limits<Element>::infinity();
      } else {
        const double factor = all.max_norm ? std::min(1.0, *all.max_norm / (norm_of(by_hand) + 1e-6)) : 1.0;
        const auto most = static_cast<Element>(all.clip_value.value_or(1e9));
        for (Element& each : by_hand) {
          each = std::max(-most, std::min(static_cast<Element>(factor * static_cast<double>(each)), most));
        }
        plain.update(device, parameters(), want.data(), by_hand.data(), {0.01, made});
        for (std::size_t i = 0; i < want.size(); ++i) {
          average[i] = made == 0 ? want[i] : Element(0.75) * average[i] + Element(0.25) * want[i];
        }
        ++made;
      }
      state.update(device, parameters(), have.data(), gradients.data(), {0.01, step});
    }
    const double tolerance = sizeof(Element) == 4 ? 4e-6 : 1e-13;
    BOOST_TEST(largest_distance(have, want) <= tolerance, "parts " << chosen << ": " << largest_distance(have, want));
    BOOST_TEST(made == (all.loss_scaling.enabled ? 5U : 6U));
    if (all.average) {
      auto swapped = have;
      state->swap_average(swapped);
      for (std::size_t i = 40001; i < 40007; ++i) {
        average[i] = 0;  // of no parameter
      }
      BOOST_TEST(largest_distance(swapped, average) <= tolerance, "average, parts " << chosen);
    } else {
      BOOST_CHECK_THROW(state->swap_average(have), gradus::configuration_error);
    }
  }
}

// Rules that tests and updates in parts, as ranks do that own parts, take the steps of one that gets all at once.
BOOST_AUTO_TEST_CASE(parts_are_clipped_by_the_norm_of_all) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const update<sgd> rule{.rule = {.momentum = 0.9}, .max_norm = 3};
  update_state<double> whole{device, rule, elements};
  update_state<double> parts{device, rule, elements};
  auto want = numbers<double>(1);
  auto have = want;
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto gradients = numbers<double>(static_cast<int>(step) + 2);
    whole.update(device, parameters(), want.data(), gradients.data(), {0.1, step});
    for (const optim::segment& each : parameters()) {
      parts->test(std::span<const optim::segment>{&each, 1}, gradients.data());
    }
    parts->use_totals();
    for (const optim::segment& each : parameters()) {
      parts->update(std::span<const optim::segment>{&each, 1}, have.data(), gradients.data(), {0.1, step});
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
    update_state<float> by_value{device, update<sgd>{.clip_value = 0.5}, elements};
    by_value.update(device, parameters(), values.data(), gradients.data(), {0.1, 0});
    BOOST_TEST(std::isnan(values[bad]));
    BOOST_TEST(std::isfinite(values[1]));
    update_state<float> by_norm{device, update<sgd>{.max_norm = 1}, elements};
    values = numbers<float>(1);
    by_norm.update(device, parameters(), values.data(), gradients.data(), {0.1, 0});
    BOOST_TEST(std::isnan(values[bad]));
    BOOST_TEST(std::isnan(by_norm->take_norm_report()->largest));
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
    update_state<Element> state{device, update<Rule>{.rule = rule, .max_norm = std::numeric_limits<double>::infinity()},
                                elements};
    auto want = numbers<Element>(1);
    auto have = want;
    for (std::uint64_t step = 0; step < 3; ++step) {
      auto gradients = numbers<Element>(static_cast<int>(step) + 2);
      gradients[5] = step == 1 ? static_cast<Element>(odd.value) : gradients[5];
      plain.update(device, parameters(), want.data(), gradients.data(), {0.1, step});
      state.update(device, parameters(), have.data(), gradients.data(), {0.1, step});
      BOOST_TEST(same_bits(have, want), Rule::name << ", gradient " << odd.value << ", step " << step);
      const double norm = state->gradient_norm().value();
      const double expected = step == 1 ? odd.norm : norm_of(gradients);
      BOOST_TEST((norm == expected || (std::isnan(norm) && std::isnan(expected)) ||
                  std::abs(norm - expected) <= 1e-6 * expected),
                 norm << " for " << expected);
    }
    BOOST_TEST(state->take_norm_report()->clipped_steps == 0);
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
    update_state<Element> state{device, update<sgd>{.rule = rule, .max_norm = 2}, elements};
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
    BOOST_TEST(state->take_norm_report()->clipped_steps == 1);
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
    const std::string norm = message_of(update<sgd>{.max_norm = bad});
    BOOST_TEST(norm.find("a max_norm above 0") != std::string::npos, norm);
    const std::string value = message_of(update<sgd>{.clip_value = bad});
    BOOST_TEST(value.find("a finite clip_value above 0") != std::string::npos, value);
  }
  BOOST_TEST(!message_of(update<sgd>{.clip_value = infinity}).empty());
  BOOST_TEST(message_of(update<sgd>{.max_norm = infinity}).empty());
  BOOST_TEST(!message_of(update<sgd>{.rule = {.momentum = 2}}).empty());
  for (const double bad : {-0.1, 1.0, nan, infinity}) {
    const std::string average = message_of(update<sgd>{.average = bad});
    BOOST_TEST(average.find("an average in [0, 1)") != std::string::npos, average);
  }
  BOOST_TEST(!message_of(update<sgd>{.loss_scaling = {.growth = 0.5}}).empty());
  BOOST_TEST(message_of(update<sgd>{.loss_scaling = {.growth = 0.5, .enabled = false}}).empty());
}

BOOST_AUTO_TEST_CASE(descriptions_tell_clipped_rules_apart) {
  BOOST_TEST(update<sgd>{}.description() == sgd{}.description());
  BOOST_TEST((update<sgd>{.max_norm = 1, .clip_value = 2}.description() ==
              sgd{}.description() + " with max_norm(1) with clip_value(2)"));
  BOOST_TEST((update<sgd>{.average = 0.5}.description() == sgd{}.description() + " with average(0.5)"));
  BOOST_TEST((update<sgd>{.max_norm = 2}.description() != update<sgd>{.max_norm = 1}.description()));
  BOOST_TEST((update<sgd>{.rule = {.momentum = 0.5}}.description() != update<sgd>{}.description()));
}

/// A rule that does not divide gradients.
struct without_division {
  static constexpr std::string_view name = "without_division";
  void check() const {}
  [[nodiscard]] std::string description() const { return "without_division"; }
  template <class Element, class Device = gradus::cpu>
  struct state {
    state(Device& /*device*/, const without_division& /*rule*/, index_t /*parameters*/) {}
    void update(Device& /*device*/, std::span<const optim::segment> segments, Element* values, const Element* gradients,
                const optim::update_step& step) {
      for (const optim::segment& each : segments) {
        for (index_t i = each.offset; i < each.offset + each.size; ++i) {
          values[i] -= static_cast<Element>(step.learning_rate) * gradients[i];
        }
      }
    }
    template <class Visitor>
    void visit_buffers(Visitor&& /*visitor*/) {}
  };
};
static_assert(optim::update_rule<without_division>);

BOOST_AUTO_TEST_CASE(a_rule_that_cannot_divide_is_refused_where_it_has_to) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto refused = [&](const update<without_division>& all) {
    BOOST_CHECK_EXCEPTION(update_state<float>(device, all, 2), gradus::configuration_error, [](const auto& failure) {
      const std::string text = failure.what();
      return text.find("'without_division'") != std::string::npos &&
             text.find("loss_scale& scale") != std::string::npos;
    });
  };
  refused({.max_norm = 1});
  refused({.loss_scaling = {}});
  update_state<float> state{device, update<without_division>{.clip_value = 1, .average = 0.5}, 2};
  const std::vector<optim::segment> two{{.name = "two", .offset = 0, .size = 2}};
  std::vector<float> values{1, 1};
  const std::vector<float> gradients{0.5F, 8};
  state.update(device, two, values.data(), gradients.data(), 1);
  BOOST_TEST((values == std::vector<float>{0.5F, 0}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace clipping_tests
