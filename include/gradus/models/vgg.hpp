// SPDX-License-Identifier: BSL-1.0
//
// The VGG networks.
#pragma once

#include <array>    // std::array
#include <cstddef>  // std::size_t

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/models/blocks.hpp"

namespace gradus::models {

/// Options of VGG.
struct vgg_options {
  index_t classes = 1001;   ///< number of classes
  bool batch_norm = false;  ///< batch normalization behind each convolution, which keeps its bias (as in torchvision)
};

/// Adds VGG with 11, 16 or 19 layers with weights for images of 224 x 224 (Simonyan, Zisserman 2015, table 1, columns
/// A, D and E). With 1001 classes: 132,867,433 (11), 138,361,641 (16) parameters. With 1000 classes it is torchvision's
/// model (gradus/io/torchvision.hpp).
/// @throws configuration_error for any other depth
template <class Network>
void vgg(Network& net, int depth, const vgg_options& options = {}, error_location where = error_location::current()) {
  at_call(where, [&] {
    constexpr std::array<index_t, 5> channels{64, 128, 256, 512, 512};
    std::array<int, 5> repeats{};
    switch (depth) {
      case 11:
        repeats = {1, 1, 2, 2, 2};
        break;
      case 16:
        repeats = {2, 2, 3, 3, 3};
        break;
      case 19:
        repeats = {2, 2, 4, 4, 4};
        break;
      default:
        raise<configuration_error>("models.vgg", "a depth of 11, 16 or 19", {depth});
    }
    block_builder build{
        net, normalization{.use = options.batch_norm, .layer = {.momentum = 0.1, .epsilon = 1e-5}, .bias = true}};
    nn::value x = build.input();
    for (std::size_t block = 0; block < channels.size(); ++block) {
      build.begin(gradus::join({"block", block + 1, "_"}));
      for (int i = 0; i < repeats[block]; ++i) {
        x = build.convolution(x, {.out_channels = channels[block], .kernel = {3, 3}});
      }
      x = build.max_pool(x, 2, 2);
    }
    build.begin("head");
    x = build.dropout(build.dense(x, 4096), 0.5);
    x = build.dropout(build.dense(x, 4096), 0.5);
    build.classify(x, options.classes);
  });
}
/// The same with a number of classes.
template <class Network>
void vgg(Network& net, int depth, index_t classes, error_location where = error_location::current()) {
  vgg(net, depth, vgg_options{.classes = classes}, where);
}

}  // namespace gradus::models
