// SPDX-License-Identifier: BSL-1.0
//
// The layer layer_norm: normalization of an example, or of the channels of each pixel.
#pragma once

#include "gradus/kernels/group_norm.hpp"
#include "gradus/nn/initializer.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/layers/group_norm.hpp"

namespace gradus::nn {

/// What layer_norm takes one mean and one variance over.
enum class norm_axes {
  image,    ///< channels, height and width of an example; gamma and beta have the shape (C, H, W)
  channels  ///< the channels of a pixel; gamma and beta have the shape (C)
};

/// Options of layer normalization (Ba, Kiros, Hinton 2016).
///
///   y = gamma * x^ + beta,   x^ = (x - mean) / sqrt(variance + epsilon)
///
///   symbol         | meaning                                    | shape for norm_axes::image | norm_axes::channels
///   x              | input                                      | (N, C, H, W)               | (N, C, H, W)
///   gamma, beta    | parameters "weight" and "bias"             | (1, C, H, W)               | (C)
///   mean, variance | statistics of an example or of a pixel     | (N)                        | (N, H, W)
///   y              | output                                     | (N, C, H, W)               | (N, C, H, W)
///
/// Gradients as those of group_norm. PyTorch's LayerNorm([C, H, W]) is norm_axes::image; torchvision's LayerNorm2d, of
/// ConvNeXt (Liu et al. 2022), is norm_axes::channels with an epsilon of 1e-6. They are the same for a vector.
/// @throws configuration_error (network::add) when epsilon is not above 0
/// @throws shape_error (network::add) for a flattened image
struct layer_norm {
  norm_axes axes = norm_axes::image;        ///< what is normalized
  double epsilon = 1e-5;                    ///< added to the variance
  bool scale = true;                        ///< learn gamma
  bool shift = true;                        ///< learn beta
  initializer scale_initializer = ones();   ///< of gamma
  initializer shift_initializer = zeros();  ///< of beta

  /// The description of the layer.
  [[nodiscard]] detail::set_norm_options normalization() const {
    return {.kind = "layer_norm",
            .over = axes == norm_axes::image ? kernels::normalized_set::image : kernels::normalized_set::pixel,
            .groups = 1,
            .epsilon = epsilon,
            .scale = scale,
            .shift = shift,
            .scale_initializer = scale_initializer,
            .shift_initializer = shift_initializer};
  }
  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  using layer = detail::set_norm_layer<Element, Layout, Device>;
};

}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::layer_norm)
