// SPDX-License-Identifier: BSL-1.0
//
// What a trainer is made of, without types.
#pragma once

#include <concepts>     // std::derived_from
#include <memory>       // std::make_unique, std::unique_ptr
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::remove_cvref_t
#include <utility>      // std::forward, std::move

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/watch.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/update_rule.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/train/detail/trainer/parts.hpp"
#include "gradus/train/detail/trainer/trainer_base.hpp"

namespace gradus::train::detail {

/// What a trainer is made of, without the types of rule, communicator and strategy.
template <class Network>
struct training_recipe {
  using element = parameter_element_t<typename Network::element_type>;
  using device = typename Network::device_type;
  using rule_type = optim::parameter_update<element>;
  using strategy_type = parallel::strategy<element>;

  comm::any_communicator ranks;
  const void* rule;
  const void* strategy;
  std::string (*describe_rule)(const void* rule);
  std::unique_ptr<rule_type> (*make_rule)(const void* rule, device& device, index_t elements);
  std::unique_ptr<strategy_type> (*make_strategy)(const void* strategy, comm::any_communicator& ranks,
                                                  const parallel::flat_parameters<element>& parameters);
  std::string_view strategy_name;
  bool on_servers;  // servers update
  std::unique_ptr<comm::rule_watch> rule_watch{};
  std::unique_ptr<fit_watch<Network>> watch{};
};

/// All that it is given outlives the result.
template <class Network, class Update, class Communicator, class Strategy>
[[nodiscard]] training_recipe<Network> recipe_of(const Update& rule, Communicator&& communicator,
                                                 const Strategy& options) {
  using element = typename training_recipe<Network>::element;
  using device = typename training_recipe<Network>::device;
  using communicator_type = std::remove_cvref_t<Communicator>;
  static_assert(explain_trainer_arguments<Update, communicator_type>());
  static_assert(optim::explain_update_rule<optim::rule_of<Update>, element, device>());
  static_assert(parallel::explain_strategy<Strategy, element>());
  static_assert(communicator_type::template supports<element>,
                "gradus: this communicator cannot send the parameters of this network; see its `supports`");
  using strategy_state = parallel::strategy_state<Strategy, element>;
  static_assert(
      !std::derived_from<strategy_state, parallel::partial_strategy<element>> || optim::elementwise_update_rule<Update>,
      "gradus: parallel::sharded_update updates parts of parameters on each rank; this update rule needs "
      "whole ones, as optim::lars does, or does not say that it does not (static constexpr bool elementwise "
      "= true): train with parallel::all_reduce");
  training_recipe<Network> result{
      .ranks = comm::any_communicator{std::forward<Communicator>(communicator)},
      .rule = &rule,
      .strategy = &options,
      .describe_rule = [](const void* of) { return std::string{static_cast<const Update*>(of)->description()}; },
      .make_rule = [](const void* of, device& on,
                      index_t elements) -> std::unique_ptr<optim::parameter_update<element>> {
        auto made = optim::make_parameter_update<element>(on, *static_cast<const Update*>(of), elements);
        if constexpr (requires { Strategy::template rule_of<element>(std::move(made)); }) {
          return Strategy::template rule_of<element>(std::move(made));
        } else {
          return made;
        }
      },
      .make_strategy =
          [](const void* of, comm::any_communicator& ranks,
             const parallel::flat_parameters<element>& parameters) -> std::unique_ptr<parallel::strategy<element>> {
        const Strategy& chosen = *static_cast<const Strategy*>(of);
        if constexpr (requires { typename Strategy::template state_over<element, communicator_type>; }) {
          using state = typename Strategy::template state_over<element, communicator_type>;
          return std::make_unique<state>(chosen, ranks, parameters);
        } else {
          return parallel::make_strategy<element>(chosen, ranks, parameters);
        }
      },
      .strategy_name = Strategy::name,
      .on_servers = std::derived_from<strategy_state, parallel::server_strategy<element>>};
  if constexpr (watched_communicator<communicator_type>) {
    result.rule_watch = comm::rule_watch_of(communicator);
    result.watch =
        training_watch<typename communicator_type::recorder_type>::template make<Network>(communicator.recorder());
  }
  return result;
}

/// @throws configuration_error always
[[noreturn]] inline void raise_not_made(error_location where) {
  raise<configuration_error>("trainer", "a trainer that was made with an update rule",
                             "one that was made with an optimizer_step", "the program has its rule and its strategy",
                             where);
}

/// @throws configuration_error always
[[noreturn]] GRADUS_COLD inline void raise_other_type(std::string_view what, std::string_view name,
                                                      error_location where) {
  raise<configuration_error>(what, "the type that the trainer was made with", "another one",
                             gradus::join({"it was made with '", name, "'"}), where);
}

}  // namespace gradus::train::detail
