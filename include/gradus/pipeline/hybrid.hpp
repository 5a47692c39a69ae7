// SPDX-License-Identifier: BSL-1.0
//
// A trainer whose network is cut into stages on several ranks: parallel::hybrid.
#pragma once

#include <string>  // std::string

#include "gradus/core/error.hpp"
#include "gradus/pipeline/detail/training/pipeline_execution.hpp"
#include "gradus/pipeline/strategy.hpp"
#include "gradus/train/detail/state/access.hpp"
#include "gradus/train/trainer.hpp"

namespace gradus::train {

/// The stages of a network for a trainer that is made with an optimizer_step, whose strategy is a parallel::hybrid with
/// the same options. A trainer that makes its strategy makes them by itself.
///
/// @code
///   auto stages = std::make_unique<train::pipeline<network>>(options);
///   stages->prepare(net, ranks);  // ranks: a comm::any_communicator; cuts and compiles the network
///   // ... parameters, rule, strategy and end, as trainer says
///   train::trainer trainer{net, end, end.group(), std::move(stages)};
/// @endcode
template <class Network>
using pipeline = detail::pipeline_execution<Network>;

/// The stages that a trainer by parallel::hybrid has cut its network into: a table for people, with the layers, memory
/// and time of each stage and the bytes at each cut. The same on all ranks.
/// @throws configuration_error if it trains by another strategy
template <class Network>
[[nodiscard]] std::string stages_of(trainer<Network>& of) {
  const auto* const own = dynamic_cast<pipeline<Network>*>(&detail::trainer_access::execution_of(of));
  if (own == nullptr) {
    raise<configuration_error>("train::stages_of", "a trainer by parallel::hybrid", "one by another strategy");
  }
  return own->cut().text;
}

}  // namespace gradus::train
