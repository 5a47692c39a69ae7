// SPDX-License-Identifier: BSL-1.0
//
// What a network hands to a layer when a pass comes to it, whatever the layout is.
#pragma once

#include <cstddef>  // std::byte, std::size_t
#include <span>     // std::span

#include "gradus/core/element.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn::detail {

/// A dense batch of images, in the order of the network's layout.
template <class Element>
struct image_memory {
  Element* data = nullptr;
  extents<4> shape{};  ///< n, c, h, w

  [[nodiscard]] index_t examples() const noexcept { return shape[0]; }
};

/// One gradient that a layer writes; without memory, nobody wants it.
template <class Element>
struct gradient_memory {
  image_memory<Element> images;
  kernels::backward_epilogue<Element> epilogue;
};

/// What both passes of a layer are given.
template <class Element, class Device>
struct layer_call {
  Device& device;
  void* layer;        ///< graph::node::passes
  std::size_t place;  ///< of the first of as many inputs as any layer has, counted over the streams
  std::span<const image_memory<const Element>> inputs;
  image_memory<Element> output;
  std::span<const parameter_memory<parameter_element_t<Element>>> parameters;
  std::span<parameter_element_t<Element>* const> buffers;
  std::span<std::byte> state;
  std::span<std::byte> workspace;
  const step_context& context;
};

}  // namespace gradus::nn::detail
