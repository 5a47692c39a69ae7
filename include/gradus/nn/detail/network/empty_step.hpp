// SPDX-License-Identifier: BSL-1.0
//
// A training step in which a rank has no examples. All executions of a network use these two functions.
#pragma once

#include <algorithm>  // std::max, std::min
#include <cstddef>    // std::size_t
#include <limits>     // std::numeric_limits

#include "gradus/core/index.hpp"
#include "gradus/nn/network/step_hooks.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/graph.hpp"

namespace gradus::nn::detail {

/// The layers [first, end) in the order of network::add.
struct layer_range {
  std::size_t first = 0;
  std::size_t end = 0;
};

/// The forward pass of a rank without examples. Hooks are called for each layer in the order in which other ranks
/// compute: a layer that exchanges data with them may wait for a rank that waits for this one's part of an earlier
/// exchange.
/// @param hooks        may be null
/// @param communicate  communicate(layer) runs a layer that exchanges data with other ranks
template <class Communicate>
void skip_forward(const graph& net, const execution_plan& plan, layer_range layers, step_hooks* hooks,
                  const Communicate& communicate) {
  for (std::size_t i = layers.first; i < layers.end; ++i) {
    if (hooks != nullptr && plan.nodes[i].forward) {
      hooks->skip_layer(i);
    }
    if (net.nodes()[i].layer->traits().communicates) {
      communicate(i);
    }
  }
}

/// The backward pass of a rank without examples: gradients become zero. skip_forward comes before, for all layers of
/// the rank: the update of the last step may still read the gradients, and hooks complete it there.
/// @param hooks        may be null
/// @param communicate  communicate(layer) runs a layer that exchanges data with other ranks
/// @param zero         zero(first, count) makes elements of the flat buffer of gradients zero
template <class Communicate, class Zero>
void skip_backward(const graph& net, layer_range layers, step_hooks* hooks, const Communicate& communicate,
                   const Zero& zero) {
  index_t begin = std::numeric_limits<index_t>::max();
  index_t end = 0;
  for (std::size_t i = layers.end; i-- > layers.first;) {
    if (net.nodes()[i].layer->traits().communicates) {
      communicate(i);
    }
    for (const parameter_description& each : net.nodes()[i].trained_here()) {
      begin = std::min(begin, each.offset);
      end = std::max(end, each.offset + each.shape.size());
    }
  }
  if (begin < end) {
    zero(begin, end - begin);
  }
  for (std::size_t i = layers.end; i-- > layers.first && hooks != nullptr;) {
    if (const graph::node& n = net.nodes()[i]; !n.trained_here().empty()) {
      hooks->gradients_ready(n.first_parameter, n.trained_here().size());
    }
  }
}

}  // namespace gradus::nn::detail
