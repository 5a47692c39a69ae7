// SPDX-License-Identifier: BSL-1.0
//
// Small residual networks for regression: images of real numbers from images, or numbers from images.
#pragma once

#include <string>  // std::string

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/models/blocks.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/padding.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::models {

/// What a residual network for regression gives.
enum class regression_output : unsigned char {
  numbers,  ///< (outputs) numbers for an image
  image     ///< an image of (outputs, height, width) as large as the input
};

/// Options of a residual network for regression.
struct resnet_regression_options {
  regression_output output = regression_output::numbers;  ///< numbers or an image
  index_t outputs = 1;                                    ///< the numbers, or the channels of the image
  int blocks = 3;                                         ///< residual blocks; for numbers, of each of three stages
  index_t channels = 16;                                  ///< of the blocks; doubled in the second and third stage
  index_t kernel = 3;                                     ///< odd
  bool normalize = true;  ///< batch normalization after each convolution; otherwise they have a bias
};

namespace detail {

template <class Network>
class resnet_regression_builder {
 public:
  resnet_regression_builder(Network& net, const resnet_regression_options& options)
      : build_{net, {.use = options.normalize, .layer = {}}}, options_{options} {}

  nn::value build() {
    Network& net = build_.network();
    build_.begin("stem");
    nn::value x = convolution(build_.input(), options_.channels, options_.kernel, 1, true);
    const bool image = options_.output == regression_output::image;
    index_t channels = options_.channels;
    for (int stage = 0; stage < (image ? 1 : 3); ++stage, channels *= 2) {
      for (int block = 0; block < options_.blocks; ++block) {
        build_.begin(image ? gradus::join({"block", block + 1, "_"})
                           : gradus::join({"stage", stage + 1, "_block", block + 1, "_"}));
        x = residual(x, channels, block == 0 && stage > 0 ? 2 : 1);
      }
    }
    if (image) {
      return net.add("output",
                     nn::conv2d{.out_channels = options_.outputs,
                                .kernel = {options_.kernel, options_.kernel},
                                .padding = symmetric(options_.kernel)},
                     x);
    }
    x = net.add("global_pool", nn::global_average_pool2d{}, x);
    return net.add("output", nn::dense{.out_features = options_.outputs}, x);
  }

 private:
  static nn::padding symmetric(index_t kernel) { return nn::padding::explicit_padding((kernel - 1) / 2); }

  nn::value convolution(nn::value x, index_t channels, index_t kernel, index_t stride, bool activate) {
    return build_.convolution(x, {.out_channels = channels,
                                  .kernel = {kernel, kernel},
                                  .stride = {stride, stride},
                                  .padding = symmetric(kernel),
                                  .activate = activate});
  }

  /// Two convolutions. Where the shape changes, the shortcut is a 1 x 1 convolution (option B of the paper).
  nn::value residual(nn::value x, index_t channels, index_t stride) {
    const bool project = stride > 1 || build_.network().shape(x).channels != channels;
    const nn::value shortcut = project ? convolution(x, channels, 1, stride, false) : x;
    nn::value y = convolution(x, channels, options_.kernel, stride, true);
    y = convolution(y, channels, options_.kernel, 1, false);
    const std::string name = build_.next_name();
    y = build_.network().add(gradus::join({name, "_add"}), nn::add{}, {y, shortcut});
    return build_.network().add(gradus::join({name, "_relu"}), nn::relu{}, y);
  }

  block_builder<Network> build_;
  resnet_regression_options options_;
};

}  // namespace detail

/// Adds a residual network for regression to a network and returns its output; the loss is the caller's. The blocks are
/// the basic blocks of K. He, X. Zhang, S. Ren, J. Sun: "Deep residual learning for image recognition" (2016, figure
/// 2). An image keeps its size. For numbers, the second and third stage halve it, and the mean over the pixels goes to
/// a dense layer.
///
///   const nn::value y = models::resnet_regression(net, {.output = models::regression_output::image, .outputs = 3});
///   net.loss(nn::mean_squared_error{}, y);
///
/// @throws configuration_error when blocks is below 1 or the kernel is not odd
template <class Network>
nn::value resnet_regression(Network& net, const resnet_regression_options& options = {},
                            error_location where = error_location::current()) {
  return at_call(where, [&] {
    if (options.blocks < 1) {
      raise<configuration_error>("models.resnet_regression", "at least 1 block", {options.blocks});
    }
    if (options.kernel < 1 || options.kernel % 2 == 0) {
      raise<configuration_error>("models.resnet_regression", "an odd kernel", {options.kernel});
    }
    return detail::resnet_regression_builder<Network>{net, options}.build();
  });
}

}  // namespace gradus::models
