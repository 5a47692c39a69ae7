// SPDX-License-Identifier: BSL-1.0
//
// A layer in the graph of a network, with its parameters and buffers.
#pragma once

#include <cstddef>      // std::size_t
#include <memory>       // std::unique_ptr
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
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

/// Checks what a layer tells of its parameters and buffers, as network::add does. @pre infer was called
/// @throws configuration_error unless each has a name of its own in the layer, a parameter has rank 1 (and then one
///         extent), 2 or 4, and a buffer has as many initial values as elements, or one for all
void require_parameters(const layer_base& layer, std::span<const parameter_description> parameters);

}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn {

GRADUS_INLINE void require_parameters(const layer_base& layer, std::span<const parameter_description> parameters) {
  dynamic_array<std::string_view> names;
  const auto require_name = [&](std::string_view what, std::string_view name) {
    for (const std::string_view other : names) {
      if (other == name) {
        raise<configuration_error>(layer.kind(), "parameters and buffers with names of their own",
                                   {"a ", what, " '", name, "' again"},
                                   "initial values, files of weights and find_parameter go by the name");
      }
    }
    if (name.empty()) {
      raise<configuration_error>(layer.kind(), "parameters and buffers with names",
                                 {"", what, " ", names.size(), " without one"},
                                 "set .name, as in {.name = \"weight\", ...}");
    }
    names.push_back(name);
  };
  for (const parameter_description& p : parameters) {
    require_name("parameter", p.name);
    if (p.rank != 1 && p.rank != 2 && p.rank != 4) {
      raise<configuration_error>(layer.kind(), {"rank 1, 2 or 4 of the parameter '", p.name, "'"}, {p.rank});
    }
    if (p.rank == 1 && (p.shape.c != 1 || p.shape.h != 1 || p.shape.w != 1)) {
      raise<configuration_error>(layer.kind(), {"the shape (o, 1, 1, 1) of the parameter '", p.name, "' of rank 1"},
                                 to_string(p.shape), "write .shape = {elements, 1, 1, 1}, or .rank = 4");
    }
  }
  const std::vector<buffer_description> buffers = layer.buffers();
  for (const buffer_description& b : buffers) {
    require_name("buffer", b.name);
    if (!b.values.empty() && static_cast<index_t>(b.values.size()) != b.size) {
      raise<configuration_error>(layer.kind(), {b.size, " values of the buffer '", b.name, "', or none"},
                                 {b.values.size()});
    }
  }
}

GRADUS_INLINE index_t graph_node::parameter_count() const {
  index_t total = 0;
  for (const parameter_description& p : parameters) {
    total += p.shape.size();
  }
  return total;
}

}  // namespace gradus::nn
#endif
