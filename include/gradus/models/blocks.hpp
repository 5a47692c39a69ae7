// SPDX-License-Identifier: BSL-1.0
//
// Building blocks of the image classifiers: convolutions with normalization and activation, and numbered layer names.
#pragma once

#include <initializer_list>  // std::initializer_list
#include <string>            // std::string
#include <string_view>       // std::string_view
#include <utility>           // std::move
#include <vector>            // std::vector

#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/initializer.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/padding.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::models {

/// A convolution, with the normalization of its model and an optional ReLU.
struct convolution_block {
  index_t out_channels = 0;                   ///< channels of the result
  nn::size2d kernel{1, 1};                    ///< kernel size
  nn::size2d stride{1, 1};                    ///< stride
  nn::padding padding = nn::padding::same();  ///< padding
  nn::dilation2d dilation = {};               ///< pixels from one element of the kernel to the next
  bool activate = true;                       ///< end with a ReLU
};

/// Whether and how the convolutions of a model are normalized.
struct normalization {
  bool use = false;        ///< batch normalization instead of a bias
  nn::batch_norm layer{};  ///< options of the batch normalization
  bool bias = false;       ///< a bias before the batch normalization, which needs none, as some published weights have
};

/// Adds blocks to a network and names their layers "prefix1_conv", "prefix1_norm", "prefix1_relu", "prefix2_conv", ...
template <class Network>
class block_builder {
 public:
  /// Adds to `net`, which must outlive it.
  block_builder(Network& net, const normalization& normalize) : net_{&net}, normalize_{normalize} {}

  /// The network.
  [[nodiscard]] Network& network() noexcept { return *net_; }
  /// The images.
  [[nodiscard]] nn::value input() const noexcept { return net_->input(); }

  /// The name of the next block: the prefix, a number, and an ending.
  std::string next_name(std::string_view ending = {}) { return gradus::join({prefix_, ++count_, ending}); }

  /// Sets the prefix of the following layers' names and restarts their numbers.
  void begin(std::string prefix) {
    prefix_ = std::move(prefix);
    count_ = 0;
  }

  /// A convolution, its normalization and its ReLU.
  nn::value convolution(nn::value x, const convolution_block& block) {
    const std::string name = next_name();
    x = net_->add(gradus::join({name, "_conv"}),
                  nn::conv2d{.out_channels = block.out_channels,
                             .kernel = block.kernel,
                             .stride = block.stride,
                             .padding = block.padding,
                             .dilation = block.dilation,
                             .bias = !normalize_.use || normalize_.bias,
                             .weight_initializer = nn::he_truncated_normal()},
                  x);
    if (normalize_.use) {
      x = net_->add(gradus::join({name, "_norm"}), normalize_.layer, x);
    }
    return block.activate ? net_->add(gradus::join({name, "_relu"}), nn::relu{}, x) : x;
  }

  /// Several blocks, one after another.
  nn::value convolutions(nn::value x, std::initializer_list<convolution_block> blocks) {
    for (const convolution_block& block : blocks) {
      x = convolution(x, block);
    }
    return x;
  }

  /// Max pooling with a square kernel.
  nn::value max_pool(nn::value x, index_t kernel, index_t stride, nn::padding padding = nn::padding::valid()) {
    return net_->add(next_name("_max_pool"),
                     nn::max_pool2d{.kernel = {kernel, kernel}, .stride = {stride, stride}, .padding = padding}, x);
  }

  /// Average pooling with a square kernel. With `count_padding` it divides by the whole kernel area at the border too.
  nn::value average_pool(nn::value x, index_t kernel, index_t stride, nn::padding padding = nn::padding::valid(),
                         bool count_padding = false) {
    return net_->add(
        next_name("_average_pool"),
        nn::average_pool2d{
            .kernel = {kernel, kernel}, .stride = {stride, stride}, .padding = padding, .count_padding = count_padding},
        x);
  }

  /// The mean of each channel over the whole image.
  nn::value global_average_pool(nn::value x) { return net_->add("global_pool", nn::global_average_pool2d{}, x); }

  /// Concatenates the channels of the branches.
  nn::value concat(std::vector<nn::value> branches) {
    return net_->add(next_name("_concat"), nn::concat{}, nn::input_list{std::move(branches)});
  }

  /// A dense layer with ReLU.
  nn::value dense(nn::value x, index_t out_features) {
    const std::string name = next_name();
    x = net_->add(gradus::join({name, "_dense"}),
                  nn::dense{.out_features = out_features, .weight_initializer = nn::he_truncated_normal()}, x);
    return net_->add(gradus::join({name, "_relu"}), nn::relu{}, x);
  }

  /// Dropout with its own stream of random numbers.
  nn::value dropout(nn::value x, double rate) {
    const std::string name = next_name("_dropout");
    return net_->add(name, nn::dropout{.rate = rate, .name = name}, x);
  }

  /// Adds the dense layer of class scores, and the loss.
  void classify(nn::value x, index_t classes) {
    x = net_->add("scores", nn::dense{.out_features = classes, .weight_initializer = nn::he_truncated_normal()}, x);
    net_->loss(nn::softmax_cross_entropy{}, x);
  }

 private:
  Network* net_;
  normalization normalize_;
  std::string prefix_ = "layer";
  int count_ = 0;
};

}  // namespace gradus::models
