// SPDX-License-Identifier: BSL-1.0
//
// A layer in the graph of a network, with its parameters and buffers.
#pragma once

#include <cstddef>  // std::size_t
#include <memory>   // std::unique_ptr
#include <span>     // std::span
#include <string>   // std::string
#include <vector>   // std::vector

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/parameter.hpp"

namespace gradus::nn {

/// A layer with its inputs, parameters and buffers.
struct graph_node {
  std::string name;                               ///< differs from those of all other layers
  std::unique_ptr<layer_base> layer;              ///< its shapes, parameters and traits
  dynamic_array<std::size_t> inputs;              ///< values
  std::vector<parameter_description> parameters;  ///< named "layer.weight"
  // Set by compile.
  std::size_t first_parameter = 0;          ///< index in graph::parameters()
  std::vector<buffer_description> buffers;  ///< named "layer.running_mean"
  std::size_t first_buffer = 0;             ///< index over the buffers of all layers
  bool here = true;                         ///< this rank runs it; false: a stage of another rank does
  // Set by freeze.
  bool frozen = false;     ///< its parameters are not trained
  bool evaluates = false;  ///< it runs in training as in evaluation

  /// The parameters that are trained: all, or none of a frozen layer.
  [[nodiscard]] std::span<const parameter_description> trained() const noexcept {
    return frozen ? std::span<const parameter_description>{} : std::span{parameters.data(), parameters.size()};
  }
  /// The parameters of trained() that this rank trains. @pre compiled
  [[nodiscard]] std::span<const parameter_description> trained_here() const noexcept {
    return here ? trained() : std::span<const parameter_description>{};
  }

  /// The number of elements of the parameters.
  [[nodiscard]] index_t parameter_count() const;
};

}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn {

GRADUS_INLINE index_t graph_node::parameter_count() const {
  index_t total = 0;
  for (const parameter_description& p : parameters) {
    total += p.shape.size();
  }
  return total;
}

}  // namespace gradus::nn
#endif
