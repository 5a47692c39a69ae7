// SPDX-License-Identifier: BSL-1.0
//
// What ranks measure of the parameters that they train, for those of the whole network.
#pragma once

#include <cstddef>  // std::size_t
#include <string>   // std::string
#include <utility>  // std::move

#include "gradus/core/dynamic_array.hpp"
#include "gradus/train/detail/state/plan.hpp"

namespace gradus::train::detail {

/// Some numbers of each parameter that is trained, such as the sum of the squares of its gradient.
struct parameter_table {
  dynamic_array<std::string> names;  ///< in the order of network::parameters(): the last layer first
  dynamic_array<double> numbers;     ///< (parameter, number)
};

/// The table of the whole network, on all ranks. Called by all ranks that train; only those with stages of a network
/// communicate.
/// @param own       of this rank's parameters
/// @param columns   numbers of a parameter
template <class Network>
[[nodiscard]] parameter_table table_of_network(const training_parts<Network>& training, parameter_table own,
                                               std::size_t columns) {
  const nn::graph& graph = training.network->structure();
  if (!graph.in_stages()) {
    return own;
  }
  const int rank = training.group->rank();
  parameter_table all;
  std::size_t next = 0;  // of this rank's
  for (const state_parameter& each : parameters_of_state(graph, training.end->strategy())) {
    if (!each.trained) {
      continue;
    }
    all.names.push_back(each.description->name);
    for (std::size_t column = 0; column < columns; ++column) {
      all.numbers.push_back(each.stage == rank ? own.numbers[columns * next + column] : 0);  // else of another replica
    }
    next += each.here ? 1 : 0;
  }
  training.group->sum({all.numbers.data(), all.numbers.size()});
  return all;
}

}  // namespace gradus::train::detail
