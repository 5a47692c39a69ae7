// SPDX-License-Identifier: BSL-1.0
//
// The passes of update rules against their formulas: segments of any length at any offset, all rules, with a scale of
// the loss. See tests/support/sweep.hpp.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string_view>
#include <vector>

#include "../../support/update_state.hpp"
#include "gradus/optim/cpu_passes.hpp"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/loss_scaling.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"
#include "support.hpp"

namespace {

using namespace kernel_sweep;
using gradus::optim::segment;

/// Parameters in a buffer, with gaps between some of them, in any order; not all need be updated.
struct parameters {
  std::vector<segment> segments;
  index_t size = 0;
};

parameters draw_parameters(sweep_case& test) {
  parameters result;
  const index_t count = test.between("segments", 0, 6);
  for (index_t i = 0; i < count; ++i) {
    result.size += test.once_in(2) ? 0 : test.below(5);
    // A task has 16384 elements, of one segment or of many.
    const index_t size = test.once_in(60) ? 16384 * (1 + test.below(2)) - 4 + test.below(9) : test.below(40);
    result.segments.push_back({.name = "p",
                               .offset = test.note("offset", result.size),
                               .size = test.note("size", size),
                               .decay = test.flip("decay")});
    result.size += size;
  }
  result.size += test.once_in(2) ? 0 : test.below(5);
  for (std::size_t i = result.segments.size(); i > 1; --i) {
    std::swap(result.segments[i - 1], result.segments[static_cast<std::size_t>(test.below(static_cast<index_t>(i)))]);
  }
  return result;
}

/// Numbers in the segments, NaN elsewhere.
template <class Element>
guarded_array<Element> draw_buffer(sweep_case& test, const parameters& all, double factor = 1) {
  auto buffer = test.array<Element>(all.size);
  for (const segment& part : all.segments) {
    for (index_t i = part.offset; i < part.offset + part.size; ++i) {
      buffer[static_cast<std::size_t>(i)] = static_cast<Element>(test.value() * factor);
    }
  }
  return buffer;
}

/// What a step makes of one element, and how far roundings may take it from that.
struct stepped {
  double value = 0;
  double velocity = 0;
  double allowed = 0;
};

/// momentum_pass, as optim/cpu_passes.hpp writes it. Without a velocity that is 0.
stepped momentum_step(const gradus::optim::momentum_pass& pass, bool decays, double p, double g, double v,
                      double inexact) {
  const double decay = decays ? pass.weight_decay : 0.0;
  const double unscaled = g / pass.loss_scale.factor;
  const double gradient = pass.gradient_scale * (unscaled + decay * p);
  stepped result;
  result.velocity = pass.momentum * v + gradient;
  result.value =
      p - pass.learning_rate * (pass.nesterov ? gradient + pass.momentum * result.velocity : result.velocity);
  result.allowed =
      inexact *
      (std::abs(p) + (1 + pass.learning_rate) *
                         (std::abs(v) + std::abs(pass.gradient_scale) * (std::abs(unscaled) + decay * std::abs(p))));
  return result;
}

/// Compares what a step wrote: in the segments with expected(part, i), elsewhere nothing may have changed.
template <class Element, class Expected>
void check_step(sweep_case& test, const parameters& all, const guarded_array<Element>& values,
                std::vector<double> values_before, const guarded_array<Element>& velocities,
                std::vector<double> velocities_before, const Expected& expected) {
  std::vector<double> allowed(values_before.size());
  std::vector<double> values_after = values_before;
  std::vector<double> velocities_after = velocities_before;
  for (const segment& part : all.segments) {
    for (auto i = static_cast<std::size_t>(part.offset); i < static_cast<std::size_t>(part.offset + part.size); ++i) {
      const stepped step = expected(part, i);
      values_after[i] = step.value;
      velocities_after[i] = step.velocity;
      allowed[i] = step.allowed;
    }
  }
  all_agree(test, "values", values, values_after, [&](std::size_t i) { return allowed[i]; });
  if (velocities.size() == allowed.size()) {
    all_agree(test, "velocities", velocities, velocities_after, [&](std::size_t i) { return allowed[i]; });
  }
}

template <class Element>
void check_momentum(sweep_case& test) {
  cpu& device = device_of(test);
  const parameters all = draw_parameters(test);
  const bool has_velocity = !test.flip("no velocity", 4);
  const gradus::optim::momentum_pass pass{.learning_rate = test.flip("rate 1") ? 1.0 : 0.1,
                                          .momentum = has_velocity && !test.flip("momentum 0", 8) ? 0.9 : 0.0,
                                          .weight_decay = test.flip("weight decay") ? 0.25 : 0.0,
                                          .gradient_scale = test.flip("gradient scale", 3) ? 0.01 : 1.0,
                                          .nesterov = has_velocity && test.flip("nesterov"),
                                          .loss_scale = {.factor = test.flip("loss scale", 3) ? 1024.0 : 1.0}};
  const auto values = draw_buffer<Element>(test, all);
  const auto gradients = draw_buffer<Element>(test, all, pass.loss_scale.factor);
  auto velocities = has_velocity ? draw_buffer<Element>(test, all) : test.array<Element>(0);
  const std::vector<double> values_before = doubles(values);
  const std::vector<double> velocities_before = doubles(velocities);
  apply_momentum(device, all.segments, pass, values.data(), gradients.data(),
                 has_velocity ? velocities.data() : nullptr);
  check_step(test, all, values, values_before, velocities, has_velocity ? velocities_before : values_before,
             [&](const segment& part, std::size_t i) {
               return momentum_step(pass, part.decay, values_before[i], static_cast<double>(gradients[i]),
                                    has_velocity ? velocities_before[i] : 0.0, 12 * rounding<Element>);
             });
}

template <class Element>
void check_norms(sweep_case& test) {
  cpu& device = device_of(test);
  const parameters all = draw_parameters(test);
  const auto values = draw_buffer<Element>(test, all);
  bool finite = true;
  for (const segment& part : all.segments) {
    double sum = 0;
    for (index_t i = part.offset; i < part.offset + part.size; ++i) {
      Element& element = values[static_cast<std::size_t>(i)];
      sum += static_cast<double>(element) * static_cast<double>(element);
    }
    agrees(test, "norm", part.offset, gradus::optim::norm(device, part.size, values.data() + part.offset),
           std::sqrt(sum), 1e-14 * std::sqrt(sum));
  }
  for (const segment& part : all.segments) {
    if (part.size > 0 && test.once_in(6)) {
      const double special[] = {std::nan(""), std::numeric_limits<double>::infinity(),
                                -std::numeric_limits<double>::infinity()};
      values[static_cast<std::size_t>(part.offset + test.below(part.size))] =
          static_cast<Element>(special[test.below(3)]);
      finite = false;
    }
  }
  double found = 0.5;
  note_not_finite(device, all.segments, values.data(), &found);
  agrees(test, "not finite", 0, found, finite ? 0.5 : 1.0);
}

/// The buffers of a rule's state by name, which are read between steps.
template <class State>
std::vector<double> buffer_of(State& state, std::string_view wanted) {
  std::vector<double> values;
  state.visit_buffers([&](std::string_view name, const auto* data, index_t count) {
    if (name == wanted) {
      values.assign(data, data + count);
    }
  });
  return values;
}

/// Some steps of a rule under a scale of the loss; pass_of(part, values, gradients, scale) is what one does to a
/// segment.
template <class Element, class Rule, class PassOf>
void check_rule(sweep_case& test, const Rule& rule, const PassOf& pass_of) {
  using gradus::optim::momentum_pass;
  cpu& device = device_of(test);
  const parameters all = draw_parameters(test);
  const gradus::optim::update<Rule> scaled{
      .rule = rule, .loss_scaling = {.initial = 8, .growth_interval = test.between("interval", 1, 2), .largest = 32}};
  gradus_test::update_state<Element> state{device, scaled, all.size};
  const auto values = draw_buffer<Element>(test, all);
  double scale = 8;
  index_t good = 0;
  index_t skipped = 0;
  for (int i = 0; i < 3; ++i) {
    agrees(test, "scale", i, state->scale().factor, scale);
    const auto gradients = draw_buffer<Element>(test, all, scale);
    bool finite = true;
    if (!all.segments.empty() && all.segments.front().size > 0 && test.once_in(4)) {
      const segment& part = all.segments.front();
      gradients[static_cast<std::size_t>(part.offset + test.below(part.size))] =
          std::numeric_limits<Element>::infinity();
      finite = false;
    }
    const std::vector<double> before = doubles(values);
    std::vector<momentum_pass> passes;
    for (const segment& part : all.segments) {
      passes.push_back(pass_of(part, before, doubles(gradients), scale));
    }
    std::vector<double> velocities = buffer_of(state, "velocity");
    const bool has_velocity = velocities.size() == before.size();
    velocities.resize(before.size());
    state.update(device, all.segments, values.data(), gradients.data(), 0.1);
    const std::vector<double> after = buffer_of(state, "velocity");
    auto velocities_now = test.array<Element>(has_velocity ? all.size : 0);
    std::transform(after.begin(), after.end(), velocities_now.data(), [](double v) { return static_cast<Element>(v); });
    check_step(test, all, values, before, velocities_now, velocities, [&](const segment& part, std::size_t at) {
      // The norms of lars have errors of their own.
      return finite
                 ? momentum_step(passes[static_cast<std::size_t>(&part - all.segments.data())], part.decay, before[at],
                                 static_cast<double>(gradients[at]), velocities[at], 12 * rounding<Element> + 1e-14)
                 : stepped{.value = before[at], .velocity = velocities[at], .allowed = 0};
    });
    if (finite) {
      if (++good >= scaled.loss_scaling.growth_interval) {
        good = 0;
        scale = std::min(32.0, 2 * scale);
      }
    } else {
      ++skipped;
      good = 0;
      scale /= 2;
    }
  }
  agrees(test, "skipped steps", 0, static_cast<double>(state->report()->skipped_steps), static_cast<double>(skipped));
  agrees(test, "good steps", 0, static_cast<double>(state->report()->good_steps), static_cast<double>(good));
}

template <class Element>
void check_sgd(sweep_case& test) {
  gradus::optim::sgd rule{.momentum = test.flip("momentum") ? 0.9 : 0.0};
  rule.nesterov = rule.momentum > 0 && test.flip("nesterov");
  rule.weight_decay = test.flip("weight decay") ? 0.25 : 0.0;
  check_rule<Element>(test, rule,
                      [&](const segment&, const std::vector<double>&, const std::vector<double>&, double scale) {
                        return gradus::optim::momentum_pass{.learning_rate = 0.1,
                                                            .momentum = rule.momentum,
                                                            .weight_decay = rule.weight_decay,
                                                            .nesterov = rule.nesterov,
                                                            .loss_scale = {.factor = scale}};
                      });
}

template <class Element>
void check_lars(sweep_case& test) {
  const gradus::optim::lars rule{.momentum = test.flip("momentum") ? 0.9 : 0.0,
                                 .weight_decay = test.flip("weight decay") ? 0.25 : 0.0,
                                 .trust = 0.01};
  const auto length = [](const segment& part, const std::vector<double>& x) {
    double squares = 0;
    for (auto i = static_cast<std::size_t>(part.offset); i < static_cast<std::size_t>(part.offset + part.size); ++i) {
      squares += x[i] * x[i];
    }
    return std::sqrt(squares);
  };
  check_rule<Element>(
      test, rule,
      [&](const segment& part, const std::vector<double>& values, const std::vector<double>& gradients, double scale) {
        const double p = length(part, values);
        const double g = length(part, gradients) / scale;
        const double local =
            part.decay && p > 0 && g > 0 ? rule.trust * p / (g + rule.weight_decay * p + rule.epsilon) : 1.0;
        return gradus::optim::momentum_pass{.learning_rate = 1,
                                            .momentum = rule.momentum,
                                            .weight_decay = rule.weight_decay,
                                            .gradient_scale = 0.1 * local,
                                            .loss_scale = {.factor = scale}};
      });
}

/// Calls body(float) or body(double).
template <class Body>
void with_real(sweep_case& test, const Body& body) {
  test.flip("float") ? body(float{}) : body(double{});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sweeps)

BOOST_AUTO_TEST_CASE(momentum) {
  gradus_test::sweep("momentum", 2000, [](sweep_case& test) {
    with_real(test, [&]<class Element>(Element) { check_momentum<Element>(test); });
  });
}

BOOST_AUTO_TEST_CASE(norms) {
  gradus_test::sweep("norms", 1000, [](sweep_case& test) {
    with_real(test, [&]<class Element>(Element) { check_norms<Element>(test); });
  });
}

BOOST_AUTO_TEST_CASE(rules) {
  gradus_test::sweep("rules", 1000, [](sweep_case& test) {
    with_real(test, [&]<class Element>(Element) {
      test.flip("lars") ? check_lars<Element>(test) : check_sgd<Element>(test);
    });
  });
}

BOOST_AUTO_TEST_SUITE_END()
