// SPDX-License-Identifier: BSL-1.0
//
// The text of a graph that is equal for networks that compute the same.
#pragma once

#include <cstddef>  // std::size_t
#include <span>     // std::span
#include <string>   // std::string

#include "gradus/core/compiled.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/network/parameter_options.hpp"
#include "gradus/nn/plan/graph_node.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::nn::detail {

/// As graph::describe.
/// @param shapes  of the input and the output of each layer
/// @param groups  appends what network::group has changed; null: nothing
[[nodiscard]] std::string graph_text(std::span<const graph_node> nodes, std::span<const value_shape> shapes,
                                     decltype(&append_groups) groups);

}  // namespace gradus::nn::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_COLD GRADUS_INLINE std::string graph_text(std::span<const graph_node> nodes, std::span<const value_shape> shapes,
                                                 decltype(&append_groups) groups) {
  std::string text{"input"};
  append_right(text, to_string(shapes.front()), 36);
  text += '\n';
  index_t parameters = 0;
  index_t multiply_adds = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const graph_node& n = nodes[i];
    append_left(text, n.name, 24);
    append_left(text, n.layer->kind(), 24);
    append_right(text, to_string(shapes[i + 1]), 20);
    append_right(text, gradus::join({n.parameter_count()}), 14);
    append_right(text, gradus::join({n.layer->multiply_adds()}), 16);
    text += n.evaluates ? "  frozen, evaluates\n" : n.frozen ? "  frozen\n" : "\n";
    parameters = gradus::detail::bounded_sum(parameters, n.parameter_count());
    multiply_adds = gradus::detail::bounded_sum(multiply_adds, n.layer->multiply_adds());
  }
  append_text(text, {"parameters: ", parameters, ", multiply-adds per example: ", multiply_adds, "\n"});
  for (std::size_t i = 0; groups != nullptr && i < nodes.size(); ++i) {
    groups(text, nodes[i].layer->parameters(), nodes[i].parameters);
  }
  return text;
}

}  // namespace gradus::nn::detail
#endif
