// SPDX-License-Identifier: BSL-1.0
//
// An update rule and what is done around it: clipping, loss scaling, averaged weights.
#pragma once

#include <memory>       // std::make_unique, std::unique_ptr
#include <optional>     // std::optional
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_same_v

#include "gradus/core/index.hpp"
#include "gradus/optim/detail/update/composed_update.hpp"
#include "gradus/optim/detail/update/update_options.hpp"
#include "gradus/optim/loss_scaling.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update_rule.hpp"

namespace gradus::optim {

/// An update rule and what is done around it. The order of the parts is fixed, whatever is chosen. In each step, for
/// the gradients g and the parameters p:
///
///   1. loss_scaling   the loss has been multiplied by a scale s, and g <- g / s. A step with a gradient that is
///                     infinite or NaN changes nothing but the scale
///   2. max_norm       g <- min(1, max_norm / (norm + 1e-6)) * g, with the Euclidean norm over the gradients of all
///                     parameters: torch.nn.utils.clip_grad_norm_
///   3. clip_value     g <- max(-clip_value, min(g, clip_value)): torch.nn.utils.clip_grad_value_
///   4. rule           the rule's step
///   5. average        a <- average * a + (1 - average) * p, where a = p after the first step:
///                     torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn
///
///   train::trainer trainer{net, optim::update{.rule = optim::adam_w{}, .max_norm = 1, .average = 0.999}, world};
///   train::trainer half{net, optim::update{.rule = optim::sgd{.momentum = 0.9}, .loss_scaling = {}}, world};
///
/// All of it goes with every strategy, except where parameters are updated on servers: there the loss cannot be scaled,
/// because workers do not see the scale, and the norm needs synchronous servers without backup workers, because others
/// never have the gradients of one step together. max_norm and loss_scaling need a rule whose state divides
/// gradients (update_rule).
///
/// Loss scaling is for training in float16: small gradients of activations do not become zero. Skipped steps do not
/// count in update_step::number, so that a bias correction does not advance, and not in the average. A scale that is a
/// power of two changes no bit of a step in which nothing overflows or becomes subnormal. All ranks decide alike:
/// they test sums over the ranks, or add up what they have found. With model_averaging a rank decides by itself about
/// the steps that it makes by itself, and has its own scale. trainer.rule().report() tells the scale and the skipped
/// steps. Micikevicius et al.: "Mixed precision training", 2018, section 3.2.
///
/// The norm is that of gradients without the scale, of the mean loss over the global batch; with model_averaging of a
/// rank's own gradients, before the average. It is in train::step_report::gradient_norm and
/// train::epoch_report::gradient_norm. An infinite max_norm reports the norm and never clips: the steps are those of
/// the bare rule, whatever the norm is. Norms that are not finite count as clipped steps: an infinite one makes the
/// factor 0, so gradients that are finite become 0 and those that are infinite become NaN; a norm that is NaN makes all
/// gradients NaN, as error_if_nonfinite=False does. The sum is in double precision: it overflows for double gradients
/// above 1e154, never for float ones. Pascanu, Mikolov, Bengio: "On the difficulty of training recurrent neural
/// networks", 2013, section 3.2.
///
/// Training does not see the averages. trainer.swap_average() exchanges them with the weights, to evaluate or to save
/// them, and back before the next step. Running statistics of normalization are not averaged. Polyak, Juditsky:
/// "Acceleration of stochastic approximation by averaging", 1992; the exponential form is that of Szegedy et al.:
/// "Rethinking the Inception architecture for computer vision", 2016, section 8.
///
/// A step with loss_scaling or max_norm reads the gradients once more, and begins when the last gradient has arrived,
/// also with all_reduce::overlap_forward. The gradients themselves are not written: clip_value takes memory for clipped
/// ones. On a GPU scale, norm and decision stay on the device, and a step never waits for them.
template <class Rule = sgd>
struct update {
  static_assert(std::is_same_v<rule_of<Rule>, Rule>,
                "gradus: an optim::update of another one: write all parts in one, their order is fixed");

  /// The name of the rule in messages and files.
  static constexpr std::string_view name = Rule::name;
  /// As the rule, when what depends on all gradients is known.
  static constexpr bool elementwise = elementwise_update_rule<Rule>;
  /// The rule that makes the steps.
  using rule_type = Rule;

  /// The rule that makes the steps.
  Rule rule{};
  /// Above 0: the largest norm of all gradients that is left as it is. 1 is usual.
  std::optional<double> max_norm{};
  /// Above 0: the largest magnitude of a gradient's element. 0.5 and 1 are usual.
  std::optional<double> clip_value{};
  /// How the loss is scaled: {} is with the usual options.
  optim::loss_scaling loss_scaling{.enabled = false};
  /// In [0, 1): the weight of the old average. 0.999 and 0.9999 are usual, for thousands of steps.
  std::optional<double> average{};

  /// @throws configuration_error if a value is invalid
  void check() const {
    rule.check();
    options().check();
  }

  /// A text that identifies these hyper-parameters; ranks compare it before the first step.
  [[nodiscard]] std::string description() const { return std::string{rule.description()} + options().description(); }

  /// True if all members are equal.
  friend bool operator==(const update&, const update&) noexcept = default;

  /// The rule with its state for `elements` parameters, and what is done around it.
  /// @param device  outlives the result
  /// @throws configuration_error if a value is invalid, or the rule does not divide gradients and has to
  template <class Element, class Device>
  [[nodiscard]] std::unique_ptr<parameter_update<Element>> make(Device& device, index_t elements) const {
    return std::make_unique<detail::composed_update<Element, Device>>(
        device, options(), std::make_unique<parameter_update_of<Rule, Element, Device>>(device, rule, elements),
        elements);
  }

 private:
  [[nodiscard]] detail::update_options options() const {
    return {.max_norm = max_norm, .clip_value = clip_value, .loss_scaling = loss_scaling, .average = average};
  }
};

}  // namespace gradus::optim
