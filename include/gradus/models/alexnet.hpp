// SPDX-License-Identifier: BSL-1.0
//
// AlexNet and OverFeat.
#pragma once

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/models/blocks.hpp"

namespace gradus::models {

/// Options of AlexNet.
struct alexnet_options {
  index_t classes = 1001;         ///< number of classes
  index_t first_padding = 0;      ///< padding of the first convolution on each side; torchvision's model has 2
  index_t fourth_channels = 384;  ///< channels of the fourth convolution; torchvision's model has 256
};

/// Adds AlexNet for images of 227 x 227, in the one-column form without response normalization (Krizhevsky: "One weird
/// trick for parallelizing convolutional neural networks", 2014). With
/// {.classes = 1000, .first_padding = 2, .fourth_channels = 256} and images of 224 x 224 it is torchvision's model
/// (gradus/io/torchvision.hpp).
template <class Network>
void alexnet(Network& net, const alexnet_options& options = {}, error_location where = error_location::current()) {
  at_call(where, [&] {
    block_builder build{net, normalization{}};
    nn::value x = build.input();
    x = build.convolution(x, {.out_channels = 64,
                              .kernel = {11, 11},
                              .stride = {4, 4},
                              .padding = nn::padding::explicit_padding(options.first_padding)});
    x = build.max_pool(x, 3, 2);
    x = build.convolution(x, {.out_channels = 192, .kernel = {5, 5}});
    x = build.max_pool(x, 3, 2);
    x = build.convolutions(x, {{.out_channels = 384, .kernel = {3, 3}},
                               {.out_channels = options.fourth_channels, .kernel = {3, 3}},
                               {.out_channels = 256, .kernel = {3, 3}}});
    x = build.max_pool(x, 3, 2);
    x = build.dropout(build.dense(x, 4096), 0.5);
    x = build.dropout(build.dense(x, 4096), 0.5);
    build.classify(x, options.classes);
  });
}
/// The same with a number of classes.
template <class Network>
void alexnet(Network& net, index_t classes, error_location where = error_location::current()) {
  alexnet(net, alexnet_options{.classes = classes}, where);
}

/// Adds the network for images of 32 x 32 that TensorFlow's CIFAR-10 tutorial and tf_cnn_benchmarks call alexnet: two
/// convolutions with pooling and response normalization, and two dense layers (after A. Krizhevsky's cuda-convnet,
/// 2011). With 11 classes: 1,756,619 parameters.
template <class Network>
void cifar_alexnet(Network& net, index_t classes = 11, error_location where = error_location::current()) {
  at_call(where, [&] {
    const nn::local_response_norm normalize{.radius = 4, .alpha = 0.001 / 9, .beta = 0.75, .k = 1};
    block_builder build{net, normalization{}};
    nn::value x = build.input();
    x = build.convolution(x, {.out_channels = 64, .kernel = {5, 5}});
    x = build.max_pool(x, 3, 2, nn::padding::same());
    x = net.add(build.next_name("_response_norm"), normalize, x);
    x = build.convolution(x, {.out_channels = 64, .kernel = {5, 5}});
    x = net.add(build.next_name("_response_norm"), normalize, x);
    x = build.max_pool(x, 3, 2, nn::padding::same());
    x = build.dense(x, 384);
    x = build.dense(x, 192);
    build.classify(x, classes);
  });
}

/// Adds OverFeat's accurate model for images of 231 x 231 (Sermanet et al. 2014, as in tf_cnn_benchmarks).
/// With 1001 classes: 145,924,969 parameters.
template <class Network>
void overfeat(Network& net, index_t classes = 1001, error_location where = error_location::current()) {
  at_call(where, [&] {
    block_builder build{net, normalization{}};
    nn::value x = build.input();
    x = build.convolution(x,
                          {.out_channels = 96, .kernel = {11, 11}, .stride = {4, 4}, .padding = nn::padding::valid()});
    x = build.max_pool(x, 2, 2);
    x = build.convolution(x, {.out_channels = 256, .kernel = {5, 5}, .padding = nn::padding::valid()});
    x = build.max_pool(x, 2, 2);
    x = build.convolutions(x, {{.out_channels = 512, .kernel = {3, 3}},
                               {.out_channels = 1024, .kernel = {3, 3}},
                               {.out_channels = 1024, .kernel = {3, 3}}});
    x = build.max_pool(x, 2, 2);
    x = build.dense(x, 3072);
    x = build.dense(x, 4096);
    build.classify(x, classes);
  });
}

}  // namespace gradus::models
