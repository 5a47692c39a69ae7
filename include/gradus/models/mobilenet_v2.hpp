// SPDX-License-Identifier: BSL-1.0
//
// MobileNetV2 (M. Sandler, A. Howard, M. Zhu, A. Zhmoginov, L.-C. Chen: "MobileNetV2: Inverted residuals and linear
// bottlenecks", 2018, table 2).
#pragma once

#include <algorithm>  // std::max
#include <string>     // std::string

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/initializer.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/padding.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::models {

/// Options of MobileNetV2.
struct mobilenet_v2_options {
  index_t classes = 1000;     ///< number of classes
  double width = 1.0;         ///< factor of the numbers of channels, above 0
  double dropout_rate = 0.2;  ///< of the features before the scores; 0: no dropout
};

namespace detail {

/// A number of channels times the width, as a multiple of 8 that is at least 0.9 of it (the authors' make_divisible).
[[nodiscard]] inline index_t scaled_channels(index_t channels, double width) {
  const double exact = static_cast<double>(channels) * width;
  const index_t rounded = std::max<index_t>(8, static_cast<index_t>(exact + 4) / 8 * 8);
  return static_cast<double>(rounded) < 0.9 * exact ? rounded + 8 : rounded;
}

template <class Network>
class mobilenet_v2_builder {
 public:
  mobilenet_v2_builder(Network& net, const mobilenet_v2_options& options) : net_{net}, options_{options} {}

  void build() {
    struct stage {
      index_t expansion;  // t of the table
      index_t channels;   // c
      int blocks;         // n
      index_t stride;     // s, of the first block
    };
    constexpr stage stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    nn::value x = convolution("stem", net_.input(), {scaled_channels(32, options_.width), 3, 2, 1}, true);
    int number = 0;
    for (const stage& each : stages) {
      for (int block = 0; block < each.blocks; ++block) {
        x = inverted_residual(gradus::join({"block", ++number}), x, each.expansion,
                              scaled_channels(each.channels, options_.width), block == 0 ? each.stride : 1);
      }
    }
    x = convolution("head", x, {scaled_channels(1280, std::max(1.0, options_.width)), 1, 1, 1}, true);
    x = net_.add("global_pool", nn::global_average_pool2d{}, x);
    if (options_.dropout_rate > 0) {
      x = net_.add("dropout", nn::dropout{.rate = options_.dropout_rate}, x);
    }
    x = net_.add("scores", nn::dense{.out_features = options_.classes, .weight_initializer = nn::normal(0.01)}, x);
    net_.loss(nn::softmax_cross_entropy{}, x);
  }

 private:
  struct shape {
    index_t channels;
    index_t kernel;
    index_t stride;
    index_t groups;
  };

  /// A convolution, its normalization, and ReLU6 unless it is linear.
  nn::value convolution(const std::string& name, nn::value x, const shape& what, bool activate) {
    x = net_.add(gradus::join({name, "_conv"}),
                 nn::conv2d{.out_channels = what.channels,
                            .kernel = {what.kernel, what.kernel},
                            .stride = {what.stride, what.stride},
                            .padding = nn::padding::explicit_padding((what.kernel - 1) / 2),
                            .groups = what.groups,
                            .bias = false,
                            .weight_initializer = nn::he_truncated_normal()},
                 x);
    x = net_.add(gradus::join({name, "_norm"}), nn::batch_norm{.momentum = 0.1, .epsilon = 1e-5}, x);
    return activate ? net_.add(gradus::join({name, "_relu6"}), nn::relu6{}, x) : x;
  }

  /// Expands by a 1 x 1 convolution, filters each channel, and projects without an activation (figure 3b).
  nn::value inverted_residual(const std::string& name, nn::value x, index_t expansion, index_t channels,
                              index_t stride) {
    const index_t in = net_.shape(x).channels;
    const index_t wide = in * expansion;
    nn::value y = x;
    if (expansion != 1) {
      y = convolution(gradus::join({name, "_expand"}), y, {wide, 1, 1, 1}, true);
    }
    y = convolution(gradus::join({name, "_depthwise"}), y, {wide, 3, stride, wide}, true);
    y = convolution(gradus::join({name, "_project"}), y, {channels, 1, 1, 1}, false);
    return stride == 1 && in == channels ? net_.add(gradus::join({name, "_add"}), nn::add{}, {x, y}) : y;
  }

  Network& net_;
  mobilenet_v2_options options_;
};

}  // namespace detail

/// Adds MobileNetV2 for images of 224 x 224, including the loss, to an empty network. With 1000 classes and width 1 it
/// has 3,504,872 parameters and 0.301 thousand million multiply-adds.
/// @throws configuration_error when the width is not above 0
template <class Network>
void mobilenet_v2(Network& net, const mobilenet_v2_options& options = {},
                  error_location where = error_location::current()) {
  at_call(where, [&] {
    if (!(options.width > 0 && options.width <= 100)) {
      raise<configuration_error>("models.mobilenet_v2", "a width above 0, at most 100", {options.width});
    }
    detail::mobilenet_v2_builder<Network>{net, options}.build();
  });
}

}  // namespace gradus::models
