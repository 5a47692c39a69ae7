// SPDX-License-Identifier: BSL-1.0
//
// Update rules against a plain reference over many networks, in any grouping, for any number of threads.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "gradus/core/random.hpp"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/sgd.hpp"

namespace {

using gradus::cpu;
using gradus::index_t;
using gradus::optim::lars;
using gradus::optim::segment;
using gradus::optim::sgd;

std::vector<segment> make_segments(const std::vector<index_t>& sizes, index_t gap) {
  std::vector<segment> segments;
  index_t offset = gap;
  for (const index_t size : sizes) {
    segments.push_back({"p" + std::to_string(segments.size()), offset, size, segments.size() % 2 == 0});
    offset += size + gap;
  }
  return segments;
}

template <class Element>
std::vector<Element> make_values(index_t count, std::string_view name) {
  const gradus::random_stream stream{7, name};
  std::vector<Element> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<Element>(stream.normal(i));
  }
  return values;
}

struct reference_state {
  std::vector<double> values;
  std::vector<double> velocity;
};

void reference_step(const sgd& rule, const std::vector<segment>& segments, const std::vector<double>& gradients,
                    double rate, reference_state& state) {
  for (const segment& part : segments) {
    for (auto i = static_cast<std::size_t>(part.offset); i < static_cast<std::size_t>(part.offset + part.size); ++i) {
      const double gradient = gradients[i] + (part.decay ? rule.weight_decay : 0.0) * state.values[i];
      state.velocity[i] = rule.momentum * state.velocity[i] + gradient;
      state.values[i] -= rate * (rule.nesterov ? gradient + rule.momentum * state.velocity[i] : state.velocity[i]);
    }
  }
}

void reference_step(const lars& rule, const std::vector<segment>& segments, const std::vector<double>& gradients,
                    double rate, reference_state& state) {
  for (const segment& part : segments) {
    const auto first = static_cast<std::size_t>(part.offset);
    const auto last = static_cast<std::size_t>(part.offset + part.size);
    double value_norm = 0;
    double gradient_norm = 0;
    for (std::size_t i = first; i < last; ++i) {
      value_norm += state.values[i] * state.values[i];
      gradient_norm += gradients[i] * gradients[i];
    }
    value_norm = std::sqrt(value_norm);
    gradient_norm = std::sqrt(gradient_norm);
    const double decay = part.decay ? rule.weight_decay : 0.0;
    const double local = part.decay && value_norm > 0 && gradient_norm > 0
                             ? rule.trust * value_norm / (gradient_norm + decay * value_norm + rule.epsilon)
                             : 1.0;
    for (std::size_t i = first; i < last; ++i) {
      state.velocity[i] = rule.momentum * state.velocity[i] + rate * local * (gradients[i] + decay * state.values[i]);
      state.values[i] -= state.velocity[i];
    }
  }
}

const std::vector<std::vector<index_t>> networks{{1}, {0, 1, 2, 3},         {17, 8, 9}, {40000, 10, 33000, 7, 1, 16384},
                                                 {},  {16384, 16385, 16383}};

template <class Element, class Rule>
std::vector<Element> train(cpu& device, const Rule& rule, const std::vector<segment>& segments, index_t parameters,
                           bool one_at_a_time) {
  auto values = make_values<Element>(parameters, "values");
  typename Rule::template state<Element> state{device, rule, parameters};
  for (int step = 0; step < 3; ++step) {
    const auto gradients = make_values<Element>(parameters, "gradients" + std::to_string(step));
    const double rate = 0.1 / (1 + step);
    if (one_at_a_time) {
      for (auto part = segments.rbegin(); part != segments.rend(); ++part) {
        state.update(device, {&*part, 1}, values.data(), gradients.data(), rate);
      }
    } else {
      state.update(device, segments, values.data(), gradients.data(), rate);
    }
  }
  return values;
}

template <class Element, class Rule>
void check_rule(const Rule& rule) {
  cpu one{{.intra_op_threads = 1}};
  cpu three{{.intra_op_threads = 3}};
  const double tolerance = sizeof(Element) == 4 ? 2e-6 : 1e-14;
  for (const auto& sizes : networks) {
    for (const index_t gap : {0, 3}) {
      const auto segments = make_segments(sizes, gap);
      const index_t parameters = segments.empty() ? 5 : segments.back().offset + segments.back().size + gap;
      BOOST_TEST_CONTEXT(rule.description() << " on " << segments.size() << " parameters, gap " << gap) {
        const auto result = train<Element>(one, rule, segments, parameters, false);
        BOOST_TEST((train<Element>(three, rule, segments, parameters, false) == result));
        BOOST_TEST((train<Element>(three, rule, segments, parameters, true) == result));
        const auto start = make_values<Element>(parameters, "values");
        reference_state expected{{start.begin(), start.end()}, std::vector<double>(start.size())};
        for (int step = 0; step < 3; ++step) {
          const auto gradients = make_values<Element>(parameters, "gradients" + std::to_string(step));
          reference_step(rule, segments, {gradients.begin(), gradients.end()}, 0.1 / (1 + step), expected);
        }
        double worst = 0;
        for (std::size_t i = 0; i < result.size(); ++i) {
          const double difference = std::abs(static_cast<double>(result[i]) - expected.values[i]);
          worst = std::max(worst, difference / (1 + std::abs(expected.values[i])));
        }
        BOOST_TEST(worst <= tolerance);
      }
    }
  }
}

using elements = std::tuple<float, double>;

}  // namespace

BOOST_AUTO_TEST_SUITE(update_passes)

BOOST_AUTO_TEST_CASE_TEMPLATE(sgd_agrees_with_its_formula, Element, elements) {
  check_rule<Element>(sgd{});
  check_rule<Element>(sgd{.momentum = 0.9, .weight_decay = 1e-4});
  check_rule<Element>(sgd{.momentum = 0.5, .nesterov = true, .weight_decay = 0.1});
  check_rule<Element>(sgd{.momentum = 0, .weight_decay = 0.1});
}

BOOST_AUTO_TEST_CASE_TEMPLATE(lars_agrees_with_its_formula, Element, elements) {
  check_rule<Element>(lars{.trust = 0.1});
}

BOOST_AUTO_TEST_CASE(a_gradient_that_is_not_a_number_stays_visible) {
  cpu device{{.intra_op_threads = 2}};
  const std::vector<segment> segments{{"a", 0, 100, true}};
  auto values = make_values<float>(100, "values");
  auto gradients = make_values<float>(100, "gradients");
  gradients[37] = std::nanf("");
  sgd::state<float> state{device, sgd{.momentum = 0.9}, 100};
  state.update(device, segments, values.data(), gradients.data(), 0.1);
  for (std::size_t i = 0; i < 100; ++i) {
    BOOST_TEST(std::isnan(values[i]) == (i == 37));
  }
}

BOOST_AUTO_TEST_SUITE_END()
