// SPDX-License-Identifier: BSL-1.0
//
// Gradient clipping by value: an update rule around any other rule.
#pragma once

#include <limits>       // std::numeric_limits
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/optim/detail/rule/describe.hpp"
#include "gradus/optim/elementwise_pass.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_rule.hpp"
#include "gradus/optim/update_step.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus::optim {

namespace detail {

/// clipped <- gradient, at most `limit` and at least -limit. NaN stays NaN.
struct clip_pass {
  double limit = 0;

  template <class Element>
  struct step {
    Element limit;

    template <class Number>
    GRADUS_ALWAYS_INLINE constexpr void operator()(Number& clipped, Number gradient) const noexcept {
      clipped = gradient > limit ? limit : gradient;
      clipped = clipped < -limit ? -limit : clipped;
    }
  };

  /// The limit of gradients that have been multiplied by 1 / gradient_scale.
  template <class Element>
  [[nodiscard]] constexpr step<Element> at(const pass_point& point, bool /*decays*/) const noexcept {
    return {static_cast<Element>(limit / point.gradient_scale)};
  }
};

}  // namespace detail

/// An update rule that clips each element of the gradients for another rule:
///
///   g <- max(-limit, min(g, limit))
///
/// This is torch.nn.utils.clip_grad_value_ before optimizer.step(). The rule can be used with every strategy: what is
/// clipped is the gradient that is applied. With all_reduce, sharded_update and synchronous parameter servers it is the
/// sum over the ranks, that of the mean loss over the global batch; where a push is applied by itself (asynchronous
/// servers) it is that of the worker's examples.
///
///   train::trainer trainer{net, optim::clipped_value<optim::sgd>{.rule = {.momentum = 0.9}, .limit = 0.5}, world};
///
/// It costs one pass over memory, and memory for clipped gradients: the gradients themselves are not written. With
/// optim::scaled_loss write scaled_loss<clipped_value<Rule>>: the limit is that of gradients divided by the scale.
template <class Rule>
struct clipped_value {
  /// The name of the rule in messages and files.
  static constexpr std::string_view name = "clipped_value";
  /// As the rule that makes the steps.
  static constexpr bool elementwise = elementwise_update_rule<Rule>;
  static_assert(!scales_loss<Rule>,
                "gradus: clipped_value inside scaled_loss sees the gradients without the scale: write "
                "optim::scaled_loss<optim::clipped_value<Rule>>");
  static_assert(!clips_norm<Rule>,
                "gradus: a rule that clips by the norm needs all gradients as they are: write "
                "optim::clipped_norm<optim::clipped_value<Rule>>, which clips by the norm first");

  /// The rule that makes the steps.
  Rule rule{};
  double limit = 1;  ///< above 0: the largest magnitude of an element

  /// @throws configuration_error if a value is invalid
  void check() const {
    rule.check();
    detail::require_in_range(name, "limit", limit, static_cast<double>(std::numeric_limits<float>::min()),
                             std::numeric_limits<double>::infinity(), "a finite limit above 0", "0.5 and 1 are usual");
  }

  /// A text that identifies these hyper-parameters; ranks compare it before the first step.
  [[nodiscard]] std::string description() const {
    return detail::describe(name, {limit}).append(" of ").append(rule.description());
  }

  /// True if all members are equal.
  friend bool operator==(const clipped_value&, const clipped_value&) noexcept = default;

  template <class Element, class Device = cpu>
  class state;
};

/// The state of the rule, and the clipped gradients.
template <class Rule>
template <class Element, class Device>
class clipped_value<Rule>::state {
  using inner_state = typename Rule::template state<Element, Device>;
  static_assert(explain_real_element<Element>());

 public:
  /// @param parameters  number of elements of the flat buffers of values and gradients
  /// @throws configuration_error as check() does
  state(Device& device, const clipped_value& rule, index_t parameters)
      : rule_{(rule.check(), rule)}, inner_{device, rule.rule, parameters}, clipped_{device, {parameters}} {}

  /// Clips the gradients of `segments` and runs one step of the rule with them.
  /// @throws configuration_error, shape_error as the rule's state does
  void update(Device& device, std::span<const segment> segments, Element* values, const Element* gradients,
              const update_step& step) {
    const floating_point_scope arithmetic{flushes_denormals_on(device)};
    inner_.update(device, segments, values, clipped(device, segments, gradients, step, {}), step);
  }

  /// The same where gradients have been multiplied by a factor; see scaled_loss.
  void update(Device& device, std::span<const segment> segments, Element* values, const Element* gradients,
              const update_step& step,
              const loss_scale& scale) requires divides_gradients<inner_state, Element, Device> {
    const floating_point_scope arithmetic{flushes_denormals_on(device)};
    inner_.update(device, segments, values, clipped(device, segments, gradients, step, scale), step, scale);
  }

  /// Calls visitor(name, data, count) for the rule's buffers.
  template <class Visitor>
  void visit_buffers(Visitor&& visitor) {
    inner_.visit_buffers(visitor);
  }

  /// The hyper-parameters.
  [[nodiscard]] const clipped_value& rule() const noexcept { return rule_; }
  /// The state of the rule that makes the steps.
  [[nodiscard]] inner_state& inner() noexcept { return inner_; }

 private:
  /// @throws shape_error if a segment is outside the buffer
  [[nodiscard]] const Element* clipped(Device& device, std::span<const segment> segments, const Element* gradients,
                                       const update_step& step, const loss_scale& scale) {
    detail::require_inside(name, segments, clipped_.size());
    apply_pass(device, segments, detail::clip_pass{rule_.limit}, step, scale, pass_arrays<Element, 1>{clipped_.data()},
               pass_arrays<const Element, 1>{gradients});
    return clipped_.data();
  }

  clipped_value rule_;
  inner_state inner_;
  tensor<Element, 1, row_major, Device> clipped_;  // (parameters)
};

}  // namespace gradus::optim
