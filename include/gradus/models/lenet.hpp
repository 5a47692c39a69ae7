// SPDX-License-Identifier: BSL-1.0
//
// LeNet as in tf_cnn_benchmarks, and its "trivial" model.
#pragma once

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/models/blocks.hpp"

namespace gradus::models {

/// Adds LeNet for images of 28 x 28: two 5 x 5 convolutions of 32 and 64 channels with 2 x 2 max pooling, 512 features.
/// With 3 channels and 1001 classes: 2,173,353 parameters.
template <class Network>
void lenet(Network& net, index_t classes = 1001, error_location where = error_location::current()) {
  at_call(where, [&] {
    block_builder build{net, normalization{}};
    nn::value x = build.input();
    x = build.convolution(x, {.out_channels = 32, .kernel = {5, 5}});
    x = build.max_pool(x, 2, 2);
    x = build.convolution(x, {.out_channels = 64, .kernel = {5, 5}});
    x = build.max_pool(x, 2, 2);
    x = build.dense(x, 512);
    build.classify(x, classes);
  });
}

/// Adds a network with very little arithmetic, which measures the time of everything else: two dense layers, for images
/// of 227 x 227. With 1001 classes: 4,263,877 parameters.
template <class Network>
void trivial(Network& net, index_t classes = 1001, error_location where = error_location::current()) {
  at_call(where, [&] {
    block_builder build{net, normalization{}};
    nn::value x = build.input();
    x = build.dense(x, 1);
    x = build.dense(x, 4096);
    build.classify(x, classes);
  });
}

}  // namespace gradus::models
