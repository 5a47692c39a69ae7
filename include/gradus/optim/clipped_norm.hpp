// SPDX-License-Identifier: BSL-1.0
//
// Gradient clipping by the global norm: an update rule around any other rule.
#pragma once

#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <limits>       // std::numeric_limits
#include <optional>     // std::nullopt, std::optional
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/error.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/optim/detail/rule/describe.hpp"
#include "gradus/optim/gradient_norm.hpp"
#include "gradus/optim/gradient_norm_report.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_rule.hpp"
#include "gradus/optim/update_step.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus::optim {

/// An update rule that clips the gradients for another rule, so that a step with large gradients does not undo the
/// training. In each step, with the Euclidean norm over the gradients of all parameters:
///
///   g <- min(1, max_norm / (norm + 1e-6)) * g
///
/// This is torch.nn.utils.clip_grad_norm_ before optimizer.step(). Pascanu, Mikolov, Bengio: "On the difficulty of
/// training recurrent neural networks", 2013, section 3.2.
///
/// Norms that are not finite count as clipped steps and do as error_if_nonfinite=False there: an infinite norm makes
/// the factor 0, so gradients that are finite become 0 and those that are infinite become NaN; a norm that is NaN makes
/// all gradients NaN. The sum is in double precision: it overflows for double gradients above 1e154, never for float
/// ones.
///
///   train::trainer trainer{net, optim::clipped_norm<optim::sgd>{.rule = {.momentum = 0.9}, .max_norm = 1.0}, world};
///
/// The norm is in train::step_report::gradient_norm and train::epoch_report::gradient_norm. An infinite max_norm never
/// clips and reports the norm: the steps are those of the bare rule, whatever the norm is. (PyTorch then makes all
/// gradients NaN where the norm is infinite.)
///
/// Gradients are those of the mean loss over the global batch: with all_reduce all ranks compute the norm of the same
/// sums, and with sharded_update each adds the squares of its shard, and one number is summed over the ranks. With
/// model_averaging a rank clips its own gradient, before the average. Synchronous parameter servers send each other one
/// number; in their other modes the rule is refused, because servers never have the gradients of one step together.
/// An update cannot begin before the last gradient has arrived, as with scaled_loss. The gradients themselves are not
/// written: the rule multiplies them where it reads them. On a GPU norm and factor stay on the device, and a step never
/// waits for them.
///
/// With optim::scaled_loss write scaled_loss<clipped_norm<Rule>>: the norm is that of the gradients divided by the
/// scale, and steps that are not finite are skipped. With optim::averaged_weights write
/// clipped_norm<averaged_weights<Rule>>. clipped_norm<clipped_value<Rule>> clips by the norm first.
template <class Rule>
struct clipped_norm {
  /// The name of the rule in messages and files.
  static constexpr std::string_view name = "clipped_norm";
  /// A step needs the norm of all gradients.
  static constexpr bool clips_norm = true;
  /// As the rule, when the norm is known.
  static constexpr bool elementwise = elementwise_update_rule<Rule>;
  static_assert(!scales_loss<Rule>,
                "gradus: clipped_norm inside scaled_loss sees the gradients without the scale: write "
                "optim::scaled_loss<optim::clipped_norm<Rule>>");
  static_assert(!optim::clips_norm<Rule>, "gradus: clipped_norm of a rule that clips by the norm: once is enough");

  /// The rule that makes the steps.
  Rule rule{};
  double max_norm = 1;  ///< above 0: the largest norm that is left as it is

  /// @throws configuration_error if a value is invalid
  void check() const {
    rule.check();
    if (!(max_norm >= std::numeric_limits<double>::min())) {
      raise<configuration_error>(name, "a max_norm above 0", {"max_norm = ", max_norm},
                                 "1 is usual; an infinite one never clips, and reports the norm");
    }
  }

  /// A text that identifies these hyper-parameters; ranks compare it before the first step.
  [[nodiscard]] std::string description() const {
    return detail::describe(name, {max_norm}).append(" of ").append(rule.description());
  }

  /// True if all members are equal.
  friend bool operator==(const clipped_norm&, const clipped_norm&) noexcept = default;

  template <class Element, class Device = cpu>
  class state;
};

/// The rule with the norm of the gradients of each step in step_report::gradient_norm and epoch_report::gradient_norm,
/// and no clipping: a clipped_norm with an infinite max_norm. The steps are those of the bare rule.
///
///   train::trainer trainer{net, optim::watched_norm(optim::sgd{.momentum = 0.9}), world};
///
/// As with clipping, a step reads the gradients once more, and no update begins before the last gradient has arrived.
template <class Rule>
[[nodiscard]] constexpr clipped_norm<Rule> watched_norm(const Rule& rule) {
  return {.rule = rule, .max_norm = std::numeric_limits<double>::infinity()};
}

/// The state of the rule, and the sum of squares of a step.
template <class Rule>
template <class Element, class Device>
class clipped_norm<Rule>::state {
  using inner_state = typename Rule::template state<Element, Device>;
  static_assert(divides_gradients<inner_state, Element, Device>,
                "gradus: clipped_norm: give the rule's state void update(Device&, std::span<const "
                "gradus::optim::segment>, Element* values, const Element* gradients, const "
                "gradus::optim::update_step&, const gradus::loss_scale& scale); that divides gradients by the scale");
  static constexpr index_t numbers = detail::index_of(norm_number::count);

 public:
  /// @param parameters  number of elements of the flat buffers of values and gradients
  /// @throws configuration_error as check() does
  state(Device& device, const clipped_norm& rule, index_t parameters)
      : rule_{(rule.check(), rule)}, inner_{device, rule.rule, parameters}, numbers_{device, {numbers}} {}

  /// Adds the squares of the gradients of `segments`. May be called for parts of the segments, before `finish`.
  void test(Device& device, std::span<const segment> segments, const Element* gradients) {
    add_squares(device, segments, gradients, squares().data());
  }

  /// The sum of squares so far, one number in the memory of the device. Ranks that call `test` for parts of the
  /// gradients sum it.
  [[nodiscard]] std::span<double> squares() noexcept {
    return {numbers_.data() + detail::index_of(norm_number::squares), 1};
  }

  /// The squares of all gradients are in the sum: from now on update_clipped clips by their norm.
  /// @param scale  the factor by which the gradients have been multiplied; see scaled_loss
  void use_norm(Device& device, const loss_scale& scale = {}) {
    const floating_point_scope arithmetic{flushes_denormals_on(device)};
    divisor_ = clip_by_norm(device, rule_.max_norm, scale, numbers_.data());
  }

  /// Runs the step for the parameters of `segments`, any subset of all, after `use_norm`.
  void update_clipped(Device& device, std::span<const segment> segments, Element* values, const Element* gradients,
                      const update_step& step) {
    const floating_point_scope arithmetic{flushes_denormals_on(device)};
    inner_.update(device, segments, values, gradients, step, divisor_);
  }

  /// Runs the step for the parameters of `segments`. Call it once per step, after `test` of all segments.
  void finish(Device& device, std::span<const segment> segments, Element* values, const Element* gradients,
              const update_step& step) {
    const floating_point_scope arithmetic{flushes_denormals_on(device)};
    use_norm(device);
    update_clipped(device, segments, values, gradients, step);
  }

  /// Runs one step; `segments` are all parameters.
  /// @throws configuration_error, shape_error as the rule's state does
  void update(Device& device, std::span<const segment> segments, Element* values, const Element* gradients,
              const update_step& step, const loss_scale& scale = {}) {
    const floating_point_scope arithmetic{flushes_denormals_on(device)};
    test(device, segments, gradients);
    use_norm(device, scale);
    update_clipped(device, segments, values, gradients, step);
  }

  /// The norm of the gradients of the last step, where it is in host memory.
  [[nodiscard]] std::optional<double> gradient_norm() const noexcept {
    if constexpr (has_memory_of_its_own<Device>) {
      return std::nullopt;
    } else {
      return numbers_.data()[detail::index_of(norm_number::last)];
    }
  }

  /// The norms since the last call. On a GPU it waits for the device.
  [[nodiscard]] gradient_norm_report take_norm_report() {
    std::array<double, static_cast<std::size_t>(numbers)> now{};
    numbers_.device().copy_to_host(now.data(), numbers_.data(), sizeof(now));
    const gradient_norm_report result = detail::take_norm_report(now.data());
    numbers_.device().copy_from_host(numbers_.data(), now.data(), sizeof(now));
    return result;
  }

  /// Calls visitor(name, data, count) for the rule's buffers and for "gradient_norm": five doubles, what the next
  /// report counts.
  template <class Visitor>
  void visit_buffers(Visitor&& visitor) {
    inner_.visit_buffers(visitor);
    constexpr index_t first = detail::index_of(norm_number::last);
    visitor(std::string_view{"gradient_norm"}, numbers_.data() + first, numbers - first);
  }

  /// The hyper-parameters.
  [[nodiscard]] const clipped_norm& rule() const noexcept { return rule_; }
  /// The state of the rule that makes the steps.
  [[nodiscard]] inner_state& inner() noexcept { return inner_; }

 private:
  clipped_norm rule_;
  inner_state inner_;
  tensor<double, 1, row_major, Device> numbers_;  // in the order of norm_number
  loss_scale divisor_;                            // of the gradients of this step
};

}  // namespace gradus::optim
