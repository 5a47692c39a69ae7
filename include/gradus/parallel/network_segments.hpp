// SPDX-License-Identifier: BSL-1.0
//
// The parameters of a network as segments of its flat buffers.
#pragma once

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/optim/segment.hpp"

namespace gradus::parallel {

/// The ranges of a network's parameters in its flat buffers.
using segment_list = dynamic_array<optim::segment>;

/// One segment for each parameter that is trained, in the order of network.trained_parameters(). @pre the network is
/// compiled, or was forecast
[[nodiscard]] segment_list segments_of(const nn::graph& network);

}  // namespace gradus::parallel

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::parallel {

GRADUS_INLINE segment_list segments_of(const nn::graph& network) {
  segment_list segments;
  segments.reserve(network.trained_parameters().size());
  for (const nn::parameter_description* const p : network.trained_parameters()) {
    segments.push_back({.name = p->name,
                        .offset = p->offset,
                        .size = p->shape.size(),
                        .decay = p->decay,
                        .learning_rate_factor = p->learning_rate_factor});
  }
  return segments;
}

}  // namespace gradus::parallel
#endif
