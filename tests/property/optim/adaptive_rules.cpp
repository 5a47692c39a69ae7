// SPDX-License-Identifier: BSL-1.0
//
// Rules that count their updates: any grouping, parts, positions and threads give the same bits; steps that a loss
// scale skips do not count; states continue from saved buffers.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "../../support/optimizer_cases.hpp"
#include "../../support/update_state.hpp"
#include "gradus/core/random.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/optim/update_rule.hpp"

namespace {

using gradus::cpu;
using gradus::index_t;
using gradus::optim::lamb;
using gradus::optim::segment;
using gradus::optim::sgd;
using gradus::optim::update;
using gradus_test::update_state;

using elements = std::tuple<float, double>;

/// Sizes around packets and around tasks of 16384 elements, with gaps.
struct network {
  std::vector<segment> segments;
  index_t size = 0;
};
network make_network(const std::vector<index_t>& sizes, index_t gap) {
  network result{{}, gap};
  for (const index_t size : sizes) {
    result.segments.push_back({"p", result.size, size, result.segments.size() % 3 != 1});
    result.size += size + gap;
  }
  return result;
}
const std::vector<network>& networks() {
  static const std::vector<network> all{make_network({1}, 0), make_network({0, 1, 2, 3, 4, 5, 7, 8, 9, 17}, 1),
                                        make_network({16385, 10, 33000, 7, 1, 16384}, 3), make_network({}, 5)};
  return all;
}

template <class Element>
std::vector<Element> numbers(index_t count, std::string_view name, double factor = 1) {
  const gradus::random_stream stream{7, name};
  std::vector<Element> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<Element>(factor * stream.normal(i));
  }
  return values;
}

/// A list of calls of update that make one step.
using calls = std::vector<std::vector<segment>>;

calls one_by_one_backward(const std::vector<segment>& segments) {
  calls result;
  for (auto part = segments.rbegin(); part != segments.rend(); ++part) {
    result.push_back({*part});
  }
  return result;
}

/// As ranks and servers do: parts of parameters of `length` elements.
calls in_parts(const std::vector<segment>& segments, index_t length) {
  calls result;
  for (const segment& part : segments) {
    for (index_t begin = 0; begin < part.size; begin += length) {
      result.push_back({{part.name, part.offset + begin, std::min(length, part.size - begin), part.decay}});
    }
  }
  return result;
}

/// The values and all buffers after three steps.
template <class Element, class Rule>
std::vector<Element> train(cpu& device, const Rule& rule, index_t size, const calls& step_calls) {
  auto values = numbers<Element>(size, "values");
  update_state<Element> state{device, rule, size};
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto gradients = numbers<Element>(size, "gradients" + std::to_string(step));
    for (const auto& segments : step_calls) {
      state.update(device, segments, values.data(), gradients.data(), {0.1 / static_cast<double>(1 + step), step});
    }
  }
  state.visit_buffers(
      [&](std::string_view, const Element* data, index_t count) { values.insert(values.end(), data, data + count); });
  return values;
}

template <class Element, class Rule>
void check_same_bits(std::string_view name, const Rule& rule) {
  cpu one{{.intra_op_threads = 1}};
  cpu three{{.intra_op_threads = 3}};
  for (const network& net : networks()) {
    BOOST_TEST_CONTEXT(name << " on " << net.segments.size() << " parameters") {
      const auto want = train<Element>(one, rule, net.size, {net.segments});
      BOOST_TEST((train<Element>(three, rule, net.size, {net.segments}) == want));
      BOOST_TEST((train<Element>(three, rule, net.size, one_by_one_backward(net.segments)) == want));
      if constexpr (gradus::optim::elementwise_update_rule<Rule>) {
        BOOST_TEST((train<Element>(one, rule, net.size, in_parts(net.segments, 1)) == want));
        BOOST_TEST((train<Element>(three, rule, net.size, in_parts(net.segments, 1001)) == want));
      }
      const auto start = numbers<Element>(net.size, "values");
      bool only_segments = true;
      for (index_t i = 0; i < net.size; ++i) {
        const bool inside = std::any_of(net.segments.begin(), net.segments.end(), [&](const segment& part) {
          return i >= part.offset && i < part.offset + part.size;
        });
        const auto at = static_cast<std::size_t>(i);
        only_segments = only_segments && (want[at] != start[at]) == inside;
      }
      BOOST_TEST(only_segments, "all elements of segments change, and no others");
    }
  }
}

/// Calls body(name, rule) for all rules.
template <class Body>
void for_each_rule(const Body& body) {
  gradus_test::for_each_optimizer(body);
  body("averaged sgd", gradus_test::averaged_sgd());
  body("averaged lamb", update<lamb>{.average = 0.999});
}

template <class Element>
std::vector<Element> times(std::vector<Element> values, double factor) {
  for (Element& each : values) {
    each = static_cast<Element>(each * factor);
  }
  return values;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(adaptive_rules)

BOOST_AUTO_TEST_CASE_TEMPLATE(grouping_parts_and_threads_change_no_bit, Element, elements) {
  for_each_rule([](std::string_view name, const auto& rule) { check_same_bits<Element>(name, rule); });
}

// The definition, over whole parameters of many sizes.
BOOST_AUTO_TEST_CASE_TEMPLATE(lamb_agrees_with_its_formula, Element, elements) {
  cpu device{{.intra_op_threads = 3}};
  const lamb rule{.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-3, .weight_decay = 0.1};
  for (const network& net : networks()) {
    const auto have = train<Element>(device, rule, net.size, {net.segments});
    const auto start = numbers<Element>(net.size, "values");
    std::vector<double> want{start.begin(), start.end()};
    std::vector<double> m(want.size());
    std::vector<double> v(want.size());
    for (int step = 0; step < 3; ++step) {
      const auto gradients = numbers<Element>(net.size, "gradients" + std::to_string(step));
      for (const segment& part : net.segments) {
        std::vector<double> direction(want.size());
        double values_squared = 0;
        double direction_squared = 0;
        for (auto i = static_cast<std::size_t>(part.offset); i < static_cast<std::size_t>(part.offset + part.size);
             ++i) {
          const auto g = static_cast<double>(gradients[i]);
          m[i] = rule.beta1 * m[i] + (1 - rule.beta1) * g;
          v[i] = rule.beta2 * v[i] + (1 - rule.beta2) * g * g;
          direction[i] = m[i] / (1 - std::pow(rule.beta1, step + 1)) /
                             (std::sqrt(v[i] / (1 - std::pow(rule.beta2, step + 1))) + rule.epsilon) +
                         (part.decay ? rule.weight_decay * want[i] : 0.0);
          values_squared += want[i] * want[i];
          direction_squared += direction[i] * direction[i];
        }
        const double ratio = part.decay && part.size > 0 ? std::sqrt(values_squared / direction_squared) : 1.0;
        for (auto i = static_cast<std::size_t>(part.offset); i < static_cast<std::size_t>(part.offset + part.size);
             ++i) {
          want[i] -= 0.1 / (1 + step) * ratio * direction[i];
        }
      }
    }
    double worst = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(have[i]) - want[i]) / (1 + std::abs(want[i])));
    }
    BOOST_TEST(worst <= (sizeof(Element) == 4 ? 1e-6 : 1e-14));
  }
}

BOOST_AUTO_TEST_CASE(the_trust_ratio_of_zeros_is_1) {
  cpu device{{.intra_op_threads = 1}};
  lamb::state<double> state{device, lamb{.weight_decay = 0}, 4};
  std::vector<double> values{0.0, 0.0, 3.0, -2.0};
  const std::vector<double> gradients{1.0, -1.0, 0.0, 0.0};
  const std::vector<segment> segments{{"of value 0", 0, 2, true}, {"without gradient", 2, 2, true}};
  state.update(device, segments, values.data(), gradients.data(), 0.5);
  BOOST_TEST(values[0] == -0.5, boost::test_tools::tolerance(1e-5));
  BOOST_TEST(values[1] == 0.5, boost::test_tools::tolerance(1e-5));
  BOOST_TEST(values[2] == 3.0);
  BOOST_TEST(values[3] == -2.0);
}

// Gradients multiplied by a power of two; steps 1 and 4 of the trainer are skipped. The rule makes the bits of a
// training that never had these steps: bias corrections, decays of the rate and averages do not advance.
BOOST_AUTO_TEST_CASE_TEMPLATE(skipped_steps_do_not_count, Element, elements) {
  cpu device{{.intra_op_threads = 2}};
  const network net = make_network({37, 5, 64}, 3);
  for_each_rule([&]<class Rule>(std::string_view name, const Rule& rule) {
    update_state<Element> plain{device, rule, net.size};
    gradus::optim::update<gradus::optim::rule_of<Rule>> around{};
    if constexpr (requires { rule.average; }) {
      around = rule;
    } else {
      around.rule = rule;
    }
    around.loss_scaling = {.initial = 256, .growth_interval = 2};
    update_state<Element> scaled{device, around, net.size};
    auto values = numbers<Element>(net.size, "values");
    auto others = values;
    std::uint64_t made = 0;
    for (std::uint64_t step = 0; step < 7; ++step) {
      const auto gradients = numbers<Element>(net.size, "gradients" + std::to_string(step));
      auto multiplied = times(gradients, scaled->scale().factor);
      if (step == 1 || step == 4) {
        multiplied[44] = std::numeric_limits<Element>::infinity();
      } else {
        plain.update(device, net.segments, values.data(), gradients.data(), {0.05, made++});
      }
      scaled.update(device, net.segments, others.data(), multiplied.data(), {0.05, step});
      BOOST_TEST((values == others), name << ", step " << step);
    }
    BOOST_TEST(scaled->report()->skipped_steps == 2);
    BOOST_TEST((values != numbers<Element>(net.size, "values")));
  });
}

BOOST_AUTO_TEST_CASE(a_state_goes_on_from_saved_buffers) {
  cpu device{{.intra_op_threads = 1}};
  const network net = make_network({37, 5, 64}, 3);
  for_each_rule([&]<class Rule>(std::string_view name, const Rule& rule) {
    const auto steps = [&](auto& state, std::vector<float>& values, std::uint64_t first, std::uint64_t last) {
      for (std::uint64_t step = first; step < last; ++step) {
        const auto gradients = numbers<float>(net.size, "gradients" + std::to_string(step));
        state.update(device, net.segments, values.data(), gradients.data(), {0.05, step});
      }
    };
    update_state<float> whole{device, rule, net.size};
    auto values = numbers<float>(net.size, "values");
    steps(whole, values, 0, 3);
    std::vector<std::vector<float>> saved;
    whole.visit_buffers([&](std::string_view, float* data, index_t count) { saved.emplace_back(data, data + count); });
    update_state<float> restored{device, rule, net.size};
    std::size_t next = 0;
    restored.visit_buffers([&](std::string_view, float* data, index_t count) {
      BOOST_REQUIRE(saved[next].size() == static_cast<std::size_t>(count));
      std::copy(saved[next].begin(), saved[next].end(), data);
      ++next;
    });
    auto others = values;
    steps(whole, values, 3, 6);
    steps(restored, others, 3, 6);
    BOOST_TEST((values == others), name);
  });
}

BOOST_AUTO_TEST_CASE(a_gradient_that_is_not_a_number_stays_visible) {
  cpu device{{.intra_op_threads = 2}};
  const network net = make_network({100}, 0);
  for_each_rule([&]<class Rule>(std::string_view name, const Rule& rule) {
    auto values = numbers<float>(net.size, "values");
    auto gradients = numbers<float>(net.size, "gradients");
    gradients[37] = std::numeric_limits<float>::quiet_NaN();
    update_state<float> state{device, rule, net.size};
    for (std::uint64_t step = 0; step < 2; ++step) {
      state.update(device, net.segments, values.data(), gradients.data(), {0.1, step});
      gradients[37] = 1;  // it is in the state now
    }
    BOOST_TEST(std::isnan(values[37]), name);
    if constexpr (gradus::optim::elementwise_update_rule<Rule>) {
      BOOST_TEST(std::count_if(values.begin(), values.end(), [](float each) { return std::isnan(each); }) == 1, name);
    }
  });
}

BOOST_AUTO_TEST_SUITE_END()
