// SPDX-License-Identifier: BSL-1.0
//
// The U-Net.
#pragma once

#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/models/blocks.hpp"
#include "gradus/nn/layers/conv_transpose2d.hpp"
#include "gradus/nn/layers/crop2d.hpp"

namespace gradus::models {

/// Options of a U-Net.
struct unet_options {
  index_t out_channels = 2;    ///< channels of the result: classes, or fields
  index_t base_channels = 64;  ///< channels of the first convolutions; doubled after each pooling
  int depth = 4;               ///< number of poolings
  bool batch_norm = true;      ///< normalize after each 3 x 3 convolution; the paper does not
  /// Zeros around the images, so that the result has their size. The paper has none: its result is smaller, and the
  /// values of the contracting path are cropped.
  bool padded = true;
};

namespace detail {

template <class Network>
class unet_builder {
 public:
  unet_builder(Network& net, const unet_options& options)
      : build_{net, {.use = options.batch_norm, .layer = {.momentum = 0.1, .epsilon = 1e-5}}}, options_{options} {}

  nn::value build() {
    std::vector<nn::value> skipped;
    nn::value x = build_.input();
    index_t channels = options_.base_channels;
    for (int level = 1; level <= options_.depth; ++level, channels *= 2) {
      build_.begin(gradus::join({"down", level, "_"}));
      x = two_convolutions(x, channels);
      skipped.push_back(x);
      x = build_.max_pool(x, 2, 2);
    }
    build_.begin("bottom_");
    x = two_convolutions(x, channels);
    for (int level = options_.depth; level >= 1; --level) {
      channels /= 2;
      build_.begin(gradus::join({"up", level, "_"}));
      x = build_.network().add(build_.next_name("_conv_transpose"),
                               nn::conv_transpose2d{.out_channels = channels,
                                                    .kernel = {2, 2},
                                                    .stride = {2, 2},
                                                    .weight_initializer = nn::he_truncated_normal()},
                               x);
      x = build_.concat({cropped(skipped.back(), x), x});
      skipped.pop_back();
      x = two_convolutions(x, channels);
    }
    return build_.network().add(
        "scores",
        nn::conv2d{
            .out_channels = options_.out_channels, .kernel = {1, 1}, .weight_initializer = nn::he_truncated_normal()},
        x);
  }

 private:
  nn::value two_convolutions(nn::value x, index_t channels) {
    const convolution_block block{.out_channels = channels,
                                  .kernel = {3, 3},
                                  .padding = options_.padded ? nn::padding::same() : nn::padding::valid()};
    return build_.convolutions(x, {block, block});
  }

  nn::value cropped(nn::value skipped, nn::value x) {
    if (options_.padded) {
      return skipped;
    }
    const nn::value_shape from = build_.network().shape(skipped);
    const nn::value_shape to = build_.network().shape(x);
    return build_.network().add(
        build_.next_name("_crop"),
        nn::crop2d{
            .top = (from.height - to.height) / 2, .left = (from.width - to.width) / 2, .size = {to.height, to.width}},
        skipped);
  }

  block_builder<Network> build_;
  unet_options options_;
};

/// @throws configuration_error, shape_error for options that are not possible or images that are too small
inline void require_unet(const unet_options& options, const nn::value_shape& images) {
  constexpr std::string_view name = "models.unet";
  if (options.depth < 1 || options.depth > 16) {
    raise<configuration_error>(name, "a depth of 1 to 16", {options.depth});
  }
  if (options.out_channels < 1 || options.base_channels < 1) {
    raise<configuration_error>(name, "out_channels and base_channels of at least 1",
                               {options.out_channels, " and ", options.base_channels});
  }
  const index_t multiple = index_t{1} << options.depth;
  if (options.padded && (images.height % multiple != 0 || images.width % multiple != 0)) {
    raise<shape_error>(name, {"images whose height and width are multiples of ", multiple, " (2 to the depth)"},
                       {images.height, " x ", images.width}, "pad or crop the images, or choose a smaller depth");
  }
}

}  // namespace detail

/// Adds the U-Net (Ronneberger, Fischer, Brox 2015, figure 1) and returns its result, of shape (N, out_channels, H, W).
/// End the network with a loss: net.loss(nn::softmax_cross_entropy{}, scores) learns a class for each pixel.
///
/// As in the paper (.batch_norm = false, .padded = false) it has 31,030,658 parameters for images of one channel and
/// two classes, and makes 388 x 388 scores of 572 x 572 pixels.
/// @throws configuration_error for options that are not possible
/// @throws shape_error when the height or width of padded images is not a multiple of 2 to the depth, or when images
///         that are not padded are too small
template <class Network>
nn::value unet(Network& net, const unet_options& options = {}, error_location where = error_location::current()) {
  return at_call(where, [&] {
    detail::require_unet(options, net.shape(net.input()));
    return detail::unet_builder<Network>{net, options}.build();
  });
}

}  // namespace gradus::models
