// SPDX-License-Identifier: BSL-1.0
//
// The scale of a loss: what steps do to it, gradients that are divided by it, steps that are skipped, what is saved.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "../../support/update_state.hpp"
#include "gradus/core/error.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"

namespace {

using gradus::cpu;
using gradus::index_t;
using gradus::optim::lars;
using gradus::optim::loss_scaling;
using gradus::optim::segment;
using gradus::optim::sgd;
using gradus::optim::update;
using gradus_test::update_state;

/// The numbers of a scale after steps that are good ('+') or are not finite ('-').
struct scale_history {
  double scale;
  double good_steps;
  double skipped_steps;
  friend bool operator==(const scale_history&, const scale_history&) = default;
};
scale_history after(const loss_scaling& options, std::string_view steps) {
  double numbers[4] = {options.initial, 0, 0, 0};
  for (const char step : steps) {
    numbers[3] = step == '-' ? 1 : 0;
    gradus::optim::next_loss_scale(options, numbers);
    BOOST_TEST(numbers[3] == 0.0);
  }
  return {numbers[0], numbers[1], numbers[2]};
}

std::string refusal_of(const loss_scaling& options) {
  try {
    update<sgd>{.rule = {}, .loss_scaling = options}.check();
  } catch (const gradus::configuration_error& failure) {
    return failure.what();
  }
  return "";
}

const std::vector<segment> two_segments{{"weight", 0, 37, true}, {"bias", 48, 5, false}};
constexpr index_t flat_size = 64;

std::vector<float> some_numbers(float first) {
  std::vector<float> result(flat_size);
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = first * std::sin(static_cast<float>(i + 1));
  }
  return result;
}

std::vector<float> times(std::vector<float> values, float factor) {
  for (float& each : values) {
    each *= factor;
  }
  return values;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(loss_scales)

BOOST_AUTO_TEST_CASE(good_steps_make_the_scale_larger_and_others_smaller) {
  const loss_scaling options{
      .initial = 64, .growth = 4, .backoff = 0.25, .growth_interval = 3, .smallest = 2, .largest = 1000};
  BOOST_TEST((after(options, "++") == scale_history{64, 2, 0}));
  BOOST_TEST((after(options, "+++") == scale_history{256, 0, 0}));
  BOOST_TEST((after(options, "++-") == scale_history{16, 0, 1}));
  BOOST_TEST((after(options, "++-++") == scale_history{16, 2, 1}));  // counts anew
  BOOST_TEST((after(options, "++-+++") == scale_history{64, 0, 1}));
  BOOST_TEST((after(options, "++++++") == scale_history{1000, 0, 0}));  // the largest
  BOOST_TEST((after(options, "-----") == scale_history{2, 0, 5}));      // the smallest
}

BOOST_AUTO_TEST_CASE(the_defaults_are_those_of_grad_scaler) {
  BOOST_TEST((after({}, std::string(1999, '+')) == scale_history{65536, 1999, 0}));
  BOOST_TEST((after({}, std::string(2000, '+')) == scale_history{131072, 0, 0}));
  BOOST_TEST((after({}, "-") == scale_history{32768, 0, 1}));
}

BOOST_AUTO_TEST_CASE(a_scale_that_was_chosen_outside_the_limits_stays) {
  BOOST_TEST((after({.initial = 0.5}, "-") == scale_history{0.5, 0, 1}));
  BOOST_TEST((after({.initial = 0x1p30, .growth_interval = 1}, "+") == scale_history{0x1p30, 0, 0}));
}

BOOST_AUTO_TEST_CASE(a_fixed_scale_stays_and_counts) {
  const loss_scaling options{.initial = 128, .dynamic = false, .growth_interval = 2};
  BOOST_TEST((after(options, "+++-++") == scale_history{128, 2, 1}));
}

BOOST_AUTO_TEST_CASE(options_that_make_no_sense_are_refused) {
  constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinite = std::numeric_limits<double>::infinity();
  BOOST_TEST(refusal_of({}) == "");
  const auto says = [](const loss_scaling& options, std::string_view part) {
    const std::string message = refusal_of(options);
    BOOST_TEST(message.find(part) != std::string::npos, "'" << part << "' is not in: " << message);
  };
  for (const double bad : {0.0, -1.0, not_a_number, infinite}) {
    says({.initial = bad}, "initial");
    says({.smallest = bad}, "smallest");
    says({.largest = bad}, "largest");
  }
  for (const double bad : {1.0, 0.5, not_a_number, infinite}) {
    says({.growth = bad}, "growth above 1");
  }
  for (const double bad : {0.0, 1.0, not_a_number}) {
    says({.backoff = bad}, "backoff");
  }
  says({.growth_interval = 0}, "growth_interval of at least 1 step");
  says({.smallest = 8, .largest = 4}, "not below the smallest");
  BOOST_CHECK_THROW((update<sgd>{.rule = {.momentum = 2}}.check()), gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(descriptions_tell_scales_and_rules_apart) {
  const update<sgd> one{.loss_scaling = {}};
  BOOST_TEST(one.description() != (update<sgd>{.rule = {.momentum = 0.5}, .loss_scaling = {}}.description()));
  BOOST_TEST(one.description() != (update<sgd>{.loss_scaling = {.initial = 2}}.description()));
  BOOST_TEST(one.description() != (update<sgd>{.loss_scaling = {.dynamic = false}}.description()));
  BOOST_TEST(one.description() != (update<lars>{.loss_scaling = {}}.description()));
}

// Scaled by a power of two, with decay and momentum: the same bits as without a scale.
using rules = std::tuple<sgd, lars>;
BOOST_AUTO_TEST_CASE_TEMPLATE(a_scaled_step_has_the_bits_of_one_without_a_scale, Rule, rules) {
  cpu device{{.intra_op_threads = 2}};
  const Rule rule{.momentum = 0.9, .weight_decay = 0.01};
  typename Rule::template state<float> plain{device, rule, flat_size};
  update_state<float> scaled{device, update<Rule>{.rule = rule, .loss_scaling = {.initial = 256, .growth_interval = 2}},
                             flat_size};
  std::vector<float> values = some_numbers(1);
  std::vector<float> others = values;
  for (int step = 0; step < 5; ++step) {
    const std::vector<float> gradients = some_numbers(0.1F * static_cast<float>(step + 1));
    plain.update(device, two_segments, values.data(), gradients.data(), 0.05);
    BOOST_TEST(scaled->scale().factor == std::ldexp(256, step / 2));
    const std::vector<float> multiplied = times(gradients, static_cast<float>(scaled->scale().factor));
    scaled.update(device, two_segments, others.data(), multiplied.data(), 0.05);
    BOOST_TEST((values == others));
  }
  BOOST_TEST(values[0] != some_numbers(1)[0]);
}

BOOST_AUTO_TEST_CASE(a_step_that_is_not_finite_changes_nothing_but_the_scale) {
  cpu device{{.intra_op_threads = 2}};
  update_state<float> state{device, update<sgd>{.rule = {.momentum = 0.5}, .loss_scaling = {.initial = 8}}, flat_size};
  std::vector<float> values = some_numbers(1);
  state.update(device, two_segments, values.data(), some_numbers(1).data(), 0.1);
  const auto velocities = [&] {
    std::vector<float> result;
    state.visit_buffers([&](std::string_view, float* data, index_t count) { result.assign(data, data + count); });
    return result;
  };
  const std::vector<float> values_before = values;
  const std::vector<float> velocities_before = velocities();
  index_t skipped = 0;
  // First and last, in vectors and behind them, of both segments.
  for (const std::size_t index : {0U, 5U, 31U, 32U, 36U, 48U, 52U}) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      std::vector<float> gradients = some_numbers(1);
      gradients[index] = bad;
      const double before = state->scale().factor;
      state.update(device, two_segments, values.data(), gradients.data(), 0.1);
      BOOST_TEST((values == values_before), "index " << index << ", " << bad);
      BOOST_TEST((velocities() == velocities_before));
      BOOST_TEST(state->report()->skipped_steps == ++skipped);
      BOOST_TEST(state->scale().factor == std::max(1.0, before / 2));
    }
  }
  std::vector<float> gradients = some_numbers(3e38F);  // large, and nothing between the segments counts
  gradients[40] = NAN;
  gradients[60] = INFINITY;
  state.update(device, two_segments, values.data(), gradients.data(), 1e-30);
  BOOST_TEST(state->report()->skipped_steps == skipped);
  BOOST_TEST(state->report()->good_steps == 1);
  BOOST_TEST((velocities() != velocities_before));
}

// Gradients that arrive in parts: one bad part skips the step of all.
BOOST_AUTO_TEST_CASE(the_step_is_decided_by_all_parts) {
  cpu device{{.intra_op_threads = 1}};
  const std::span<const segment> all{two_segments};
  for (const std::size_t bad : {0U, 48U}) {
    update_state<float> state{device, update<sgd>{.loss_scaling = {}}, flat_size};
    std::vector<float> values = some_numbers(1);
    std::vector<float> gradients = some_numbers(1);
    gradients[bad] = INFINITY;
    state->test(all.subspan(0, 1), gradients.data());
    state->test(all.subspan(1, 1), gradients.data());
    state->use_totals();
    state->update(all, values.data(), gradients.data(), 0.1);
    BOOST_TEST((values == some_numbers(1)));
    BOOST_TEST(state->report()->skipped_steps == 1);
  }
}

// What visit_buffers gives is all that a state needs to go on where another one was.
BOOST_AUTO_TEST_CASE(a_state_goes_on_from_saved_buffers) {
  cpu device{{.intra_op_threads = 1}};
  const update<sgd> rule{.rule = {.momentum = 0.9}, .loss_scaling = {.initial = 1024, .growth_interval = 4}};
  const auto steps = [&](update_state<float>& state, std::vector<float>& values, int first, int last) {
    for (int step = first; step < last; ++step) {
      std::vector<float> gradients =
          times(some_numbers(static_cast<float>(step)), static_cast<float>(state->scale().factor));
      gradients[3] = step % 7 == 5 ? INFINITY : gradients[3];
      state.update(device, two_segments, values.data(), gradients.data(), 0.01);
    }
  };
  update_state<float> whole{device, rule, flat_size};
  std::vector<float> values = some_numbers(1);
  steps(whole, values, 0, 8);
  std::vector<std::vector<double>> saved;
  std::vector<std::string> names;
  whole.visit_buffers([&](std::string_view name, const auto* data, index_t count) {
    names.emplace_back(name);
    saved.emplace_back(data, data + count);
  });
  BOOST_TEST((names == std::vector<std::string>{"velocity", "loss_scale"}));
  BOOST_TEST((saved.back() == std::vector<double>{1024, 2, 1}));

  update_state<float> restored{device, rule, flat_size};
  std::vector<float> others = values;
  std::size_t next = 0;
  restored.visit_buffers([&](std::string_view, auto* data, index_t count) {
    BOOST_REQUIRE(saved[next].size() == static_cast<std::size_t>(count));
    for (const double number : saved[next++]) {
      *data++ = static_cast<std::remove_pointer_t<decltype(data)>>(number);
    }
  });
  steps(whole, values, 8, 15);
  steps(restored, others, 8, 15);
  BOOST_TEST((values == others));
  BOOST_TEST(whole->report()->scale == restored->report()->scale);
  BOOST_TEST(whole->report()->good_steps == restored->report()->good_steps);
  BOOST_TEST(whole->report()->skipped_steps == restored->report()->skipped_steps);
  BOOST_TEST(restored->report()->skipped_steps == 2);
}

BOOST_AUTO_TEST_SUITE_END()
