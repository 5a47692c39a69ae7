// SPDX-License-Identifier: BSL-1.0
//
// What a trainer is made of, without types.
#pragma once

#include <memory>       // std::unique_ptr
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/watch.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/parallel/strategy.hpp"
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
  std::unique_ptr<rule_type> (*make_rule)(const void* rule, const void* strategy, device& device, index_t elements);
  std::unique_ptr<strategy_type> (*make_strategy)(const void* strategy, comm::any_communicator& ranks,
                                                  const parallel::flat_parameters<element>& parameters);
  std::string_view strategy_name;
  bool elsewhere;  // servers update
  std::unique_ptr<comm::rule_watch> rule_watch{};
  std::unique_ptr<fit_watch<Network>> watch{};
};

/// @throws configuration_error always
[[noreturn]] inline void raise_other_type(std::string_view what, std::string_view name) {
  raise<configuration_error>(what, "the type that the trainer was made with", "another one",
                             gradus::join({"it was made with '", name, "'"}));
}

}  // namespace gradus::train::detail
