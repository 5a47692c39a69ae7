// SPDX-License-Identifier: BSL-1.0
//
// Values of a layer graph: the handle that network::add returns, and the shape of one example.
#pragma once

#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint64_t
#include <string>   // std::string

#include "gradus/core/config.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"

namespace gradus::nn {

/// A handle of a layer's output or of the network's input; network::add takes and returns it. Cheap to copy. A network
/// refuses values of other networks and default-constructed ones.
struct value {
  std::size_t index = 0;      ///< 0 for the network's input, i + 1 for the output of layer i
  std::uint64_t network = 0;  ///< graph::identity of the network that made it
};

/// The shape of one example of a value: an image of (channels, height, width), in elements.
///
/// A vector of features is an image of one pixel. `flattened` marks an image that is read as the vector of its elements
/// in the order (c, h, w). Its memory keeps the order of the layout, so nn::flatten moves nothing.
struct value_shape {
  index_t channels = 0;    ///< planes of the image, or features of a vector
  index_t height = 1;      ///< rows of a plane
  index_t width = 1;       ///< columns of a plane
  bool flattened = false;  ///< true: layers read the image as a vector of size() features

  /// Elements of one example.
  [[nodiscard]] constexpr index_t size() const { return image_extents{1, channels, height, width}.size(); }

  /// The shape of a batch: (examples, channels, height, width).
  [[nodiscard]] constexpr image_extents batch(index_t examples) const noexcept {
    return {examples, channels, height, width};
  }

  /// Equal extents and equal `flattened`.
  friend constexpr bool operator==(const value_shape&, const value_shape&) noexcept = default;
};

/// "(64, 14, 14)", or "(12544)" for a vector.
[[nodiscard]] inline std::string to_string(const value_shape& shape) {
  if (shape.flattened || (shape.height == 1 && shape.width == 1)) {
    return gradus::join({"(", shape.size(), ")"});
  }
  return gradus::join({"(", shape.channels, ", ", shape.height, ", ", shape.width, ")"});
}

/// The value in messages: "the image (4, 5, 6)", "the flattened image (4, 5, 6)" or "the vector (120)".
[[nodiscard]] GRADUS_COLD inline std::string describe(const value_shape& shape) {
  if (!shape.flattened) {
    return (shape.height == 1 && shape.width == 1 ? "the vector " : "the image ") + to_string(shape);
  }
  return gradus::join({"the flattened image (", shape.channels, ", ", shape.height, ", ", shape.width, ")"});
}

}  // namespace gradus::nn
