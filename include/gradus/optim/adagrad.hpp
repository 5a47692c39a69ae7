// SPDX-License-Identifier: BSL-1.0
//
// Adagrad.
#pragma once

#include <array>        // std::array
#include <limits>       // std::numeric_limits
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

/// One step of Adagrad, in the order of operations of torch.optim.
struct adagrad_pass {
  double lr_decay = 0;
  double initial = 0;
  double epsilon = 0;
  double weight_decay = 0;

  [[nodiscard]] constexpr auto buffers() const noexcept { return std::array{pass_buffer{"sum_of_squares", initial}}; }

  template <class Element>
  struct step {
    Element scale, decay, rate, epsilon;

    template <class Number>
    GRADUS_ALWAYS_INLINE constexpr void operator()(Number& value, Number& sum, Number gradient) const noexcept {
      gradient = scale * gradient + decay * value;
      sum += gradient * gradient;
      value -= rate * gradient / (square_root(sum) + epsilon);
    }
  };

  template <class Element>
  [[nodiscard]] constexpr step<Element> at(const pass_point& point, bool decays) const noexcept {
    return {.scale = static_cast<Element>(point.gradient_scale),
            .decay = static_cast<Element>(decays ? weight_decay : 0.0),
            .rate = static_cast<Element>(point.learning_rate / (1.0 + static_cast<double>(point.updates) * lr_decay)),
            .epsilon = static_cast<Element>(epsilon)};
  }
};

}  // namespace detail

/// Adagrad. For parameters p with gradients g at learning rate r, in update number t = 1, 2, ...:
///
///   g <- g + weight_decay * p        (segments with `decay` only)
///   s <- s + g^2                     (starts at initial_accumulator_value; "sum_of_squares")
///   p <- p - r / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + epsilon)
///
/// This is torch.optim.Adagrad. Duchi, Hazan, Singer: "Adaptive subgradient methods for online learning and stochastic
/// optimization", 2011, figure 1.
struct adagrad {
  /// The name of the rule in messages and files.
  static constexpr std::string_view name = "adagrad";
  /// The update of an element depends only on that element, its gradient and its state.
  static constexpr bool elementwise = true;

  double lr_decay = 0;                   ///< at least 0: how fast the learning rate decreases with the updates
  double initial_accumulator_value = 0;  ///< at least 0: where the sum of squares starts
  double epsilon = 1e-10;                ///< above 0: added to the divisor
  double weight_decay = 0;               ///< at least 0; the gradient of weight_decay / 2 * |p|^2

  /// @throws configuration_error if a value is invalid
  void check() const {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    detail::require_in_range(name, "lr_decay", lr_decay, 0.0, infinity, "a finite lr_decay of at least 0",
                             "0 is the usual value");
    detail::require_in_range(name, "initial_accumulator_value", initial_accumulator_value, 0.0, infinity,
                             "a finite initial_accumulator_value of at least 0", "0 and 0.1 are usual");
    detail::require_epsilon(name, epsilon, "0.0000000001 is the usual value");
    detail::require_weight_decay(name, weight_decay);
  }

  /// A text that identifies these hyper-parameters; ranks compare it before the first step.
  [[nodiscard]] std::string description() const {
    return detail::describe(name, {lr_decay, initial_accumulator_value, epsilon, weight_decay});
  }

  /// True if all members are equal.
  friend bool operator==(const adagrad&, const adagrad&) noexcept = default;

  /// Calls body(pass) with the formula of a step; see apply_pass.
  template <class Body>
  void with_pass(const Body& body) const {
    body(detail::adagrad_pass{lr_decay, initial_accumulator_value, epsilon, weight_decay});
  }

  /// The sums of squares of all parameters, and the update step.
  template <class Element, class Device = cpu>
  using state = detail::elementwise_state<adagrad, Element, Device>;
};
static_assert(update_rule<adagrad>);

}  // namespace gradus::optim

GRADUS_COMPILED_RULE(::gradus::optim::adagrad)
