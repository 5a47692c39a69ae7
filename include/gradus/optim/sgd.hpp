// SPDX-License-Identifier: BSL-1.0
//
// Stochastic gradient descent with momentum, Nesterov's variant and weight decay.
#pragma once

#include <limits>       // std::numeric_limits
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/compiled.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/optim/cpu_passes.hpp"
#include "gradus/optim/detail/rule/describe.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_rule.hpp"
#include "gradus/optim/update_step.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus::optim {

/// Stochastic gradient descent. For parameters p with gradients g at learning rate r:
///
///   g <- g + weight_decay * p   (segments with `decay` only)
///   v <- momentum * v + g       (v starts at 0)
///   p <- p - r * v              (with nesterov: p - r * (g + momentum * v))
///
/// This is torch.optim.SGD with dampening 0, with its defaults: the learning rate is outside the velocity, so a change
/// of the rate needs no momentum correction. Sutskever, Martens, Dahl, Hinton 2013 (section 2, for Nesterov's variant).
struct sgd {
  /// The name of the rule in messages and files.
  static constexpr std::string_view name = "sgd";
  /// The update of an element depends only on that element, its gradient and its state.
  static constexpr bool elementwise = true;

  double momentum = 0;      ///< in [0, 1); 0 keeps no velocities
  bool nesterov = false;    ///< look ahead along the velocity; needs momentum
  double weight_decay = 0;  ///< at least 0; the gradient of weight_decay / 2 * |p|^2

  /// @throws configuration_error if a value is invalid
  void check() const;

  /// A text that identifies these hyper-parameters; ranks compare it before the first step.
  [[nodiscard]] std::string description() const {
    return detail::describe(name, {momentum, nesterov ? 1.0 : 0.0, weight_decay});
  }

  /// True if all members are equal.
  friend bool operator==(const sgd&, const sgd&) noexcept = default;

  template <class Element, class Device = cpu>
  class state;
};

/// The velocities of all parameters, and the update step.
template <class Element, class Device>
class sgd::state {
  static_assert(explain_real_element<Element>());

 public:
  /// @param parameters  number of elements of the flat buffers of values and gradients
  /// @throws configuration_error as check() does
  GRADUS_COLD state(Device& device, const sgd& rule, index_t parameters)
      : rule_{(rule.check(), rule)},
        parameters_{parameters},
        velocity_{device, {rule.momentum == 0.0 ? index_t{0} : parameters}} {}

  /// Runs one step for the parameters of `segments`. Call it at most once per step for each parameter.
  /// @param scale  the factor by which the gradients have been multiplied; see optim::update
  /// @throws configuration_error if the learning rate is negative or not finite
  /// @throws shape_error if a segment is outside the buffers
  void update(Device& device, std::span<const segment> segments, Element* values, const Element* gradients,
              const update_step& step, const loss_scale& scale = {}) {
    const floating_point_scope arithmetic{flushes_denormals_on(device)};
    detail::require_learning_rate(name, step.learning_rate);
    detail::require_inside(name, segments, parameters_);
    apply_momentum(device, segments,
                   momentum_pass{.learning_rate = step.learning_rate,
                                 .momentum = rule_.momentum,
                                 .weight_decay = rule_.weight_decay,
                                 .nesterov = rule_.nesterov,
                                 .loss_scale = scale},
                   values, gradients, rule_.momentum == 0.0 ? nullptr : velocity_.data());
  }

  /// Calls visitor(name, data, count) for each buffer, in device memory.
  template <class Visitor>
  void visit_buffers(Visitor&& visitor) {
    if (velocity_.size() != 0) {
      visitor(std::string_view{"velocity"}, velocity_.data(), velocity_.size());
    }
  }

  /// The hyper-parameters.
  [[nodiscard]] const sgd& rule() const noexcept { return rule_; }

 private:
  sgd rule_;
  index_t parameters_;
  tensor<Element, 1, row_major, Device> velocity_;  // (parameters), or empty without momentum
};
static_assert(update_rule<sgd>);

}  // namespace gradus::optim

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::optim {

GRADUS_INLINE void sgd::check() const {
  detail::require_in_range(name, "momentum", momentum, 0.0, 1.0, "momentum in [0, 1)", "0.9 is the usual value");
  detail::require_in_range(name, "weight_decay", weight_decay, 0.0, std::numeric_limits<double>::infinity(),
                           "a finite weight_decay of at least 0", "0.0001 is the usual value, 0 turns it off");
  if (nesterov && momentum == 0.0) {
    raise<configuration_error>(name, "momentum above 0 with nesterov", "momentum = 0",
                               "set .momentum = 0.9, or .nesterov = false");
  }
}

}  // namespace gradus::optim
#endif

GRADUS_COMPILED_RULE(::gradus::optim::sgd)
