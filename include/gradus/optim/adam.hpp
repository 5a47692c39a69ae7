// SPDX-License-Identifier: BSL-1.0
//
// Adam, with AMSGrad, and weight decay in the gradient.
#pragma once

#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/device/cpu.hpp"
#include "gradus/optim/detail/rule/adam_pass.hpp"
#include "gradus/optim/detail/rule/describe.hpp"
#include "gradus/optim/detail/rule/elementwise_state.hpp"
#include "gradus/optim/update_rule.hpp"

namespace gradus::optim {

/// Adam. For parameters p with gradients g at learning rate r, in update number t = 1, 2, ...:
///
///   g <- g + weight_decay * p                (segments with `decay` only)
///   m <- beta1 * m + (1 - beta1) * g         (starts at 0; "first_moment")
///   v <- beta2 * v + (1 - beta2) * g^2       (starts at 0; "second_moment")
///   p <- p - r * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
///
/// With amsgrad the largest v so far ("largest_second_moment") takes the place of v in the last line. This is
/// torch.optim.Adam. Kingma, Ba: "Adam: a method for stochastic optimization", 2015, algorithm 1; AMSGrad: Reddi, Kale,
/// Kumar: "On the convergence of Adam and beyond", 2018, algorithm 2. For weight decay that is not divided by
/// sqrt(v), see adam_w.
struct adam {
  /// The name of the rule in messages and files.
  static constexpr std::string_view name = "adam";
  /// The update of an element depends only on that element, its gradient and its state.
  static constexpr bool elementwise = true;

  double beta1 = 0.9;       ///< in [0, 1): decay rate of the mean of gradients
  double beta2 = 0.999;     ///< in [0, 1): decay rate of the mean of squared gradients
  double epsilon = 1e-8;    ///< above 0: added to the divisor
  double weight_decay = 0;  ///< at least 0; the gradient of weight_decay / 2 * |p|^2
  bool amsgrad = false;     ///< divide by the largest mean of squared gradients so far

  /// @throws configuration_error if a value is invalid
  void check() const {
    detail::require_decay_rate(name, "beta1", beta1, "0.9 is the usual value");
    detail::require_decay_rate(name, "beta2", beta2, "0.999 is the usual value");
    detail::require_epsilon(name, epsilon, "0.00000001 is the usual value");
    detail::require_weight_decay(name, weight_decay);
  }

  /// A text that identifies these hyper-parameters; ranks compare it before the first step.
  [[nodiscard]] std::string description() const {
    return detail::describe(name, {beta1, beta2, epsilon, weight_decay, amsgrad ? 1.0 : 0.0});
  }

  /// True if all members are equal.
  friend bool operator==(const adam&, const adam&) noexcept = default;

  /// Calls body(pass) with the formula of a step; see apply_pass.
  template <class Body>
  void with_pass(const Body& body) const {
    if (amsgrad) {
      body(detail::adam_pass<true>{beta1, beta2, epsilon, weight_decay});
    } else {
      body(detail::adam_pass<false>{beta1, beta2, epsilon, weight_decay});
    }
  }

  /// The moments of all parameters, and the update step.
  template <class Element, class Device = cpu>
  using state = detail::elementwise_state<adam, Element, Device>;
};
static_assert(update_rule<adam>);

}  // namespace gradus::optim

GRADUS_COMPILED_RULE(::gradus::optim::adam)
