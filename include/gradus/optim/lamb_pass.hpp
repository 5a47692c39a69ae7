// SPDX-License-Identifier: BSL-1.0
//
// The formula of LAMB, and its two passes over memory on the CPU.
#pragma once

#include <algorithm>  // std::max
#include <array>      // std::array
#include <cstddef>    // std::size_t
#include <span>       // std::span

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/cpu_passes.hpp"
#include "gradus/optim/elementwise_pass.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_step.hpp"
#include "gradus/simd/transform.hpp"

namespace gradus::optim {

namespace detail {

/// One step of LAMB: moments, and the direction that the trust ratio is multiplied with.
struct lamb_pass {
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;

  template <class Element>
  struct step {
    Element scale, decay, one_minus_beta1, beta2, one_minus_beta2, correction1, correction2, epsilon, rate;

    template <class Number>
    GRADUS_ALWAYS_INLINE constexpr void moments(Number& first, Number& second, Number gradient) const noexcept {
      gradient = scale * gradient;
      first += one_minus_beta1 * (gradient - first);
      second = beta2 * second + one_minus_beta2 * gradient * gradient;
    }

    template <class Number>
    [[nodiscard]] GRADUS_ALWAYS_INLINE constexpr Number direction(Number value, Number first,
                                                                  Number second) const noexcept {
      return correction1 * first / (square_root(second) * correction2 + epsilon) + decay * value;
    }
  };

  template <class Element>
  [[nodiscard]] constexpr step<Element> at(const pass_point& point, bool decays) const noexcept {
    return {.scale = static_cast<Element>(point.gradient_scale),
            .decay = static_cast<Element>(decays ? weight_decay : 0.0),
            .one_minus_beta1 = static_cast<Element>(1.0 - beta1),
            .beta2 = static_cast<Element>(beta2),
            .one_minus_beta2 = static_cast<Element>(1.0 - beta2),
            .correction1 = static_cast<Element>(1.0 / (1.0 - power(beta1, point.updates + 1))),
            .correction2 = static_cast<Element>(1.0 / square_root(1.0 - power(beta2, point.updates + 1))),
            .epsilon = static_cast<Element>(epsilon),
            .rate = static_cast<Element>(point.learning_rate)};
  }
};

/// The ratio of two norms, given their squares; 1 if one is 0.
[[nodiscard]] constexpr double trust_ratio(double value_squares, double direction_squares) noexcept {
  return value_squares > 0.0 && direction_squares > 0.0 ? square_root(value_squares) / square_root(direction_squares)
                                                        : 1.0;
}

/// The arrays of LAMB for one parameter.
template <class Element>
struct lamb_arrays {
  Element* values;
  const Element* gradients;
  Element* first;
  Element* second;
};

/// Updates the moments of one parameter. Returns the trust ratio. It does not depend on the number of threads.
template <class Element>
[[nodiscard]] double update_moments(cpu& device, index_t count, const lamb_pass::step<Element>& step,
                                    const lamb_arrays<Element>& of) {
  constexpr index_t most_pieces = 64;
  const index_t grain = std::max(pass_grain, (count + most_pieces - 1) / most_pieces);
  std::array<std::array<double, 2>, most_pieces> partial{};  // squares of values and directions
  device.parallel_for(count, grain, [&](index_t begin, index_t end) {
    simd::squares value_squares;
    simd::squares direction_squares;
    const auto body = [&](auto& first, auto& second, auto value, auto gradient) __attribute__((always_inline)) {
      step.moments(first, second, gradient);
      value_squares.add(value);
      direction_squares.add(step.direction(value, first, second));
    };
    simd::transform(end - begin, body, pass_arrays<Element, 2>{of.first + begin, of.second + begin},
                    pass_arrays<const Element, 2>{of.values + begin, of.gradients + begin});
    partial[static_cast<std::size_t>(begin / grain)] = {value_squares.total(), direction_squares.total()};
  });
  double value_squares = 0;
  double direction_squares = 0;
  for (const std::array<double, 2>& piece : partial) {
    value_squares += piece[0];
    direction_squares += piece[1];
  }
  return trust_ratio(value_squares, direction_squares);
}

}  // namespace detail

/// Runs one step of LAMB for the parameters of `segments`, each of which is a whole parameter. Segment offsets index
/// all arrays. The step of a parameter is one pass over memory for the moments and norms, and one for the values;
/// without decay, one in all.
template <class Element>
void apply_lamb(cpu& device, std::span<const segment> segments, const detail::lamb_pass& pass, const update_step& step,
                const loss_scale& scale, Element* values, const Element* gradients, Element* first, Element* second) {
  const pass_point point{step.learning_rate, step.number, 1.0 / scale.factor};
  const auto with_decay = pass.at<Element>(point, true);  // its rate is not used
  const auto without_decay = pass.at<Element>(point, false);
  for (const segment& part : segments) {
    const double learning_rate = step.learning_rate * part.learning_rate_factor;
    const detail::lamb_arrays<Element> of{values + part.offset, gradients + part.offset, first + part.offset,
                                          second + part.offset};
    if (part.decay) {
      const auto rate = static_cast<Element>(learning_rate * detail::update_moments(device, part.size, with_decay, of));
      device.parallel_for(part.size, detail::pass_grain, [&](index_t begin, index_t end) {
        const auto body = [&](auto& value, auto m, auto v) __attribute__((always_inline)) {
          value -= rate * with_decay.direction(value, m, v);
        };
        simd::transform(end - begin, body, pass_arrays<Element, 1>{of.values + begin},
                        pass_arrays<const Element, 2>{of.first + begin, of.second + begin});
      });
    } else {
      const auto rate = static_cast<Element>(learning_rate);
      device.parallel_for(part.size, detail::pass_grain, [&](index_t begin, index_t end) {
        const auto body = [&](auto& value, auto& m, auto& v, auto gradient) __attribute__((always_inline)) {
          without_decay.moments(m, v, gradient);
          value -= rate * without_decay.direction(value, m, v);
        };
        simd::transform(end - begin, body,
                        pass_arrays<Element, 3>{of.values + begin, of.first + begin, of.second + begin},
                        pass_arrays<const Element, 1>{of.gradients + begin});
      });
    }
  }
}

}  // namespace gradus::optim
