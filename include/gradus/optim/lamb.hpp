// SPDX-License-Identifier: BSL-1.0
//
// LAMB: Adam with a trust ratio for each parameter, for batches of thousands of examples.
#pragma once

#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/element.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/optim/detail/rule/describe.hpp"
#include "gradus/optim/detail/rule/elementwise_state.hpp"
#include "gradus/optim/lamb_pass.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_rule.hpp"
#include "gradus/optim/update_step.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus::optim {

/// LAMB. For each parameter p with gradient g at learning rate r, in update number t = 1, 2, ...:
///
///   m <- beta1 * m + (1 - beta1) * g         (starts at 0; "first_moment")
///   v <- beta2 * v + (1 - beta2) * g^2       (starts at 0; "second_moment")
///   u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay * p
///   p <- p - r * |p| / |u| * u               (|p| / |u| is 1 where |p| or |u| is 0)
///
/// with Euclidean norms over the whole parameter. Segments without `decay` take the step p <- p - r * u without weight
/// decay. You et al.: "Large batch optimization for deep learning: training BERT in 76 minutes", 2020, algorithm 2,
/// where phi is the identity.
struct lamb {
  /// The name of the rule in messages and files.
  static constexpr std::string_view name = "lamb";
  static constexpr bool elementwise = false;  ///< an update needs the norms of whole parameters

  double beta1 = 0.9;          ///< in [0, 1): decay rate of the mean of gradients
  double beta2 = 0.999;        ///< in [0, 1): decay rate of the mean of squared gradients
  double epsilon = 1e-6;       ///< above 0: added to the divisor
  double weight_decay = 0.01;  ///< at least 0

  /// @throws configuration_error if a value is invalid
  void check() const {
    detail::require_decay_rate(name, "beta1", beta1, "0.9 is the usual value");
    detail::require_decay_rate(name, "beta2", beta2, "0.999 is the usual value");
    detail::require_epsilon(name, epsilon, "0.000001 is the usual value");
    detail::require_weight_decay(name, weight_decay);
  }

  /// A text that identifies these hyper-parameters; ranks compare it before the first step.
  [[nodiscard]] std::string description() const {
    return detail::describe(name, {beta1, beta2, epsilon, weight_decay});
  }

  /// True if all members are equal.
  friend bool operator==(const lamb&, const lamb&) noexcept = default;

  template <class Element, class Device = cpu>
  class state;
};

/// The moments of all parameters, and the update step.
template <class Element, class Device>
class lamb::state {
  static_assert(explain_real_element<Element>());

 public:
  /// @param parameters  number of elements of the flat buffers of values and gradients
  /// @throws configuration_error as check() does
  state(Device& device, const lamb& rule, index_t parameters)
      : rule_{(rule.check(), rule)}, first_{device, {parameters}}, second_{device, {parameters}} {}

  /// Runs one step for the parameters of `segments`. Each segment is a whole parameter, and its norms are those of the
  /// parameter. On a GPU the norms stay on the device, and a step does not wait for them.
  /// @param scale  the factor by which the gradients have been multiplied; see optim::update
  /// @throws configuration_error if the learning rate is negative or not finite
  /// @throws shape_error if a segment is outside the buffers
  void update(Device& device, std::span<const segment> segments, Element* values, const Element* gradients,
              const update_step& step, const loss_scale& scale = {}) {
    const floating_point_scope arithmetic{flushes_denormals_on(device)};
    detail::require_learning_rate(name, step.learning_rate);
    detail::require_inside(name, segments, first_.size());
    apply_lamb(device, segments, detail::lamb_pass{rule_.beta1, rule_.beta2, rule_.epsilon, rule_.weight_decay}, step,
               scale, values, gradients, first_.data(), second_.data());
  }

  /// Calls visitor(name, data, count) for each buffer, in device memory.
  template <class Visitor>
  void visit_buffers(Visitor&& visitor) {
    visitor(std::string_view{"first_moment"}, first_.data(), first_.size());
    visitor(std::string_view{"second_moment"}, second_.data(), second_.size());
  }

  /// The hyper-parameters.
  [[nodiscard]] const lamb& rule() const noexcept { return rule_; }

 private:
  lamb rule_;
  tensor<Element, 1, row_major, Device> first_;   // (parameters)
  tensor<Element, 1, row_major, Device> second_;  // (parameters)
};
static_assert(update_rule<lamb>);

}  // namespace gradus::optim

GRADUS_COMPILED_RULE(::gradus::optim::lamb)
