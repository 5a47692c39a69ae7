// SPDX-License-Identifier: BSL-1.0
//
// The convolutional network for MNIST.
#pragma once

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::models {

/// Options of the MNIST network.
struct mnist_options {
  index_t classes = 10;            ///< number of classes
  index_t hidden_features = 1024;  ///< features of the hidden dense layer
  double dropout_rate = 0.5;       ///< probability that dropout sets a feature to 0
};

/// Adds the MNIST network, including the loss, to an empty network: two 5 x 5 convolutions of 32 and 64 channels (same
/// padding), each with ReLU and 2 x 2 max pooling, a dense layer with ReLU and dropout, and the scores. (The network of
/// TensorFlow's "Deep MNIST for experts".) For images of 28 x 28 pixels: 3,274,634 parameters.
/// @throws shape_error if the images are smaller than 4 x 4
template <class Network>
void mnist(Network& net, const mnist_options& options = {}, error_location where = error_location::current()) {
  at_call(where, [&] {
    nn::value x = net.input();
    x = net.add("conv1", nn::conv2d{.out_channels = 32, .kernel = {5, 5}, .padding = nn::padding::same()}, x);
    x = net.add("relu1", nn::relu{}, x);
    x = net.add("pool1", nn::max_pool2d{}, x);
    x = net.add("conv2", nn::conv2d{.out_channels = 64, .kernel = {5, 5}, .padding = nn::padding::same()}, x);
    x = net.add("relu2", nn::relu{}, x);
    x = net.add("pool2", nn::max_pool2d{}, x);
    x = net.add("flatten", nn::flatten{}, x);
    x = net.add("hidden", nn::dense{.out_features = options.hidden_features}, x);
    x = net.add("relu3", nn::relu{}, x);
    x = net.add("dropout", nn::dropout{.rate = options.dropout_rate}, x);
    x = net.add("scores", nn::dense{.out_features = options.classes}, x);
    net.loss(nn::softmax_cross_entropy{}, x);
  });
}

}  // namespace gradus::models
