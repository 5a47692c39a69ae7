// SPDX-License-Identifier: BSL-1.0
//
// The update rule that moves the parameters of all ranks when they meet, of any type.
#pragma once

#include <memory>       // std::make_shared, std::shared_ptr, std::unique_ptr
#include <string>       // std::string
#include <type_traits>  // std::is_same_v, std::remove_cvref_t

#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/update_rule.hpp"

namespace gradus::parallel {

/// The outer optimizer of model_averaging: an update rule, or an optim::update around one, whose type is known when the
/// program runs. It converts from any of them; without a rule there is none.
///
/// @code
///   parallel::model_averaging options{.every_steps = 500, .outer = optim::sgd{.momentum = 0.9, .nesterov = true}};
/// @endcode
class outer_optimizer {
 public:
  /// No rule: parameters are averaged.
  outer_optimizer() = default;

  /// This rule. It is checked when the trainer is made.
  template <class Update>
  requires(!std::is_same_v<Update, outer_optimizer>)
      // NOLINTNEXTLINE(google-explicit-constructor): written as .outer = optim::sgd{...}
      outer_optimizer(const Update& update)
      : rule_{std::make_shared<rule_of_type<Update>>(update)} {
    static_assert(optim::explain_update_rule<optim::rule_of<Update>>());
  }

  /// Whether there is a rule.
  [[nodiscard]] explicit operator bool() const noexcept { return rule_ != nullptr; }
  /// The rule and its hyper-parameters; ranks compare it. @pre there is a rule
  [[nodiscard]] std::string description() const { return rule_->description(); }
  /// The rule with a state for `elements` parameters of float or double.
  /// @param device  outlives the result
  /// @pre there is a rule
  /// @throws configuration_error if a hyper-parameter is invalid
  template <class Element>
  [[nodiscard]] std::unique_ptr<optim::parameter_update<Element>> make(cpu& device, index_t elements) const {
    std::unique_ptr<optim::parameter_update<Element>> made;
    rule_->make(device, elements, made);
    return made;
  }

 private:
  struct any_rule {
    any_rule() = default;
    any_rule(const any_rule&) = delete;
    any_rule& operator=(const any_rule&) = delete;
    virtual ~any_rule() = default;
    [[nodiscard]] virtual std::string description() const = 0;
    virtual void make(cpu& device, index_t elements, std::unique_ptr<optim::parameter_update<float>>& made) const = 0;
    virtual void make(cpu& device, index_t elements, std::unique_ptr<optim::parameter_update<double>>& made) const = 0;
  };

  template <class Update>
  struct rule_of_type final : any_rule {
    explicit rule_of_type(const Update& of) : update{of} {}
    [[nodiscard]] std::string description() const override { return std::string{update.description()}; }
    void make(cpu& device, index_t elements, std::unique_ptr<optim::parameter_update<float>>& made) const override {
      made = optim::make_parameter_update<float>(device, update, elements);
    }
    void make(cpu& device, index_t elements, std::unique_ptr<optim::parameter_update<double>>& made) const override {
      made = optim::make_parameter_update<double>(device, update, elements);
    }
    Update update;
  };

  std::shared_ptr<const any_rule> rule_;
};

}  // namespace gradus::parallel
