// SPDX-License-Identifier: BSL-1.0
//
// DeepLabv3+.
#pragma once

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/models/blocks.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/nn/layers/upsample2d.hpp"

namespace gradus::models {

/// Options of DeepLabv3+.
struct deeplab_options {
  index_t classes = 21;    ///< number of classes
  int depth = 50;          ///< layers of the ResNet: 50, 101 or 152
  int output_stride = 16;  ///< rows of an image for each row of the ResNet's last stage: 16 or 8
};

namespace detail {

template <class Network>
class deeplab_builder {
 public:
  deeplab_builder(Network& net, const deeplab_options& options)
      : build_{net, {.use = true, .layer = {.momentum = 0.1, .epsilon = 1e-5}}}, options_{options} {}

  nn::value build() {
    const nn::value_shape images = build_.network().shape(build_.input());
    const resnet_stages stages =
        resnet_backbone(build_.network(), options_.depth, {.output_stride = options_.output_stride});
    nn::value x = pyramid(stages.back());
    build_.begin("decoder");
    const nn::value fine = build_.convolution(stages.front(), {.out_channels = 48});
    x = build_.concat({resized(x, build_.network().shape(fine)), fine});
    x = build_.convolutions(x, {{.out_channels = 256, .kernel = {3, 3}}, {.out_channels = 256, .kernel = {3, 3}}});
    x = build_.network().add(
        "scores",
        nn::conv2d{.out_channels = options_.classes, .kernel = {1, 1}, .weight_initializer = nn::he_truncated_normal()},
        x);
    return resized(x, images);
  }

 private:
  /// Atrous spatial pyramid pooling: convolutions of several dilations and the mean of the image, brought together.
  nn::value pyramid(nn::value x) {
    const nn::value_shape shape = build_.network().shape(x);
    const index_t rate = 96 / options_.output_stride;  // 6 for an output stride of 16, 12 for 8
    build_.begin("pyramid");
    const nn::value one = build_.convolution(x, {.out_channels = 256});
    const nn::value first = dilated(x, rate);
    const nn::value second = dilated(x, 2 * rate);
    const nn::value third = dilated(x, 3 * rate);
    nn::value mean = build_.network().add(build_.next_name("_global_pool"), nn::global_average_pool2d{}, x);
    mean = resized(build_.convolution(mean, {.out_channels = 256}), shape);
    return build_.dropout(build_.convolution(build_.concat({one, first, second, third, mean}), {.out_channels = 256}),
                          0.5);
  }

  nn::value dilated(nn::value x, index_t rate) {
    return build_.convolution(x, {.out_channels = 256, .kernel = {3, 3}, .dilation = {rate, rate}});
  }

  nn::value resized(nn::value x, const nn::value_shape& like) {
    return build_.network().add(build_.next_name("_upsample"),
                                nn::upsample2d{.size = {like.height, like.width}, .mode = nn::interpolation::bilinear},
                                x);
  }

  block_builder<Network> build_;
  deeplab_options options_;
};

}  // namespace detail

/// Adds DeepLabv3+ on a ResNet (Chen, Zhu, Papandreou, Schroff, Adam 2018, figure 2) and returns the scores of each
/// pixel, of shape (N, classes, H, W). End the network with a loss: net.loss(nn::softmax_cross_entropy{}, scores).
///
/// The dilations of the pyramid are 6, 12 and 18, or the double of them for an output stride of 8 (section 3.1). The
/// convolutions are whole ones: the paper also has a variant with depthwise ones. With ResNet-50 and 21 classes it has
/// 40,352,181 parameters.
/// The pyramid normalizes the mean of each image: training needs batches and micro-batches of at least 2 examples.
/// @throws configuration_error for an unknown depth or output stride
template <class Network>
nn::value deeplab_v3_plus(Network& net, const deeplab_options& options = {},
                          error_location where = error_location::current()) {
  return at_call(where, [&] {
    if (options.classes < 1) {
      raise<configuration_error>("models.deeplab_v3_plus", "at least 1 class", {options.classes});
    }
    if (options.output_stride != 16 && options.output_stride != 8) {
      raise<configuration_error>("models.deeplab_v3_plus", "an output_stride of 16 or 8", {options.output_stride});
    }
    return detail::deeplab_builder<Network>{net, options}.build();
  });
}

}  // namespace gradus::models
