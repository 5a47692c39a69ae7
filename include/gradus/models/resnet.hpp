// SPDX-License-Identifier: BSL-1.0
//
// Residual networks for ImageNet and for CIFAR.
#pragma once

#include <array>    // std::array
#include <cstddef>  // std::size_t
#include <string>   // std::string

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/models/blocks.hpp"
#include "gradus/nn/initializer.hpp"

namespace gradus::models {

/// The variant of the residual block.
enum class resnet_version : unsigned char {
  v1,    ///< the stride is in the first 1 x 1 convolution (He et al.: "Deep residual learning", 2016)
  v1_5,  ///< the stride is in the 3 x 3 convolution (as in most frameworks)
  v2     ///< normalization and ReLU before the convolutions (He et al.: "Identity mappings", 2016), stride as in v1
};

/// Options of a residual network.
struct resnet_options {
  index_t classes = 1001;                         ///< number of classes
  resnet_version version = resnet_version::v1_5;  ///< variant of the block
  /// Initializes the last normalization of each block with scale 0, so that blocks add nothing at first (Goyal et al.
  /// 2017, section 5.1).
  bool zero_last_scale = false;
  /// Rows of an image for each row of the last stage: 32, 16 or 8. Below 32 the last one or two stages have stride 1
  /// and a dilation of 2 or 4 instead, as networks for segmentation need (Chen et al. 2017, section 3.1).
  int output_stride = 32;
  /// The pooling of the stem adds a row and a column on every side, as in PyTorch, and not only those that the size of
  /// its output needs, which are below and on the right. For images with even extents the results differ.
  bool symmetric_pooling = false;
};

/// The outputs of the four stages of a residual network, of 4, 8, 16 and 32 times fewer rows than the images (see
/// resnet_options::output_stride), and 256, 512, 1024 and 2048 channels; with 18 and 34 layers 64, 128, 256 and 512.
using resnet_stages = std::array<nn::value, 4>;

namespace detail {

template <class Network>
class resnet_builder {
 public:
  resnet_builder(Network& net, const resnet_options& options)
      : build_{net, {.use = true, .layer = {.momentum = 0.1, .epsilon = 1e-5}}}, options_{options} {}

  void imagenet(int depth) { finish(stages(depth).back()); }

  /// The stem and the four stages for images of 224 x 224.
  resnet_stages stages(int layers) {
    const std::array<int, 4> blocks = blocks_of(layers);
    build_.begin("stem");
    nn::value x = build_.input();
    x = convolution(x, 64, 7, 2, true);
    x = build_.max_pool(x, 3, 2, options_.symmetric_pooling ? nn::padding::explicit_padding(1) : nn::padding::same());
    resnet_stages result;
    const bool has_bottlenecks = layers >= 50;
    index_t depth = has_bottlenecks ? 256 : 64;
    for (std::size_t stage = 0; stage < blocks.size(); ++stage, depth *= 2) {
      // A stage whose stride is taken away dilates what follows the convolution that had it.
      const bool shrinks = stage > 0 && (4 << stage) <= options_.output_stride;
      for (int block = 0; block < blocks[stage]; ++block) {
        build_.begin(gradus::join({"stage", stage + 1, "_block", block + 1, "_"}));
        const index_t stride = block == 0 && shrinks ? 2 : 1;
        x = has_bottlenecks ? bottleneck_of_version(x, depth, stride) : projected_basic(x, depth, stride);
        if (block == 0 && stage > 0 && !shrinks) {
          dilation_ *= 2;
        }
      }
      result[stage] = x;
    }
    return result;
  }

  /// Bottlenecks of 64, 128 and 256 channels (for the networks with 164 and 1001 layers).
  void cifar_bottleneck(int blocks) {
    build_.begin("stem");
    nn::value x = convolution(build_.input(), 16, 3, 1, true);
    index_t depth = 64;
    for (int stage = 0; stage < 3; ++stage, depth *= 2) {
      for (int block = 0; block < blocks; ++block) {
        build_.begin(gradus::join({"stage", stage + 1, "_block", block + 1, "_"}));
        x = bottleneck_of_version(x, depth, block == 0 && stage > 0 ? 2 : 1);
      }
    }
    finish(x);
  }

  void cifar(int blocks) {
    build_.begin("stem");
    nn::value x = convolution(build_.input(), 16, 3, 1, true);
    index_t depth = 16;
    for (int stage = 0; stage < 3; ++stage, depth *= 2) {
      for (int block = 0; block < blocks; ++block) {
        build_.begin(gradus::join({"stage", stage + 1, "_block", block + 1, "_"}));
        x = basic(x, depth, block == 0 && stage > 0 ? 2 : 1);
      }
    }
    finish(x);
  }

 private:
  /// The blocks of each stage. @throws configuration_error for an unknown number of layers or output stride
  [[nodiscard]] std::array<int, 4> blocks_of(int layers) const {
    if (options_.output_stride != 32 && options_.output_stride != 16 && options_.output_stride != 8) {
      raise<configuration_error>("models.resnet", "an output_stride of 32, 16 or 8", {options_.output_stride});
    }
    switch (layers) {
      case 18:
        return {2, 2, 2, 2};
      case 34:
      case 50:
        return {3, 4, 6, 3};
      case 101:
        return {3, 4, 23, 3};
      case 152:
        return {3, 8, 36, 3};
      default:
        raise<configuration_error>("models.resnet", "a depth of 18, 34, 50, 101 or 152", {layers});
    }
  }

  nn::value bottleneck_of_version(nn::value x, index_t depth, index_t stride) {
    return options_.version == resnet_version::v2 ? bottleneck_v2(x, depth, stride) : bottleneck(x, depth, stride);
  }

  // The frameworks that published the weights pad symmetrically for every stride.
  [[nodiscard]] nn::padding symmetric(index_t kernel) const {
    return nn::padding::explicit_padding(dilation_ * (kernel - 1) / 2);
  }

  /// A convolution with normalization (and ReLU); in version 2 without, because they come before it.
  nn::value convolution(nn::value x, index_t channels, index_t kernel, index_t stride, bool activate) {
    return build_.convolution(x, {.out_channels = channels,
                                  .kernel = {kernel, kernel},
                                  .stride = {stride, stride},
                                  .padding = symmetric(kernel),
                                  .dilation = {dilation_, dilation_},
                                  .activate = activate});
  }

  nn::value bare_convolution(nn::value x, const std::string& name, index_t channels, index_t kernel, index_t stride) {
    return build_.network().add(name,
                                nn::conv2d{.out_channels = channels,
                                           .kernel = {kernel, kernel},
                                           .stride = {stride, stride},
                                           .padding = symmetric(kernel),
                                           .dilation = {dilation_, dilation_},
                                           .bias = false,
                                           .weight_initializer = nn::he_truncated_normal()},
                                x);
  }

  nn::value join(nn::value x, nn::value shortcut, bool activate) {
    const std::string name = build_.next_name();
    x = build_.network().add(gradus::join({name, "_add"}), nn::add{}, {x, shortcut});
    return activate ? build_.network().add(gradus::join({name, "_relu"}), nn::relu{}, x) : x;
  }

  nn::value bottleneck(nn::value x, index_t depth, index_t stride) {
    const bool first = options_.version == resnet_version::v1;
    const bool project = build_.network().shape(x).channels != depth;
    const nn::value shortcut =
        project ? convolution(x, depth, 1, stride, false) : (stride == 1 ? x : build_.max_pool(x, 1, stride));
    nn::value y = convolution(x, depth / 4, 1, first ? stride : 1, true);
    y = convolution(y, depth / 4, 3, first ? 1 : stride, true);
    y = last_convolution(y, depth, 1, 1);
    return join(y, shortcut, true);
  }

  /// The last convolution of a block; the scale of its normalization may start at 0.
  nn::value last_convolution(nn::value x, index_t channels, index_t kernel, index_t stride) {
    const std::string name = build_.next_name();
    x = bare_convolution(x, gradus::join({name, "_conv"}), channels, kernel, stride);
    nn::batch_norm norm{.momentum = 0.1, .epsilon = 1e-5};
    if (options_.zero_last_scale) {
      norm.scale_initializer = nn::zeros();
    }
    return build_.network().add(gradus::join({name, "_norm"}), norm, x);
  }

  nn::value normalized(nn::value x) {
    const std::string name = build_.next_name();
    x = build_.network().add(gradus::join({name, "_norm"}), nn::batch_norm{.momentum = 0.1, .epsilon = 1e-5}, x);
    return build_.network().add(gradus::join({name, "_relu"}), nn::relu{}, x);
  }

  nn::value bottleneck_v2(nn::value x, index_t depth, index_t stride) {
    const bool project = build_.network().shape(x).channels != depth;
    const nn::value before = normalized(x);
    const nn::value shortcut = project ? bare_convolution(before, build_.next_name("_shortcut"), depth, 1, stride)
                                       : (stride == 1 ? x : build_.max_pool(x, 1, stride));
    nn::value y = convolution(before, depth / 4, 1, stride, true);
    y = convolution(y, depth / 4, 3, 1, true);
    y = bare_convolution(y, build_.next_name("_conv"), depth, 1, 1);
    return join(y, shortcut, false);
  }

  /// Two 3 x 3 convolutions. If the number of channels grows, the shortcut is a 1 x 1 convolution (option B of the
  /// paper).
  nn::value projected_basic(nn::value x, index_t depth, index_t stride) {
    const bool project = build_.network().shape(x).channels != depth;
    if (options_.version == resnet_version::v2) {
      const nn::value before = normalized(x);
      const nn::value shortcut =
          project ? bare_convolution(before, build_.next_name("_shortcut"), depth, 1, stride) : x;
      nn::value y = convolution(before, depth, 3, stride, true);
      y = bare_convolution(y, build_.next_name("_conv"), depth, 3, 1);
      return join(y, shortcut, false);
    }
    const nn::value shortcut = project ? convolution(x, depth, 1, stride, false) : x;
    nn::value y = convolution(x, depth, 3, stride, true);
    y = last_convolution(y, depth, 3, 1);
    return join(y, shortcut, true);
  }

  /// Two 3 x 3 convolutions. If the number of channels grows, the shortcut is pooled and filled with zeros (option A of
  /// the paper).
  nn::value basic(nn::value x, index_t depth, index_t stride) {
    nn::value shortcut = x;
    if (stride > 1) {
      shortcut = build_.average_pool(shortcut, stride, stride);
    }
    if (const index_t have = build_.network().shape(x).channels; have != depth) {
      shortcut = build_.network().add(build_.next_name("_pad"),
                                      nn::pad_channels{.before = (depth - have) / 2, .after = (depth - have + 1) / 2},
                                      shortcut);
    }
    if (options_.version == resnet_version::v2) {
      nn::value y = normalized(x);
      y = convolution(y, depth, 3, stride, true);
      y = bare_convolution(y, build_.next_name("_conv"), depth, 3, 1);
      return join(y, shortcut, false);
    }
    nn::value y = convolution(x, depth, 3, stride, true);
    y = last_convolution(y, depth, 3, 1);
    return join(y, shortcut, true);
  }

  void finish(nn::value x) {
    build_.begin("head");
    if (options_.version == resnet_version::v2) {
      x = normalized(x);
    }
    x = build_.network().add("global_pool", nn::global_average_pool2d{}, x);
    build_.classify(x, options_.classes);
  }

  block_builder<Network> build_;
  resnet_options options_;
  index_t dilation_ = 1;  // of the following convolutions
};

}  // namespace detail

/// Adds ResNet-18, 34, 50, 101 or 152 for images of 224 x 224. With 1001 classes ResNet-50 has 25,559,081 parameters
/// (v1, v1.5) or 25,551,529 (v2). In version 1.5, {.classes = 1000, .symmetric_pooling = true} makes torchvision's
/// model (gradus/io/torchvision.hpp).
/// @throws configuration_error for any other depth or output stride
template <class Network>
void resnet(Network& net, int depth, const resnet_options& options = {},
            error_location where = error_location::current()) {
  at_call(where, [&] { detail::resnet_builder<Network>{net, options}.imagenet(depth); });
}

/// Adds ResNet-18, 34, 50, 101 or 152 without what follows the last stage: no mean, no scores and no loss. Returns the
/// outputs of the stages, from which other networks go on. The outputs of version 2 are not normalized yet.
/// @throws configuration_error for any other depth or output stride
template <class Network>
resnet_stages resnet_backbone(Network& net, int depth, const resnet_options& options = {},
                              error_location where = error_location::current()) {
  return at_call(where, [&] { return detail::resnet_builder<Network>{net, options}.stages(depth); });
}

/// Adds a residual network for images of 32 x 32. A depth of 6 n + 2 layers (20, 32, 44, 56, 110, ...) has blocks of
/// two 3 x 3 convolutions with parameter-free shortcuts (He et al. 2016, section 4.2). A depth of 9 n + 2 layers (164,
/// 1001, ...) has bottleneck blocks (He et al.: "Identity mappings", 2016, section 5; there in version 2). A depth of
/// both kinds gets the first kind, except 164, which is published with bottleneck blocks. Images may be larger: the
/// network ends with the mean of each channel. A network of 4997 layers in version 2 (n = 555) is of the size of the
/// "ResNet-5000" that is trained in pipelines.
///
/// tf_cnn_benchmarks has networks with the same names and two differences: its shortcuts take one pixel of each 2 x 2,
/// and these take the mean; in version 1 it has no ReLU after the first convolution. The numbers of parameters and
/// multiply-adds are the same. It has no bottleneck blocks for images of 32 x 32.
/// @throws configuration_error for a depth of neither kind
template <class Network>
void cifar_resnet(Network& net, int depth,
                  const resnet_options& options = {.classes = 11, .version = resnet_version::v1},
                  error_location where = error_location::current()) {
  at_call(where, [&] {
    detail::resnet_builder<Network> build{net, options};
    if (depth >= 8 && (depth - 2) % 6 == 0 && depth != 164) {
      build.cifar((depth - 2) / 6);
    } else if (depth >= 11 && (depth - 2) % 9 == 0) {
      build.cifar_bottleneck((depth - 2) / 9);
    } else {
      raise<configuration_error>("models.cifar_resnet", "a depth of 6 n + 2 (20, 32, ...) or 9 n + 2 (164, 1001, ...)",
                                 {depth});
    }
  });
}

}  // namespace gradus::models
