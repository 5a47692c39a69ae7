// SPDX-License-Identifier: BSL-1.0
//
// A network cut into stages that follow each other, of which a rank runs some.
#pragma once

#include <algorithm>  // std::find, std::upper_bound
#include <cstddef>    // std::size_t

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"

namespace gradus::nn {

/// Which layers form the stages of a network, and which stages this rank runs. Stage s has the layers
/// [first_layers[s], first_layers[s + 1]) in the order of network::add; the last one ends with the network.
struct stage_cuts {
  dynamic_array<std::size_t> first_layers;  ///< of each stage, ascending; the first is 0
  dynamic_array<std::size_t> own;           ///< the stages of this rank, ascending

  /// The number of stages of all ranks.
  [[nodiscard]] std::size_t stages() const noexcept { return first_layers.size(); }
  /// The stage of a layer.
  [[nodiscard]] std::size_t stage_of(std::size_t layer) const noexcept {
    const auto next = std::upper_bound(first_layers.begin(), first_layers.end(), layer);
    return static_cast<std::size_t>(next - first_layers.begin()) - 1;
  }
  /// The layer after the last one of a stage. @param layers  of the network
  [[nodiscard]] std::size_t end_of(std::size_t stage, std::size_t layers) const noexcept {
    return stage + 1 < stages() ? first_layers[stage + 1] : layers;
  }
  /// Whether this rank runs a layer.
  [[nodiscard]] bool owns(std::size_t layer) const noexcept {
    return std::find(own.begin(), own.end(), stage_of(layer)) != own.end();
  }

  /// @param layers  of the network
  /// @throws configuration_error unless every stage has a layer, and this rank a stage
  void check(std::size_t layers) const;
};

}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn {

GRADUS_INLINE void stage_cuts::check(std::size_t layers) const {
  bool valid = !first_layers.empty() && first_layers.front() == 0 && first_layers.back() < layers && !own.empty() &&
               own.back() < first_layers.size();
  for (std::size_t s = 1; valid && s < first_layers.size(); ++s) {
    valid = first_layers[s - 1] < first_layers[s];
  }
  for (std::size_t k = 1; valid && k < own.size(); ++k) {
    valid = own[k - 1] < own[k];
  }
  if (!valid) {
    raise<configuration_error>(
        "network.compile_stages",
        {"ascending first layers of stages, 0 and others below ", layers, ", and the stages of this rank, ascending"},
        {first_layers.size(), " first layers and ", own.size(), " stages of this rank"});
  }
}

}  // namespace gradus::nn
#endif
