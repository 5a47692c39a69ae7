// SPDX-License-Identifier: BSL-1.0
//
// Adam and its relatives: a step by hand, buffers, refused hyper-parameters, averaged weights.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "../../support/optimizer_cases.hpp"
#include "../../support/update_state.hpp"
#include "gradus/core/error.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/optim/update_rule.hpp"

namespace {

using gradus::cpu;
using gradus::index_t;
using namespace gradus::optim;

static_assert(explain_update_rule<adam, double>() && explain_update_rule<adam_w>() && explain_update_rule<rms_prop>());
static_assert(explain_update_rule<adagrad>() && explain_update_rule<lamb>());
static_assert(elementwise_update_rule<adam> && elementwise_update_rule<update<rms_prop>>);
static_assert(!elementwise_update_rule<lamb> && !elementwise_update_rule<update<lamb>>);

template <class Rule>
std::string refusal_of(const Rule& rule) {
  try {
    rule.check();
  } catch (const gradus::configuration_error& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

template <class Rule>
std::string buffers_of(const Rule& rule) {
  cpu device{{.intra_op_threads = 1}};
  gradus_test::update_state<float> state{device, rule, 3};
  std::string names;
  state.visit_buffers([&](std::string_view name, const float* data, index_t count) {
    BOOST_TEST(count == 3);
    names.append(names.empty() ? "" : " ").append(name);
    if (data[0] != 0.0F) {
      names.append("=").append(std::to_string(data[2]).substr(0, 3));
    }
  });
  return names;
}

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

BOOST_AUTO_TEST_SUITE(adaptive_rules)

BOOST_AUTO_TEST_CASE(adam_first_steps_by_hand, *boost::unit_test::tolerance(1e-9)) {
  cpu device{{.intra_op_threads = 1}};
  const std::vector<segment> segments{{"weight", 0, 1, true}, {"bias", 1, 1, false}};
  std::vector<double> values{2.0, 2.0};
  const std::vector<double> gradients{0.5, -0.25};
  adam::state<double> state{device, adam{.beta1 = 0.5, .beta2 = 0.75, .epsilon = 1e-30}, 2};
  // The first step is the learning rate in the direction of the sign.
  state.update(device, segments, values.data(), gradients.data(), {0.1, 0});
  BOOST_TEST(values[0] == 1.9);
  BOOST_TEST(values[1] == 2.1);
  // weight, g = -0.5: m = 0.25 / 2 - 0.25 = -0.125, corrected / 0.75; v is 0.25 again, corrected
  const std::vector<double> others{-0.5, -0.25};
  state.update(device, segments, values.data(), others.data(), {0.1, 1});
  BOOST_TEST(values[0] == 1.9 + 0.1 * (0.125 / 0.75) / 0.5);
  BOOST_TEST(values[1] == 2.2);
}

BOOST_AUTO_TEST_CASE(decay_is_in_the_gradient_of_adam_and_outside_in_adam_w, *boost::unit_test::tolerance(1e-9)) {
  cpu device{{.intra_op_threads = 1}};
  const std::vector<segment> segments{{"weight", 0, 1, true}, {"bias", 1, 1, false}};
  const std::vector<double> gradients{0.0, 1.0};
  std::vector<double> values{2.0, 2.0};
  adam::state<double> inside{device, adam{.epsilon = 1e-30, .weight_decay = 0.5}, 2};
  inside.update(device, segments, values.data(), gradients.data(), 0.1);
  BOOST_TEST(values[0] == 1.9);  // of whatever size: its gradient is divided by itself
  BOOST_TEST(values[1] == 1.9);
  values = {2.0, 2.0};
  adam_w::state<double> outside{device, adam_w{.epsilon = 1e-30, .weight_decay = 0.5}, 2};
  outside.update(device, segments, values.data(), gradients.data(), 0.1);
  BOOST_TEST(values[0] == 1.9);  // 2 - 0.1 * 0.5 * 2
  BOOST_TEST(values[1] == 1.9);
}

BOOST_AUTO_TEST_CASE(states_have_the_buffers_that_they_need) {
  BOOST_TEST(buffers_of(adam{}) == "first_moment second_moment");
  BOOST_TEST(buffers_of(adam_w{.amsgrad = true}) == "first_moment second_moment largest_second_moment");
  BOOST_TEST(buffers_of(rms_prop{}) == "mean_square");
  BOOST_TEST(buffers_of(rms_prop{.momentum = 0.9}) == "mean_square velocity");
  BOOST_TEST(buffers_of(rms_prop{.centered = true}) == "mean_square mean_gradient");
  BOOST_TEST(buffers_of(rms_prop{.momentum = 0.9, .centered = true, .tensorflow = true}) ==
             "mean_square=1.0 mean_gradient velocity");
  BOOST_TEST(buffers_of(adagrad{.initial_accumulator_value = 0.5}) == "sum_of_squares=0.5");
  BOOST_TEST(buffers_of(lamb{}) == "first_moment second_moment");
  BOOST_TEST(buffers_of(update<sgd>{.rule = {.momentum = 0.5}, .average = 0.5}) == "velocity average");
}

BOOST_AUTO_TEST_CASE(bad_hyper_parameters_are_refused) {
  gradus_test::for_each_optimizer(
      [](std::string_view name, const auto& rule) { BOOST_TEST(refusal_of(rule) == "", name); });
  for (const double bad : {-0.1, 1.0, not_a_number, infinity}) {
    BOOST_TEST(contains(refusal_of(adam{.beta1 = bad}), "adam: expected a decay rate in [0, 1), got beta1"));
    BOOST_TEST(contains(refusal_of(adam_w{.beta2 = bad}), "adam_w: expected a decay rate in [0, 1), got beta2"));
    BOOST_TEST(contains(refusal_of(lamb{.beta1 = bad}), "lamb: expected a decay rate in [0, 1), got beta1"));
    BOOST_TEST(contains(refusal_of(rms_prop{.rho = bad}), "rms_prop: expected a decay rate in [0, 1), got rho"));
    BOOST_TEST(contains(refusal_of(rms_prop{.momentum = bad}), "momentum in [0, 1)"));
    BOOST_TEST(contains(refusal_of(update<adam>{.average = bad}), "an average in [0, 1)"));
    BOOST_TEST(contains(refusal_of(update<adam>{.rule = {.beta1 = bad}}), "adam: expected"));
  }
  // 1e-50 is 0 in float
  for (const double bad : {0.0, 1e-50, -1e-8, not_a_number, infinity}) {
    BOOST_TEST(contains(refusal_of(adam{.epsilon = bad}), "a finite epsilon above 0"));
    BOOST_TEST(contains(refusal_of(adam_w{.epsilon = bad}), "a finite epsilon above 0"));
    BOOST_TEST(contains(refusal_of(rms_prop{.epsilon = bad}), "a finite epsilon above 0"));
    BOOST_TEST(contains(refusal_of(adagrad{.epsilon = bad}), "a finite epsilon above 0"));
    BOOST_TEST(contains(refusal_of(lamb{.epsilon = bad}), "a finite epsilon above 0"));
  }
  for (const double bad : {-1e-4, not_a_number, infinity}) {
    BOOST_TEST(contains(refusal_of(adam{.weight_decay = bad}), "a finite weight_decay of at least 0"));
    BOOST_TEST(contains(refusal_of(adam_w{.weight_decay = bad}), "a finite weight_decay of at least 0"));
    BOOST_TEST(contains(refusal_of(rms_prop{.weight_decay = bad}), "a finite weight_decay of at least 0"));
    BOOST_TEST(contains(refusal_of(adagrad{.weight_decay = bad}), "a finite weight_decay of at least 0"));
    BOOST_TEST(contains(refusal_of(lamb{.weight_decay = bad}), "a finite weight_decay of at least 0"));
    BOOST_TEST(contains(refusal_of(adagrad{.lr_decay = bad}), "lr_decay"));
    BOOST_TEST(contains(refusal_of(adagrad{.initial_accumulator_value = bad}), "initial_accumulator_value"));
  }
  cpu device{{.intra_op_threads = 1}};
  BOOST_CHECK_THROW((adam::state<float>{device, adam{.beta1 = 1}, 3}), gradus::configuration_error);
  BOOST_CHECK_THROW((lamb::state<float>{device, lamb{.beta1 = 1}, 3}), gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(bad_steps_are_refused) {
  cpu device{{.intra_op_threads = 1}};
  const std::vector<segment> inside{{"weight", 0, 2, true}};
  const std::vector<segment> outside{{"weight", 1, 2, true}};
  std::vector<double> values{1.0, 1.0};
  const std::vector<double> gradients{1.0, 1.0};
  gradus_test::for_each_optimizer([&]<class Rule>(std::string_view name, const Rule& rule) {
    typename Rule::template state<double> state{device, rule, 2};
    BOOST_TEST_CONTEXT(name) {
      for (const double rate : {-0.1, not_a_number, infinity}) {
        BOOST_CHECK_THROW(state.update(device, inside, values.data(), gradients.data(), rate),
                          gradus::configuration_error);
      }
      BOOST_CHECK_THROW(state.update(device, outside, values.data(), gradients.data(), 0.1), gradus::shape_error);
    }
  });
  BOOST_TEST(values[0] == 1.0);
  BOOST_TEST(values[1] == 1.0);
}

BOOST_AUTO_TEST_CASE(descriptions_tell_rules_apart) {
  std::vector<std::string> all;
  gradus_test::for_each_optimizer([&](std::string_view, const auto& rule) { all.push_back(rule.description()); });
  all.push_back(update<adam>{.average = 0.999}.description());
  all.push_back(update<adam_w>{.average = 0.999}.description());
  all.push_back(update<adam>{.average = 0.5}.description());
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      BOOST_TEST(all[i] != all[j]);
    }
  }
}

BOOST_AUTO_TEST_CASE(averages_are_swapped_with_the_values_of_all_parameters) {
  cpu device{{.intra_op_threads = 1}};
  const std::vector<segment> segments{{"weight", 0, 2, true}};
  gradus_test::update_state<float> state{device, update<sgd>{.average = 0.75}, 2};
  std::vector<float> values{2.0F, 4.0F};
  const std::vector<float> gradients{1.0F, 1.0F};
  state.update(device, segments, values.data(), gradients.data(), {1.0, 0});
  state.update(device, segments, values.data(), gradients.data(), {1.0, 1});
  BOOST_TEST((values == std::vector{0.0F, 2.0F}));
  state->swap_average(values);
  BOOST_TEST((values == std::vector{0.75F, 2.75F}));
  state->swap_average(values);
  BOOST_TEST((values == std::vector{0.0F, 2.0F}));
  std::vector<float> more(3);
  BOOST_CHECK_EXCEPTION(state->swap_average(more), gradus::shape_error, [](const gradus::shape_error& failure) {
    return contains(failure.what(), "the 2 values of the network") &&
           contains(failure.what(), "servers keep the averages");
  });
}

BOOST_AUTO_TEST_SUITE_END()
