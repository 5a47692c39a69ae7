// SPDX-License-Identifier: BSL-1.0
//
// DenseNet (G. Huang, Z. Liu, L. van der Maaten, K. Q. Weinberger: "Densely connected convolutional networks", 2017).
#pragma once

#include <cstddef>  // std::size_t
#include <string>   // std::string
#include <vector>   // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/initializer.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/padding.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::models {

/// What the images of a DenseNet pass before its first block.
enum class densenet_stem : unsigned char {
  photographs,  ///< a convolution 7 x 7 and a max pooling, of stride 2 each (table 1 of the paper)
  small_images  ///< a convolution 3 x 3 (section 3, "Implementation details")
};

/// Options of DenseNet. The default is DenseNet-121.
struct densenet_options {
  index_t classes = 1000;                           ///< number of classes
  index_t growth_rate = 32;                         ///< channels that each layer adds: k of the paper
  std::vector<int> layers{6, 12, 24, 16};           ///< of each dense block
  index_t stem_channels = 64;                       ///< channels of the first block's input
  densenet_stem stem = densenet_stem::photographs;  ///< what images pass first
  bool bottleneck = true;                           ///< a layer begins with a convolution 1 x 1 of 4 k channels
  double compression = 0.5;                         ///< channels that a transition keeps: theta, above 0, at most 1
  double dropout_rate = 0;                          ///< behind each layer; 0: no dropout
  nn::batch_norm norm{.momentum = 0.1, .epsilon = 1e-5};  ///< options of all normalizations
};

namespace detail {

template <class Network>
class densenet_builder {
 public:
  densenet_builder(Network& net, const densenet_options& options) : net_{net}, options_{options} {}

  void build() {
    nn::value x = stem();
    for (std::size_t block = 0; block < options_.layers.size(); ++block) {
      if (block > 0) {
        x = transition(gradus::join({"transition", block}), x);
      }
      for (int layer = 0; layer < options_.layers[block]; ++layer) {
        x = dense_layer(gradus::join({"block", block + 1, "_layer", layer + 1}), x);
      }
    }
    x = activated("head", x);
    x = net_.add("global_pool", nn::global_average_pool2d{}, x);
    x = net_.add("scores", nn::dense{.out_features = options_.classes, .weight_initializer = nn::he_truncated_normal()},
                 x);
    net_.loss(nn::softmax_cross_entropy{}, x);
  }

 private:
  nn::value convolution(const std::string& name, nn::value x, index_t channels, index_t kernel, index_t stride = 1) {
    return net_.add(gradus::join({name, "_conv"}),
                    nn::conv2d{.out_channels = channels,
                               .kernel = {kernel, kernel},
                               .stride = {stride, stride},
                               .padding = nn::padding::explicit_padding(kernel / 2),
                               .bias = false,
                               .weight_initializer = nn::he_truncated_normal()},
                    x);
  }

  /// Batch normalization and ReLU.
  nn::value activated(const std::string& name, nn::value x) {
    x = net_.add(gradus::join({name, "_norm"}), options_.norm, x);
    return net_.add(gradus::join({name, "_relu"}), nn::relu{}, x);
  }

  nn::value stem() {
    if (options_.stem == densenet_stem::small_images) {
      return convolution("stem", net_.input(), options_.stem_channels, 3);
    }
    const nn::value x = activated("stem", convolution("stem", net_.input(), options_.stem_channels, 7, 2));
    return net_.add("stem_max_pool",
                    nn::max_pool2d{.kernel = {3, 3}, .stride = {2, 2}, .padding = nn::padding::explicit_padding(1)}, x);
  }

  /// Its input with the channels that it adds behind (equation 2).
  nn::value dense_layer(const std::string& name, nn::value x) {
    nn::value y = x;
    if (options_.bottleneck) {
      const std::string first = gradus::join({name, "_1"});
      y = convolution(first, activated(first, y), 4 * options_.growth_rate, 1);
    }
    const std::string last = gradus::join({name, options_.bottleneck ? "_2" : "_1"});
    y = convolution(last, activated(last, y), options_.growth_rate, 3);
    if (options_.dropout_rate > 0) {
      const std::string dropout = gradus::join({name, "_dropout"});
      y = net_.add(dropout, nn::dropout{.rate = options_.dropout_rate, .name = dropout}, y);
    }
    return net_.add(gradus::join({name, "_concat"}), nn::concat{}, {x, y});
  }

  nn::value transition(const std::string& name, nn::value x) {
    const auto channels = static_cast<index_t>(static_cast<double>(net_.shape(x).channels) * options_.compression);
    x = convolution(name, activated(name, x), channels, 1);
    return net_.add(gradus::join({name, "_average_pool"}), nn::average_pool2d{.kernel = {2, 2}, .stride = {2, 2}}, x);
  }

  Network& net_;
  densenet_options options_;
};

}  // namespace detail

/// Adds DenseNet, including the loss, to an empty network. With the default options and 3 channels it is DenseNet-121:
/// 7,978,856 parameters. Each layer stores its input, which has the channels of all layers before it in its block:
/// memory grows with the square of their number.
/// @throws configuration_error for no blocks, and for options out of range
template <class Network>
void densenet(Network& net, const densenet_options& options, error_location where = error_location::current()) {
  at_call(where, [&] {
    const auto require = [](bool holds, const char* expected, double got) {
      if (!holds) {
        raise<configuration_error>("models.densenet", expected, {got});
      }
    };
    require(!options.layers.empty(), "at least 1 dense block", static_cast<double>(options.layers.size()));
    for (const int each : options.layers) {
      require(each >= 1, "at least 1 layer in each dense block", each);
    }
    require(options.growth_rate >= 1, "a growth_rate of at least 1", static_cast<double>(options.growth_rate));
    require(options.stem_channels >= 1, "at least 1 stem_channels", static_cast<double>(options.stem_channels));
    require(options.compression > 0 && options.compression <= 1, "a compression above 0, at most 1",
            options.compression);
    detail::densenet_builder<Network>{net, options}.build();
  });
}

/// Adds DenseNet with 121, 161, 169 or 201 layers with weights for images of 224 x 224 (table 1 of the paper; 161 as
/// the authors published it, with a growth rate of 48). With 1000 classes: 7,978,856 (121), 28,681,000 (161),
/// 14,149,480 (169) and 20,013,928 (201) parameters.
/// @throws configuration_error for any other depth
template <class Network>
void densenet(Network& net, int depth, index_t classes = 1000, error_location where = error_location::current()) {
  at_call(where, [&] {
    densenet_options options{.classes = classes};
    switch (depth) {
      case 121:
        break;
      case 161:
        options.growth_rate = 48;
        options.layers = {6, 12, 36, 24};
        options.stem_channels = 96;
        break;
      case 169:
        options.layers = {6, 12, 32, 32};
        break;
      case 201:
        options.layers = {6, 12, 48, 32};
        break;
      default:
        raise<configuration_error>("models.densenet", "a depth of 121, 161, 169 or 201", {depth});
    }
    densenet(net, options, where);
  });
}

/// Adds DenseNet for images of 32 x 32 with depth 3 n + 4, for example 40 or 100: three blocks of n layers without
/// bottleneck and compression behind a convolution of 16 channels (section 3). With depth 40, growth rate 12 and 10
/// classes: 1,019,722 parameters.
/// @throws configuration_error for any other depth
template <class Network>
void cifar_densenet(Network& net, int depth, index_t growth_rate, index_t classes = 11,
                    error_location where = error_location::current()) {
  at_call(where, [&] {
    if (depth < 7 || (depth - 4) % 3 != 0) {
      raise<configuration_error>("models.cifar_densenet", "a depth of 3 n + 4 such as 40 or 100", {depth});
    }
    const int layers = (depth - 4) / 3;
    densenet(net,
             {.classes = classes,
              .growth_rate = growth_rate,
              .layers = {layers, layers, layers},
              .stem_channels = 16,
              .stem = densenet_stem::small_images,
              .bottleneck = false,
              .compression = 1},
             where);
  });
}

}  // namespace gradus::models
