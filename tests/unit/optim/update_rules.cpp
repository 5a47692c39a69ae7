// SPDX-License-Identifier: BSL-1.0
//
// Update rules: values worked out by hand, refused hyper-parameters, and the least that the concept asks for.
#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/optim/lars.hpp"
#include "gradus/optim/sgd.hpp"

namespace {

using gradus::cpu;
using gradus::index_t;
using gradus::optim::lars;
using gradus::optim::segment;
using gradus::optim::sgd;

/// Has what `update_rule` asks for and nothing else.
struct archetype {
  static constexpr std::string_view name = "archetype";
  void check() const {}
  std::string description() const { return "archetype"; }
  template <class Element, class Device>
  struct state {
    state(Device&, const archetype&, index_t) {}
    state(const state&) = delete;
    void update(Device&, std::span<const segment>, Element*, const Element*, const gradus::optim::update_step&) {}
    template <class Visitor>
    void visit_buffers(Visitor&&) {}
  };
};
static_assert(gradus::optim::explain_update_rule<archetype, double>());
static_assert(gradus::optim::update_rule<archetype>);
static_assert(gradus::optim::update_rule<sgd, double>);
static_assert(gradus::optim::update_rule<lars, double>);

struct without_state {
  static constexpr std::string_view name = "without_state";
  void check() const {}
};
static_assert(!gradus::optim::update_rule<without_state>);

template <class Rule>
std::string message_of(const Rule& rule) {
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

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

BOOST_AUTO_TEST_SUITE(update_rules)

BOOST_AUTO_TEST_CASE(sgd_two_steps_by_hand) {
  cpu device{{.intra_op_threads = 1}};
  const std::vector<segment> segments{{"weight", 0, 1, true}, {"bias", 1, 1, false}};
  std::vector<double> values{2.0, 2.0};
  const std::vector<double> gradients{0.5, 0.5};
  sgd::state<double> state{device, sgd{.momentum = 0.5, .weight_decay = 0.25}, 2};
  // weight: g = 0.5 + 0.25 * 2 = 1, v = 1, p = 2 - 0.1 = 1.9; bias: v = 0.5, p = 1.95
  state.update(device, segments, values.data(), gradients.data(), 0.1);
  BOOST_TEST(values[0] == 1.9, boost::test_tools::tolerance(1e-14));
  BOOST_TEST(values[1] == 1.95, boost::test_tools::tolerance(1e-14));
  // weight: g = 0.5 + 0.475 = 0.975, v = 1.475, p = 1.9 - 0.295 = 1.605 at rate 0.2; bias: v = 0.75, p = 1.8
  state.update(device, segments, values.data(), gradients.data(), 0.2);
  BOOST_TEST(values[0] == 1.605, boost::test_tools::tolerance(1e-14));
  BOOST_TEST(values[1] == 1.8, boost::test_tools::tolerance(1e-14));
}

BOOST_AUTO_TEST_CASE(sgd_nesterov_by_hand) {
  cpu device{{.intra_op_threads = 1}};
  const std::vector<segment> segments{{"weight", 0, 1, true}};
  std::vector<double> values{1.0};
  const std::vector<double> gradients{1.0};
  sgd::state<double> state{device, sgd{.momentum = 0.5, .nesterov = true, .weight_decay = 0}, 1};
  state.update(device, segments, values.data(), gradients.data(), 0.1);  // v = 1, p = 1 - 0.1 * (1 + 0.5)
  BOOST_TEST(values[0] == 0.85, boost::test_tools::tolerance(1e-14));
  state.update(device, segments, values.data(), gradients.data(), 0.1);  // v = 1.5, p -= 0.1 * (1 + 0.75)
  BOOST_TEST(values[0] == 0.675, boost::test_tools::tolerance(1e-14));
}

BOOST_AUTO_TEST_CASE(sgd_without_momentum_keeps_no_velocity) {
  cpu device{{.intra_op_threads = 1}};
  sgd::state<double> state{device, sgd{.momentum = 0, .weight_decay = 0}, 1};
  int buffers = 0;
  state.visit_buffers([&](std::string_view, double*, index_t) { ++buffers; });
  BOOST_TEST(buffers == 0);
  std::vector<double> values{1.0};
  const std::vector<double> gradients{2.0};
  const std::vector<segment> segments{{"weight", 0, 1, true}};
  state.update(device, segments, values.data(), gradients.data(), 0.25);
  state.update(device, segments, values.data(), gradients.data(), 0.25);
  BOOST_TEST(values[0] == 0.0);
}

BOOST_AUTO_TEST_CASE(lars_one_step_by_hand) {
  cpu device{{.intra_op_threads = 1}};
  const std::vector<segment> segments{{"weight", 0, 2, true}, {"bias", 2, 1, false}, {"zero", 3, 1, true}};
  std::vector<double> values{3.0, 4.0, 1.0, 0.0};           // |weight| = 5
  const std::vector<double> gradients{0.0, 2.0, 1.0, 1.0};  // |gradient| = 2
  lars::state<double> state{device, lars{.momentum = 0.5, .weight_decay = 0.1, .trust = 0.01, .epsilon = 0}, 4};
  // local = 0.01 * 5 / (2 + 0.1 * 5) = 0.02; v = 2 * 0.02 * (g + 0.1 * p) = 0.04 * (0.3, 2.4)
  state.update(device, segments, values.data(), gradients.data(), 2.0);
  BOOST_TEST(values[0] == 3.0 - 0.012, boost::test_tools::tolerance(1e-14));
  BOOST_TEST(values[1] == 4.0 - 0.096, boost::test_tools::tolerance(1e-14));
  BOOST_TEST(values[2] == -1.0, boost::test_tools::tolerance(1e-14));
  BOOST_TEST(values[3] == -2.0, boost::test_tools::tolerance(1e-14));
}

BOOST_AUTO_TEST_CASE(velocity_is_offered_to_checkpoints) {
  cpu device{{.intra_op_threads = 1}};
  sgd::state<float> state{device, sgd{.momentum = 0.9}, 3};
  const std::vector<segment> segments{{"weight", 0, 3, true}};
  std::vector<float> values{0, 0, 0};
  const std::vector<float> gradients{1, 2, 3};
  state.update(device, segments, values.data(), gradients.data(), 1.0);
  std::vector<float> velocity;
  state.visit_buffers([&](std::string_view name, float* data, index_t count) {
    BOOST_TEST(name == "velocity");
    velocity.assign(data, data + count);
  });
  BOOST_TEST(velocity == gradients, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(bad_hyper_parameters_are_refused) {
  BOOST_TEST(message_of(sgd{}) == "");
  BOOST_TEST((sgd{} == sgd{.momentum = 0, .nesterov = false, .weight_decay = 0}));
  for (const double momentum : {-0.1, 1.0, 2.0, not_a_number, infinity}) {
    BOOST_TEST(contains(message_of(sgd{.momentum = momentum}), "sgd: expected momentum in [0, 1), got momentum"));
    BOOST_TEST(contains(message_of(lars{.momentum = momentum}), "lars: expected momentum in [0, 1)"));
  }
  for (const double decay : {-1e-4, not_a_number, infinity}) {
    BOOST_TEST(contains(message_of(sgd{.weight_decay = decay}), "a finite weight_decay of at least 0"));
    BOOST_TEST(contains(message_of(lars{.weight_decay = decay}), "a finite weight_decay of at least 0"));
  }
  BOOST_TEST(contains(message_of(sgd{.momentum = 0, .nesterov = true}), "Hint: set .momentum = 0.9"));
  for (const double trust : {0.0, -1.0, not_a_number, infinity}) {
    BOOST_TEST(contains(message_of(lars{.trust = trust}), "a finite trust above 0"));
  }
  BOOST_TEST(contains(message_of(lars{.epsilon = -1}), "epsilon"));
  cpu device{{.intra_op_threads = 1}};
  BOOST_CHECK_THROW((sgd::state<float>{device, sgd{.momentum = 1}, 3}), gradus::configuration_error);
  BOOST_CHECK_THROW((lars::state<float>{device, lars{.momentum = 1}, 3}), gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(bad_steps_are_refused) {
  cpu device{{.intra_op_threads = 1}};
  sgd::state<double> state{device, sgd{}, 2};
  lars::state<double> other{device, lars{}, 2};
  const std::vector<segment> inside{{"weight", 0, 2, true}};
  std::vector<double> values{1.0, 1.0};
  const std::vector<double> gradients{1.0, 1.0};
  for (const double rate : {-0.1, not_a_number, infinity}) {
    BOOST_CHECK_EXCEPTION(state.update(device, inside, values.data(), gradients.data(), rate),
                          gradus::configuration_error,
                          [](const auto& error) { return contains(error.what(), "Hint: check the learning-rate"); });
    BOOST_CHECK_THROW(other.update(device, inside, values.data(), gradients.data(), rate), gradus::configuration_error);
  }
  for (const segment& outside : {segment{"w", 1, 2, true}, segment{"w", -1, 1, true}, segment{"w", 0, -1, true},
                                 segment{"w", 1, std::numeric_limits<index_t>::max(), true}}) {
    const std::vector<segment> segments{outside};
    BOOST_CHECK_THROW(state.update(device, segments, values.data(), gradients.data(), 0.1), gradus::shape_error);
    BOOST_CHECK_THROW(other.update(device, segments, values.data(), gradients.data(), 0.1), gradus::shape_error);
  }
  BOOST_TEST(values[0] == 1.0);
}

BOOST_AUTO_TEST_CASE(descriptions_tell_rules_apart) {
  BOOST_TEST(sgd{}.description() == sgd{}.description());
  BOOST_TEST(sgd{}.description() != sgd{.nesterov = true}.description());
  BOOST_TEST(sgd{}.description() != sgd{.momentum = 0.9000000000000001}.description());
  BOOST_TEST(lars{}.description() != lars{.trust = 0.002}.description());
}

BOOST_AUTO_TEST_SUITE_END()
