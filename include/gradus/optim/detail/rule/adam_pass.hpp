// SPDX-License-Identifier: BSL-1.0
//
// The formula of Adam, with weight decay in the gradient or in the parameter.
#pragma once

#include <array>  // std::array

#include "gradus/core/config.hpp"
#include "gradus/optim/detail/rule/elementwise_state.hpp"
#include "gradus/optim/elementwise_pass.hpp"

namespace gradus::optim::detail {

/// One step of Adam. The operations are in the order of torch.optim, so that results in float are close to its.
template <bool Amsgrad>
struct adam_pass {
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double gradient_decay = 0;   ///< times the parameter, is added to the gradient
  double parameter_decay = 0;  ///< times the learning rate, is the part of the parameter that is subtracted

  [[nodiscard]] static constexpr auto buffers() noexcept {
    if constexpr (Amsgrad) {
      return std::array{pass_buffer{"first_moment"}, pass_buffer{"second_moment"},
                        pass_buffer{"largest_second_moment"}};
    } else {
      return std::array{pass_buffer{"first_moment"}, pass_buffer{"second_moment"}};
    }
  }

  template <class Element>
  struct step {
    Element scale, gradient_decay, kept, one_minus_beta1, beta2, one_minus_beta2, rate, correction, epsilon;

    template <class Number, class... Largest>
    GRADUS_ALWAYS_INLINE constexpr void move(Number& value, Number& first, Number& second, Number gradient,
                                             Largest&... largest) const noexcept {
      gradient = scale * gradient + gradient_decay * value;
      first += one_minus_beta1 * (gradient - first);
      second = beta2 * second + one_minus_beta2 * gradient * gradient;
      Number divisor = second;
      ((largest = larger(second, largest), divisor = largest), ...);
      value = kept * value - rate * first / (square_root(divisor) * correction + epsilon);
    }

    template <class Number>
    GRADUS_ALWAYS_INLINE constexpr void operator()(Number& value, Number& first, Number& second,
                                                   Number gradient) const noexcept {
      move(value, first, second, gradient);
    }
    template <class Number>
    GRADUS_ALWAYS_INLINE constexpr void operator()(Number& value, Number& first, Number& second, Number& largest,
                                                   Number gradient) const noexcept {
      move(value, first, second, gradient, largest);
    }
  };

  template <class Element>
  [[nodiscard]] constexpr step<Element> at(const pass_point& point, bool decays) const noexcept {
    const double rate = point.learning_rate;
    return {.scale = static_cast<Element>(point.gradient_scale),
            .gradient_decay = static_cast<Element>(decays ? gradient_decay : 0.0),
            .kept = static_cast<Element>(decays ? 1.0 - rate * parameter_decay : 1.0),
            .one_minus_beta1 = static_cast<Element>(1.0 - beta1),
            .beta2 = static_cast<Element>(beta2),
            .one_minus_beta2 = static_cast<Element>(1.0 - beta2),
            .rate = static_cast<Element>(rate / (1.0 - power(beta1, point.updates + 1))),
            .correction = static_cast<Element>(1.0 / square_root(1.0 - power(beta2, point.updates + 1))),
            .epsilon = static_cast<Element>(epsilon)};
  }
};

}  // namespace gradus::optim::detail
