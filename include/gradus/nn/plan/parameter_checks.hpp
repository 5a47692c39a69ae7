// SPDX-License-Identifier: BSL-1.0
//
// What layers may tell of their parameters and buffers.
#pragma once

#include <span>         // std::span
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

namespace detail {

/// True if the product of the extents is at most `most`.
[[nodiscard]] constexpr bool has_few_elements(const image_extents& shape, index_t most = most_elements) noexcept {
  index_t left = most;
  for (const index_t extent : {shape.n, shape.c, shape.h, shape.w}) {
    left /= extent < 1 ? index_t{1} : extent;
  }
  return left >= 1;
}

}  // namespace detail

/// Checks what a layer tells of its parameters and buffers, as network::add does. @pre infer was called
/// @throws configuration_error unless each has a name of its own in the layer, a parameter has rank 1 (and then one
///         extent), 2 or 4, and a buffer has as many values as elements, or none
/// @throws shape_error unless each parameter has 1 to 2^48 elements
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
    if (p.shape.n < 1 || p.shape.c < 1 || p.shape.h < 1 || p.shape.w < 1) {
      raise<shape_error>(layer.kind(), {"a parameter '", p.name, "' of at least 1 element"}, to_string(p.shape),
                         "infer stores the shapes from which parameters() makes its own");
    }
    if (!detail::has_few_elements(p.shape)) {
      raise<shape_error>(layer.kind(), {"a parameter '", p.name, "' of at most ", detail::most_elements, " elements"},
                         to_string(p.shape), "use fewer channels, or a smaller kernel");
    }
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

}  // namespace gradus::nn
#endif
