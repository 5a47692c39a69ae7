// SPDX-License-Identifier: BSL-1.0
//
// Clipping, loss scaling and averaged weights around an update rule, whose type it does not know: compiled once for an
// element type and a device.
#pragma once

#include <array>        // std::array
#include <cstddef>      // std::byte, std::size_t
#include <limits>       // std::numeric_limits
#include <memory>       // std::make_unique, std::unique_ptr
#include <optional>     // std::nullopt, std::optional
#include <span>         // std::as_writable_bytes, std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/optim/detail/update/step_decision.hpp"
#include "gradus/optim/detail/update/update_options.hpp"
#include "gradus/optim/elementwise_pass.hpp"
#include "gradus/optim/gradient_norm.hpp"
#include "gradus/optim/gradient_norm_report.hpp"
#include "gradus/optim/loss_scale_report.hpp"
#include "gradus/optim/loss_scaling.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_rule.hpp"
#include "gradus/optim/update_step.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus::optim::detail {

/// clipped <- max(-limit, min(gradient, limit))
struct clip_pass {
  double limit = 0;

  template <class Element>
  struct step {
    Element limit;

    template <class Number>
    GRADUS_ALWAYS_INLINE constexpr void operator()(Number& clipped, Number gradient) const noexcept {
      const Number most = limit;
      clipped = larger(-most, smaller(most, gradient));  // keeps a NaN
    }
  };

  /// The limit of gradients that have been multiplied by 1 / gradient_scale.
  template <class Element>
  [[nodiscard]] constexpr step<Element> at(const pass_point& point, bool /*decays*/) const noexcept {
    return {static_cast<Element>(limit / point.gradient_scale)};
  }
};

/// average <- decay * average + (1 - decay) * value; the first average is the value.
struct average_pass {
  double decay = 0;

  template <class Element>
  struct step {
    Element rest;

    template <class Number>
    GRADUS_ALWAYS_INLINE constexpr void operator()(Number& average, Number value) const noexcept {
      average += rest * (value - average);
    }
  };

  template <class Element>
  [[nodiscard]] constexpr step<Element> at(const pass_point& point, bool /*decays*/) const noexcept {
    return {static_cast<Element>(point.updates == 0 ? 1.0 : 1.0 - decay)};
  }
};

/// Exchanges two arrays.
struct swap_pass {
  template <class Element>
  struct step {
    template <class Number>
    GRADUS_ALWAYS_INLINE constexpr void operator()(Number& one, Number& other, Number /*the old one*/) const noexcept {
      const Number kept = one;
      one = other;
      other = kept;
    }
  };

  template <class Element>
  [[nodiscard]] constexpr step<Element> at(const pass_point& /*point*/, bool /*decays*/) const noexcept {
    return {};
  }
};

/// The rule's update and the parts around it. See optim::update for what a step does.
template <class Element, class Device>
class composed_update final : public parameter_update<Element> {
  using base = parameter_update<Element>;
  static constexpr index_t numbers = index_of(update_number::count);
  static constexpr index_t norms = numbers - index_of(update_number::last);
  static constexpr bool on_host = !has_memory_of_its_own<Device>;

 public:
  /// @param rule      with a state for `elements` parameters on the device
  /// @throws configuration_error if an option is invalid, or the rule does not divide gradients and has to
  composed_update(Device& device, const update_options& options, std::unique_ptr<base> rule, index_t elements)
      : device_{&device},
        options_{(options.check(), options)},
        rule_{std::move(rule)},
        numbers_{device, {numbers}},
        clipped_{device, {options.clip_value ? elements : index_t{0}}},
        average_{device, {options.average ? elements : index_t{0}}} {
    if (needs_all_gradients() && !rule_->divides_gradients()) {
      raise<configuration_error>(
          "optim::update",
          {"a rule that divides gradients, to ", scales_loss() ? "scale the loss" : "clip by the norm"},
          {"'", rule_->name(), "'"},
          "give the rule's state void update(Device&, std::span<const gradus::optim::segment>, Element* values, const "
          "Element* gradients, const gradus::optim::update_step&, const gradus::loss_scale& scale); that divides "
          "gradients by the scale");
    }
    std::array<double, static_cast<std::size_t>(numbers)> initial{};
    initial[index_of(update_number::scale)] = scales_loss() ? options_.loss_scaling.initial : 1.0;
    device.copy_from_host(numbers_.data(), initial.data(), sizeof(initial));
  }

  [[nodiscard]] std::string_view name() const noexcept override { return rule_->name(); }
  [[nodiscard]] std::string description() const override { return rule_->description() + options_.description(); }
  [[nodiscard]] bool elementwise() const noexcept override { return rule_->elementwise(); }

  void update(std::span<const segment> segments, Element* values, const Element* gradients,
              const update_step& step) override {
    const floating_point_scope arithmetic{flushes_denormals_on(*device_)};
    const bool divides = needs_all_gradients();
    if (on_host && divides && number(update_number::step_not_finite) != 0) {
      return;  // the step is skipped
    }
    update_step own = step;
    loss_scale scale{};
    if (divides && on_host) {
      own.number = updates_before(step.number, number(update_number::step_skipped));
      scale.factor = number(update_number::step_scale);
    } else if (divides) {
      scale.numbers = numbers_.data() + index_of(update_number::step_scale);
    }
    if (options_.clip_value) {
      require_inside("optim::update", segments, clipped_.size());
      apply_pass(*device_, segments, clip_pass{*options_.clip_value}, own, scale,
                 pass_arrays<Element, 1>{clipped_.data()}, pass_arrays<const Element, 1>{gradients});
      gradients = clipped_.data();
    }
    if (divides) {
      rule_->update_divided(segments, values, gradients, own, scale);
    } else {
      rule_->update(segments, values, gradients, own);
    }
    if (options_.average) {
      apply_pass(*device_, segments, average_pass{*options_.average}, own, scale,
                 pass_arrays<Element, 1>{average_.data()}, pass_arrays<const Element, 1>{values});
    }
  }

  /// The buffers of the rule; "average"; "gradient_norm", five doubles, what the next report counts; "loss_scale",
  /// three doubles: the scale, the good steps and the skipped steps. A state into which they are loaded continues from
  /// there.
  [[nodiscard]] dynamic_array<state_buffer> buffers() override {
    dynamic_array<state_buffer> result = rule_->buffers();
    const auto add = [&]<class Buffer>(std::string_view which, Buffer* data, index_t count) {
      result.push_back({.name = std::string{which},
                        .bytes = std::as_writable_bytes(std::span{data, static_cast<std::size_t>(count)}),
                        .elements = count,
                        .element = element_name<Buffer>});
    };
    if (options_.average) {
      add("average", average_.data(), average_.size());
    }
    if (clips_norm()) {
      add("gradient_norm", numbers_.data() + index_of(update_number::last), norms);
    }
    if (scales_loss()) {
      add("loss_scale", numbers_.data(), index_t{index_of(update_number::not_finite)});
    }
    return result;
  }

  [[nodiscard]] std::unique_ptr<base> with_state_on(cpu& device, index_t elements) const override {
    return std::make_unique<composed_update<Element, cpu>>(device, options_, rule_->with_state_on(device, elements),
                                                           elements);
  }

  [[nodiscard]] bool needs_all_gradients() const noexcept override { return scales_loss() || clips_norm(); }
  void test(std::span<const segment> segments, const Element* gradients) override {
    const auto at = [this](update_number which) { return numbers_.data() + index_of(which); };
    if (scales_loss()) {
      note_not_finite(*device_, segments, gradients, at(update_number::total_not_finite));
    }
    if (clips_norm()) {
      add_squares(*device_, segments, gradients, at(update_number::total_squares));
    }
  }
  [[nodiscard]] std::span<double> totals() noexcept override {
    constexpr int first = index_of(update_number::total_not_finite);
    return {numbers_.data() + first, index_of(update_number::last) - first};
  }
  void use_totals() override {
    const floating_point_scope arithmetic{flushes_denormals_on(*device_)};
    decide_step_on(*device_, options_.max_norm.value_or(std::numeric_limits<double>::infinity()), options_.loss_scaling,
                   numbers_.data());
  }

  [[nodiscard]] bool scales_loss() const noexcept override { return options_.loss_scaling.enabled; }
  [[nodiscard]] loss_scale scale() const noexcept override {
    if (!scales_loss()) {
      return {};
    }
    return on_host ? loss_scale{.factor = number(update_number::scale), .numbers = nullptr}
                   : loss_scale{.factor = 1, .numbers = numbers_.data()};
  }
  [[nodiscard]] std::optional<loss_scale_report> report() override {
    if (!scales_loss()) {
      return std::nullopt;
    }
    const host_numbers now = on_the_host();
    const auto at = [&](update_number which) { return now[static_cast<std::size_t>(index_of(which))]; };
    return loss_scale_report{.scale = at(update_number::scale),
                             .good_steps = static_cast<index_t>(at(update_number::good_steps)),
                             .skipped_steps = static_cast<index_t>(at(update_number::skipped_steps))};
  }

  [[nodiscard]] bool clips_norm() const noexcept override { return options_.max_norm.has_value(); }
  [[nodiscard]] std::optional<double> gradient_norm() const noexcept override {
    if (!on_host || !clips_norm() || number(update_number::step_not_finite) != 0) {
      return std::nullopt;
    }
    return number(update_number::last);
  }
  [[nodiscard]] std::optional<gradient_norm_report> take_norm_report() override {
    if (!clips_norm()) {
      return std::nullopt;
    }
    host_numbers now = on_the_host();
    const gradient_norm_report result = detail::take_norm_report(now.data());
    constexpr int first = index_of(update_number::last);
    device_->copy_from_host(numbers_.data() + first, now.data() + first, norms * sizeof(double));
    return result;
  }

  void swap_average(std::span<Element> values) override {
    if (!options_.average) {
      base::swap_average(values);
    }
    if (static_cast<index_t>(values.size()) != average_.size()) {
      raise<shape_error>("swap_average", {"the ", average_.size(), " values of the network with the averages"},
                         {values.size(), " values"},
                         "parameter servers keep the averages: train with parallel::all_reduce or sharded_update");
    }
    const segment all[] = {{.name = {}, .offset = 0, .size = average_.size(), .decay = false}};
    apply_pass(*device_, std::span<const segment>{all}, swap_pass{}, update_step{0}, loss_scale{},
               pass_arrays<Element, 2>{values.data(), average_.data()}, pass_arrays<const Element, 1>{values.data()});
  }
  [[nodiscard]] base& innermost() noexcept override { return rule_->innermost(); }
  [[nodiscard]] int threads() const override { return rule_->threads(); }

 private:
  using typename base::piece_function;
  using host_numbers = std::array<double, static_cast<std::size_t>(numbers)>;

  void run_pieces(index_t count, index_t grain, const void* body, piece_function call) override {
    rule_->parallel_for(count, grain, [=](index_t begin, index_t end) { call(body, begin, end); });
  }

  /// @pre on_host
  [[nodiscard]] double number(update_number which) const noexcept { return numbers_.data()[index_of(which)]; }
  /// On a GPU it waits for the device.
  [[nodiscard]] host_numbers on_the_host() {
    host_numbers now{};
    device_->copy_to_host(now.data(), numbers_.data(), sizeof(now));
    return now;
  }

  Device* device_;
  update_options options_;
  std::unique_ptr<base> rule_;
  tensor<double, 1, row_major, Device> numbers_;   // in the order of update_number
  tensor<Element, 1, row_major, Device> clipped_;  // gradients (parameters), or empty
  tensor<Element, 1, row_major, Device> average_;  // (parameters), or empty
};

}  // namespace gradus::optim::detail
