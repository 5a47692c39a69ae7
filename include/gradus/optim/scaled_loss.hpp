// SPDX-License-Identifier: BSL-1.0
//
// Loss scaling: an update rule for gradients of a loss that was multiplied by a fixed or dynamic factor.
#pragma once

#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <optional>     // std::nullopt, std::optional
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/optim/detail/rule/describe.hpp"
#include "gradus/optim/gradient_norm_report.hpp"
#include "gradus/optim/loss_scale_report.hpp"
#include "gradus/optim/loss_scaling.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_rule.hpp"
#include "gradus/optim/update_step.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus::optim {

/// An update rule that scales the loss for another rule, for training in 16 bits. The loss is multiplied by a scale
/// before the backward pass, so that small gradients of activations do not become zero. The rule divides gradients of
/// parameters by the scale when it reads them. A step with an infinite or NaN gradient changes neither parameters nor
/// the rule's state. It does not count in update_step::number either, so that a bias correction does not advance. The
/// scale then becomes smaller, and larger again after many good steps (see loss_scaling).
///
///   nn::network<float16, nhwc> net{device, {...}};
///   train::trainer trainer{net, optim::scaled_loss<optim::sgd>{.rule = {.momentum = 0.9}}, communicator};
///   trainer.fit(loader, {.epochs = 2}, train::progress{});
///   trainer.update_state<optim::scaled_loss<optim::sgd>>().report().skipped_steps;
///
/// If nothing overflows or becomes subnormal, a scale that is a power of two changes no bit of a step.
///
/// All ranks decide alike without an extra message: they test sums over the ranks, which are the same on all ranks, and
/// not finite if the gradient of one rank is not. The decision needs all sums. So the trainer tests each bucket when it
/// has arrived and updates after the last one, even with all_reduce::overlap_forward, which would defer updates. With
/// model_averaging, a rank decides by itself about the steps that it makes by itself, and has its own scale. Parameter
/// servers are refused, because they update on other ranks.
///
/// On a GPU, scale and decision stay on the device, and a step never waits for them. On the CPU the same numbers are in
/// host memory. Micikevicius et al., "Mixed Precision Training", 2018, section 3.2.
template <class Rule>
struct scaled_loss {
  /// The name of the rule in messages and files.
  static constexpr std::string_view name = "scaled_loss";
  /// The loss must be multiplied by the scale of the state.
  static constexpr bool scales_loss = true;
  static constexpr bool elementwise = false;  ///< a step depends on all gradients

  /// The rule that is scaled.
  Rule rule{};
  /// Options of the scale.
  loss_scaling scaling{};

  /// @throws configuration_error if a value is invalid
  void check() const {
    rule.check();
    optim::check(scaling);
  }

  /// A text that identifies these hyper-parameters; ranks compare it before the first step.
  [[nodiscard]] std::string description() const {
    std::string text =
        detail::describe(name, {scaling.initial, scaling.dynamic ? 1.0 : 0.0, scaling.growth, scaling.backoff,
                                static_cast<double>(scaling.growth_interval), scaling.smallest, scaling.largest});
    return text.append(" of ").append(rule.description());
  }

  /// True if all members are equal.
  friend bool operator==(const scaled_loss&, const scaled_loss&) noexcept = default;

  template <class Element, class Device = cpu>
  class state;
};

/// The state of the rule and the numbers of the scale.
template <class Rule>
template <class Element, class Device>
class scaled_loss<Rule>::state {
  using inner_state = typename Rule::template state<Element, Device>;
  static_assert(divides_gradients<inner_state, Element, Device>,
                "gradus: scaled_loss: give the rule's state void update(Device&, std::span<const "
                "gradus::optim::segment>, Element* values, const Element* gradients, const "
                "gradus::optim::update_step&, const gradus::loss_scale& scale); that divides gradients by the scale");
  static constexpr index_t numbers = gradus::detail::index_of(loss_scale_number::count);

 public:
  /// @param parameters  number of elements of the flat buffers of values and gradients
  /// @throws configuration_error as check() does
  state(Device& device, const scaled_loss& rule, index_t parameters)
      : rule_{(rule.check(), rule)}, inner_{device, rule.rule, parameters}, numbers_{device, {numbers}} {
    const std::array<double, numbers> initial{rule.scaling.initial};
    device.copy_from_host(numbers_.data(), initial.data(), sizeof(initial));
  }

  /// The factor for the loss of the next step.
  [[nodiscard]] loss_scale scale() const noexcept {
    if constexpr (has_memory_of_its_own<Device>) {
      return {.factor = 1, .numbers = numbers_.data()};
    } else {
      return {.factor = numbers_.data()[gradus::detail::index_of(loss_scale_number::scale)], .numbers = nullptr};
    }
  }

  /// Tests gradients of `segments` for infinity and NaN, and adds their squares where the rule clips by the norm. May
  /// be called for parts of the segments, before `finish`.
  void test(Device& device, std::span<const segment> segments, const Element* gradients) {
    note_not_finite(device, segments, gradients, not_finite().data());
    if constexpr (clips_norm<Rule>) {
      inner_.test(device, segments, gradients);
    }
  }

  /// One number in the memory of the device, above 0 if `test` has found a gradient that is not finite. Ranks that call
  /// `test` for parts of the gradients sum it.
  [[nodiscard]] std::span<double> not_finite() noexcept {
    return {numbers_.data() + gradus::detail::index_of(loss_scale_number::not_finite), 1};
  }
  /// See clipped_norm.
  [[nodiscard]] std::span<double> squares() noexcept requires clips_norm<Rule> { return inner_.squares(); }

  /// Runs the step for the parameters of `segments`, unless a gradient was not finite; then updates the scale. Call it
  /// once per step, after `test` of all segments.
  void finish(Device& device, std::span<const segment> segments, Element* values, const Element* gradients,
              const update_step& step) {
    const floating_point_scope arithmetic{flushes_denormals_on(device)};
    updates_ = has_memory_of_its_own<Device> || not_finite()[0] == 0.0;
    if constexpr (clips_norm<Rule>) {
      if (updates_) {
        inner_.use_norm(device, scale());
        inner_.update_clipped(device, segments, values, gradients, without_skipped(step));
      } else {
        squares()[0] = 0;
      }
    } else if (updates_) {
      inner_.update(device, segments, values, gradients, without_skipped(step), scale());
    }
    finish_loss_scale(device, rule_.scaling, numbers_.data());
  }

  /// Runs one step; `segments` are all parameters.
  void update(Device& device, std::span<const segment> segments, Element* values, const Element* gradients,
              const update_step& step) {
    const floating_point_scope arithmetic{flushes_denormals_on(device)};
    test(device, segments, gradients);
    finish(device, segments, values, gradients, step);
  }

  /// The numbers of the scale. On a GPU it waits for the device.
  [[nodiscard]] loss_scale_report report() {
    std::array<double, numbers> now{};
    numbers_.device().copy_to_host(now.data(), numbers_.data(), sizeof(now));
    const auto at = [&](loss_scale_number which) {
      return now[static_cast<std::size_t>(gradus::detail::index_of(which))];
    };
    return {.scale = at(loss_scale_number::scale),
            .good_steps = static_cast<index_t>(at(loss_scale_number::good_steps)),
            .skipped_steps = static_cast<index_t>(at(loss_scale_number::skipped_steps))};
  }

  /// The norm of the gradients of the last step, divided by the scale; none if the step was skipped, or the norm is on
  /// a device.
  [[nodiscard]] std::optional<double> gradient_norm() const noexcept requires finds_gradient_norm<inner_state> {
    return updates_ ? inner_.gradient_norm() : std::nullopt;
  }
  /// The norms since the last call. On a GPU it waits for the device.
  [[nodiscard]] gradient_norm_report take_norm_report() requires finds_gradient_norm<inner_state> {
    return inner_.take_norm_report();
  }

  /// Calls visitor(name, data, count) for the rule's buffers and for "loss_scale": three doubles, the scale, the good
  /// steps and the skipped steps. A state into which they are loaded continues from there.
  template <class Visitor>
  void visit_buffers(Visitor&& visitor) {
    inner_.visit_buffers(visitor);
    visitor(std::string_view{"loss_scale"}, numbers_.data(),
            index_t{gradus::detail::index_of(loss_scale_number::not_finite)});
  }

  /// The hyper-parameters.
  [[nodiscard]] const scaled_loss& rule() const noexcept { return rule_; }
  /// The state of the rule that is scaled.
  [[nodiscard]] inner_state& inner() noexcept { return inner_; }

 private:
  /// The step that the rule gets: numbered by the updates made before. Kernels subtract skipped steps
  /// themselves.
  [[nodiscard]] update_step without_skipped(const update_step& step) const noexcept {
    if constexpr (has_memory_of_its_own<Device>) {
      return step;
    } else {
      return {step.learning_rate,
              updates_before(step.number, numbers_.data()[gradus::detail::index_of(loss_scale_number::skipped_steps)])};
    }
  }

  scaled_loss rule_;
  inner_state inner_;
  tensor<double, 1, row_major, Device> numbers_;  // in the order of loss_scale_number
  bool updates_ = true;                           // the last step was not skipped, or the device decides
};

}  // namespace gradus::optim
