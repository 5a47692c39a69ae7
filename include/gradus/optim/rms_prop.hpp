// SPDX-License-Identifier: BSL-1.0
//
// RMSProp in the variants of PyTorch and TensorFlow, with momentum, centered.
#pragma once

#include <array>        // std::array
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/compiled.hpp"
#include "gradus/core/config.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/detail/rule/describe.hpp"
#include "gradus/optim/detail/rule/elementwise_state.hpp"
#include "gradus/optim/elementwise_pass.hpp"
#include "gradus/optim/update_rule.hpp"

namespace gradus::optim {

namespace detail {

/// One step of RMSProp, in the order of operations of torch.optim.
template <bool Centered, bool HasMomentum>
struct rms_prop_pass {
  double rho = 0;
  double momentum = 0;
  double epsilon = 0;
  double weight_decay = 0;
  bool tensorflow = false;

  [[nodiscard]] constexpr auto buffers() const noexcept {
    const pass_buffer square{"mean_square", tensorflow ? 1.0 : 0.0};
    const pass_buffer mean{"mean_gradient"};
    const pass_buffer velocity{"velocity"};
    if constexpr (Centered && HasMomentum) {
      return std::array{square, mean, velocity};
    } else if constexpr (Centered) {
      return std::array{square, mean};
    } else if constexpr (HasMomentum) {
      return std::array{square, velocity};
    } else {
      return std::array{square};
    }
  }

  template <class Element>
  struct step {
    Element scale, decay, rho, rest, momentum, inside, outside, velocity_rate, rate;

    /// The gradient divided by the root of its mean square.
    template <class Number>
    [[nodiscard]] GRADUS_ALWAYS_INLINE constexpr Number divided(Number gradient, Number square) const noexcept {
      return velocity_rate * gradient / (square_root(square + inside) + outside);
    }

    template <class Number>
    GRADUS_ALWAYS_INLINE constexpr void operator()(Number& value, Number& square, Number gradient) const noexcept {
      gradient = scale * gradient + decay * value;
      square = rho * square + rest * gradient * gradient;
      value -= rate * divided(gradient, square);
    }

    template <class Number>
    GRADUS_ALWAYS_INLINE constexpr void operator()(Number& value, Number& square, Number& other,
                                                   Number gradient) const noexcept {
      gradient = scale * gradient + decay * value;
      square = rho * square + rest * gradient * gradient;
      if constexpr (Centered) {
        value -= rate * divided(gradient, variance(square, other, gradient));
      } else {
        other = momentum * other + divided(gradient, square);
        value -= rate * other;
      }
    }

    template <class Number>
    GRADUS_ALWAYS_INLINE constexpr void operator()(Number& value, Number& square, Number& mean, Number& velocity,
                                                   Number gradient) const noexcept {
      gradient = scale * gradient + decay * value;
      square = rho * square + rest * gradient * gradient;
      velocity = momentum * velocity + divided(gradient, variance(square, mean, gradient));
      value -= rate * velocity;
    }

    /// Rounding may make the difference negative; NaN stays.
    template <class Number>
    [[nodiscard]] GRADUS_ALWAYS_INLINE constexpr Number variance(Number square, Number& mean,
                                                                 Number gradient) const noexcept {
      mean += rest * (gradient - mean);
      return larger(Number{0}, square - mean * mean);
    }
  };

  template <class Element>
  [[nodiscard]] constexpr step<Element> at(const pass_point& point, bool decays) const noexcept {
    const bool inner_rate = tensorflow && HasMomentum;
    return {.scale = static_cast<Element>(point.gradient_scale),
            .decay = static_cast<Element>(decays ? weight_decay : 0.0),
            .rho = static_cast<Element>(rho),
            .rest = static_cast<Element>(1.0 - rho),
            .momentum = static_cast<Element>(momentum),
            .inside = static_cast<Element>(tensorflow ? epsilon : 0.0),
            .outside = static_cast<Element>(tensorflow ? 0.0 : epsilon),
            .velocity_rate = static_cast<Element>(inner_rate || !HasMomentum ? point.learning_rate : 1.0),
            .rate = static_cast<Element>(inner_rate || !HasMomentum ? 1.0 : point.learning_rate)};
  }
};

}  // namespace detail

/// RMSProp. For parameters p with gradients g at learning rate r:
///
///   g <- g + weight_decay * p          (segments with `decay` only)
///   s <- rho * s + (1 - rho) * g^2     (starts at 0; "mean_square")
///   m <- rho * m + (1 - rho) * g       (only if centered, else m = 0; starts at 0; "mean_gradient")
///   v <- momentum * v + g / (sqrt(s - m^2) + epsilon)     (starts at 0; "velocity")
///   p <- p - r * v
///
/// This is torch.optim.RMSprop, whose alpha is rho. With `tensorflow` it is TensorFlow's RMSPropOptimizer, with which
/// the Inception networks were trained: s starts at 1, epsilon is inside the square root, and the learning rate is
/// inside the velocity:
///
///   v <- momentum * v + r * g / sqrt(s - m^2 + epsilon)
///   p <- p - v
///
/// Hinton, Srivastava, Swersky: "Neural networks for machine learning", lecture 6, 2012; centered: Graves: "Generating
/// sequences with recurrent neural networks", 2013, equations 38 to 45; the hyper-parameters of Inception-v3 are
/// {.rho = 0.9, .momentum = 0.9, .epsilon = 1, .tensorflow = true}.
struct rms_prop {
  /// The name of the rule in messages and files.
  static constexpr std::string_view name = "rms_prop";
  /// The update of an element depends only on that element, its gradient and its state.
  static constexpr bool elementwise = true;

  double rho = 0.99;        ///< in [0, 1): decay rate of the means
  double momentum = 0;      ///< in [0, 1); 0 keeps no velocities
  double epsilon = 1e-8;    ///< above 0: added to the divisor, or with `tensorflow` inside its square root
  double weight_decay = 0;  ///< at least 0; the gradient of weight_decay / 2 * |p|^2
  bool centered = false;    ///< divide by the standard deviation instead of the root of the mean square
  bool tensorflow = false;  ///< the variant of TensorFlow; see above

  /// @throws configuration_error if a value is invalid
  void check() const {
    detail::require_decay_rate(name, "rho", rho, "0.99 is PyTorch's value, 0.9 is TensorFlow's");
    detail::require_in_range(name, "momentum", momentum, 0.0, 1.0, "momentum in [0, 1)", "0 and 0.9 are usual");
    detail::require_epsilon(name, epsilon, "0.00000001 is usual, and 1 for Inception networks");
    detail::require_weight_decay(name, weight_decay);
  }

  /// A text that identifies these hyper-parameters; ranks compare it before the first step.
  [[nodiscard]] std::string description() const {
    return detail::describe(name, {rho, momentum, epsilon, weight_decay, centered ? 1.0 : 0.0, tensorflow ? 1.0 : 0.0});
  }

  /// True if all members are equal.
  friend bool operator==(const rms_prop&, const rms_prop&) noexcept = default;

  /// Calls body(pass) with the formula of a step; see apply_pass.
  template <class Body>
  void with_pass(const Body& body) const {
    if (centered && momentum != 0.0) {
      body(detail::rms_prop_pass<true, true>{rho, momentum, epsilon, weight_decay, tensorflow});
    } else if (centered) {
      body(detail::rms_prop_pass<true, false>{rho, momentum, epsilon, weight_decay, tensorflow});
    } else if (momentum != 0.0) {
      body(detail::rms_prop_pass<false, true>{rho, momentum, epsilon, weight_decay, tensorflow});
    } else {
      body(detail::rms_prop_pass<false, false>{rho, momentum, epsilon, weight_decay, tensorflow});
    }
  }

  /// The means and velocities of all parameters, and the update step.
  template <class Element, class Device = cpu>
  using state = detail::elementwise_state<rms_prop, Element, Device>;
};
static_assert(update_rule<rms_prop>);

}  // namespace gradus::optim

GRADUS_COMPILED_RULE(::gradus::optim::rms_prop)
