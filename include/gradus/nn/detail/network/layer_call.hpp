// SPDX-License-Identifier: BSL-1.0
//
// The arguments of a layer's passes without the layout type.
#pragma once

#include <cstddef>  // std::byte, std::size_t
#include <span>     // std::span

#include "gradus/core/element.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn::detail {

/// A dense batch of images in the memory order of the network's layout.
template <class Element>
struct image_memory {
  Element* data = nullptr;
  extents<4> shape{};  ///< n, c, h, w

  [[nodiscard]] index_t examples() const noexcept { return shape[0]; }
};

/// Where and how a layer writes one gradient; null data means that the gradient is not needed.
template <class Element>
struct gradient_memory {
  image_memory<Element> images;
  kernels::backward_epilogue<Element> epilogue;
};

/// The arguments that both passes of a layer have in common.
template <class Element, class Device>
struct layer_call {
  Device& device;
  void* layer;        ///< graph::node::passes
  std::size_t place;  ///< index of the call's first input in the arrays of inputs of all streams
  std::span<const image_memory<const Element>> inputs;
  image_memory<Element> output;
  std::span<const parameter_memory<parameter_element_t<Element>>> parameters;
  std::span<parameter_element_t<Element>* const> buffers;
  std::span<std::byte> state;
  std::span<std::byte> workspace;
  const step_context& context;
};

}  // namespace gradus::nn::detail
