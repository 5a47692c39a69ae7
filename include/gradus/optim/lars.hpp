// SPDX-License-Identifier: BSL-1.0
//
// Layer-wise adaptive rate scaling (LARS), for batches of thousands of images.
#pragma once

#include <limits>       // std::numeric_limits
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/compiled.hpp"
#include "gradus/core/element.hpp"
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

/// Layer-wise adaptive rate scaling (LARS). For each parameter p with gradient g at learning rate r:
///
///   local = trust * |p| / (|g| + weight_decay * |p| + epsilon)      (1 where |p| or |g| is 0)
///   v <- momentum * v + r * local * (g + weight_decay * p)          (v starts at 0)
///   p <- p - v
///
/// with Euclidean norms over the whole parameter. A factor of the learning rate (segment::learning_rate_factor) scales
/// v in the last line instead. Segments without `decay` take a plain momentum step, without weight decay and with local
/// = 1. You, Gitman, Ginsburg: "Large batch training of convolutional networks", 2017, algorithm 1.
struct lars {
  /// The name of the rule in messages and files.
  static constexpr std::string_view name = "lars";
  static constexpr bool elementwise = false;  ///< an update needs the norms of whole parameters

  double momentum = 0.9;       ///< in [0, 1)
  double weight_decay = 5e-4;  ///< at least 0
  double trust = 0.001;        ///< above 0: the largest step relative to |p|
  double epsilon = 1e-8;       ///< at least 0

  /// @throws configuration_error if a value is invalid
  void check() const;

  /// A text that identifies these hyper-parameters; ranks compare it before the first step.
  [[nodiscard]] std::string description() const {
    return detail::describe(name, {momentum, weight_decay, trust, epsilon});
  }

  /// True if all members are equal.
  friend bool operator==(const lars&, const lars&) noexcept = default;

  template <class Element, class Device = cpu>
  class state;
};

/// The velocities of all parameters, and the update step.
template <class Element, class Device>
class lars::state {
  static_assert(explain_real_element<Element>());

 public:
  /// @param parameters  number of elements of the flat buffers of values and gradients
  /// @throws configuration_error as check() does
  state(Device& device, const lars& rule, index_t parameters)
      : rule_{(rule.check(), rule)}, velocity_{device, {parameters}} {}

  /// Runs one step for the parameters of `segments`. Each segment is a whole parameter, and its norms are those of the
  /// parameter.
  /// @param scale  the factor by which the gradients have been multiplied; see optim::update
  /// @throws configuration_error if the learning rate is negative or not finite
  /// @throws shape_error if a segment is outside the buffers
  void update(Device& device, std::span<const segment> segments, Element* values, const Element* gradients,
              const update_step& step, const loss_scale& scale = {}) {
    const floating_point_scope arithmetic{flushes_denormals_on(device)};
    detail::require_learning_rate(name, step.learning_rate);
    detail::require_inside(name, segments, velocity_.size());
    const double factor = factor_of(device, scale);
    for (const segment& part : segments) {
      double local = 1;
      if (part.decay) {
        const double value_norm = norm(device, part.size, values + part.offset);
        const double gradient_norm = norm(device, part.size, gradients + part.offset) / factor;
        if (value_norm != 0.0 && gradient_norm != 0.0) {
          local = rule_.trust * value_norm / (gradient_norm + rule_.weight_decay * value_norm + rule_.epsilon);
        }
      }
      apply_momentum(device, std::span<const segment>{&part, 1},
                     momentum_pass{.learning_rate = 1,
                                   .momentum = rule_.momentum,
                                   .weight_decay = rule_.weight_decay,
                                   .gradient_scale = step.learning_rate * local,
                                   .loss_scale = scale},
                     values, gradients, velocity_.data());
    }
  }

  /// Calls visitor(name, data, count) for each buffer, in device memory.
  template <class Visitor>
  void visit_buffers(Visitor&& visitor) {
    visitor(std::string_view{"velocity"}, velocity_.data(), velocity_.size());
  }

  /// The hyper-parameters.
  [[nodiscard]] const lars& rule() const noexcept { return rule_; }

 private:
  lars rule_;
  tensor<Element, 1, row_major, Device> velocity_;  // (parameters)
};
static_assert(update_rule<lars>);

}  // namespace gradus::optim

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::optim {

GRADUS_INLINE void lars::check() const {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  detail::require_in_range(name, "momentum", momentum, 0.0, 1.0, "momentum in [0, 1)", "0.9 is the usual value");
  detail::require_in_range(name, "weight_decay", weight_decay, 0.0, infinity, "a finite weight_decay of at least 0",
                           "0.0005 is the paper's value, 0 turns it off");
  detail::require_in_range(name, "trust", trust, std::numeric_limits<double>::min(), infinity, "a finite trust above 0",
                           "0.001 is the paper's value");
  detail::require_in_range(name, "epsilon", epsilon, 0.0, infinity, "a finite epsilon of at least 0",
                           "0.00000001 is the default");
}

}  // namespace gradus::optim
#endif

GRADUS_COMPILED_RULE(::gradus::optim::lars)
