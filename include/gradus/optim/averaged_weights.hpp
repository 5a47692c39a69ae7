// SPDX-License-Identifier: BSL-1.0
//
// The exponential moving average of the weights: an update rule around any other rule.
#pragma once

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
#include "gradus/optim/elementwise_pass.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_rule.hpp"
#include "gradus/optim/update_step.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus::optim {

namespace detail {

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

}  // namespace detail

/// An update rule that also keeps the exponential moving average of the weights, which often generalizes better than
/// the last weights. After each step of the rule, for each parameter p:
///
///   a <- decay * a + (1 - decay) * p         (a = p after the first step; "average")
///
/// This is torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn. It costs one more pass over memory. Training
/// does not see the averages. To evaluate or to save them, exchange them with the weights, and back before the next
/// step; on all ranks, between calls of fit or in on_epoch:
///
///   using averages = optim::averaged_weights<optim::sgd>;
///   train::trainer trainer{net, averages{.rule = {.momentum = 0.9}, .decay = 0.999}};
///   trainer.fit(loader, {.epochs = 2});
///   trainer.update_state<averages>().swap(device, net.values());
///   const auto report = trainer.evaluate(loader);  // of the averages
///   trainer.update_state<averages>().swap(device, net.values());
///
/// Running statistics of normalization are not averaged. With parameter servers the averages are on the servers, and
/// `swap` refuses. With optim::scaled_loss write scaled_loss<averaged_weights<Rule>>: skipped steps then do not count.
/// Polyak, Juditsky: "Acceleration of stochastic approximation by averaging", 1992; the exponential form is that of
/// Szegedy et al.: "Rethinking the Inception architecture for computer vision", 2016, section 8.
template <class Rule>
struct averaged_weights {
  /// The name of the rule in messages and files.
  static constexpr std::string_view name = "averaged_weights";
  /// As the rule that is averaged.
  static constexpr bool elementwise = elementwise_update_rule<Rule>;
  static_assert(!scales_loss<Rule>,
                "gradus: averaged_weights inside scaled_loss skips the steps that scaled_loss skips: write "
                "optim::scaled_loss<optim::averaged_weights<Rule>>");
  static_assert(!clips_norm<Rule>,
                "gradus: clipped_norm needs all gradients before a step: write "
                "optim::clipped_norm<optim::averaged_weights<Rule>>");

  /// The rule that makes the steps.
  Rule rule{};
  double decay = 0.999;  ///< in [0, 1): weight of the old average

  /// @throws configuration_error if a value is invalid
  void check() const {
    rule.check();
    detail::require_in_range(name, "decay", decay, 0.0, 1.0, "a decay in [0, 1)",
                             "0.999 and 0.9999 are usual, for thousands of steps");
  }

  /// A text that identifies these hyper-parameters; ranks compare it before the first step.
  [[nodiscard]] std::string description() const {
    return detail::describe(name, {decay}).append(" of ").append(rule.description());
  }

  /// True if all members are equal.
  friend bool operator==(const averaged_weights&, const averaged_weights&) noexcept = default;

  template <class Element, class Device = cpu>
  class state;
};

/// The state of the rule and the averages of all parameters.
template <class Rule>
template <class Element, class Device>
class averaged_weights<Rule>::state {
  using inner_state = typename Rule::template state<Element, Device>;

 public:
  /// @param parameters  number of elements of the flat buffers of values and gradients
  /// @throws configuration_error as check() does
  state(Device& device, const averaged_weights& rule, index_t parameters)
      : rule_{(rule.check(), rule)}, inner_{device, rule.rule, parameters}, average_{device, {parameters}} {}

  /// Runs one step of the rule and updates the averages, for the parameters of `segments`.
  /// @throws configuration_error, shape_error as the rule's state does
  void update(Device& device, std::span<const segment> segments, Element* values, const Element* gradients,
              const update_step& step) {
    const floating_point_scope arithmetic{flushes_denormals_on(device)};
    inner_.update(device, segments, values, gradients, step);
    average(device, segments, values, step, {});
  }

  /// The same where gradients have been multiplied by a factor; see scaled_loss.
  void update(Device& device, std::span<const segment> segments, Element* values, const Element* gradients,
              const update_step& step,
              const loss_scale& scale) requires divides_gradients<inner_state, Element, Device> {
    const floating_point_scope arithmetic{flushes_denormals_on(device)};
    inner_.update(device, segments, values, gradients, step, scale);
    average(device, segments, values, step, scale);
  }

  /// Exchanges the averages with the values of a network. Before the first step all averages are 0.
  /// @param values  the flat buffer of the parameters that are trained, in the memory of the device: network.values(),
  ///                or network.trained_values() of a network with frozen layers
  /// @throws shape_error if there are more or fewer values than averages
  void swap(Device& device, std::span<Element> values) {
    if (static_cast<index_t>(values.size()) != average_.size()) {
      raise<shape_error>("averaged_weights.swap", {"the ", average_.size(), " values of the network with the averages"},
                         {values.size(), " values"},
                         "call it with network.values(), or trained_values() if layers are frozen, on a rank that "
                         "updates: parameter servers keep the averages");
    }
    const segment all[] = {{.name = {}, .offset = 0, .size = average_.size(), .decay = false}};
    apply_pass(device, std::span<const segment>{all}, detail::swap_pass{}, update_step{0}, loss_scale{},
               pass_arrays<Element, 2>{values.data(), average_.data()}, pass_arrays<const Element, 1>{values.data()});
  }

  /// Calls visitor(name, data, count) for the rule's buffers and for "average", in device memory.
  template <class Visitor>
  void visit_buffers(Visitor&& visitor) {
    inner_.visit_buffers(visitor);
    visitor(std::string_view{"average"}, average_.data(), average_.size());
  }

  /// The hyper-parameters.
  [[nodiscard]] const averaged_weights& rule() const noexcept { return rule_; }
  /// The state of the rule that makes the steps.
  [[nodiscard]] inner_state& inner() noexcept { return inner_; }

 private:
  void average(Device& device, std::span<const segment> segments, const Element* values, const update_step& step,
               const loss_scale& scale) {
    apply_pass(device, segments, detail::average_pass{rule_.decay}, step, scale,
               pass_arrays<Element, 1>{average_.data()}, pass_arrays<const Element, 1>{values});
  }

  averaged_weights rule_;
  inner_state inner_;
  tensor<Element, 1, row_major, Device> average_;  // (parameters)
};

}  // namespace gradus::optim
