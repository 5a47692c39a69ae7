// SPDX-License-Identifier: BSL-1.0
//
// GoogLeNet.
#pragma once

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/models/blocks.hpp"

namespace gradus::models {

namespace detail {

/// The channels of one inception module, in the order of the paper's table 1.
struct googlenet_module {
  const char* name;
  index_t direct;
  index_t reduce3;
  index_t conv3;
  index_t reduce5;
  index_t conv5;
  index_t pool;
};

template <class Builder>
nn::value add_googlenet_module(Builder& build, nn::value x, const googlenet_module& module) {
  build.begin(gradus::join({"inception", module.name, "_"}));
  const nn::value direct = build.convolution(x, {.out_channels = module.direct});
  const nn::value three =
      build.convolutions(x, {{.out_channels = module.reduce3}, {.out_channels = module.conv3, .kernel = {3, 3}}});
  const nn::value five =
      build.convolutions(x, {{.out_channels = module.reduce5}, {.out_channels = module.conv5, .kernel = {5, 5}}});
  const nn::value pool = build.convolution(build.max_pool(x, 3, 1, nn::padding::same()), {.out_channels = module.pool});
  return build.concat({direct, three, five, pool});
}

}  // namespace detail

/// Adds GoogLeNet for images of 224 x 224, without the auxiliary classifiers and without response normalization
/// (Szegedy et al.: "Going deeper with convolutions", 2015, table 1; as in tf_cnn_benchmarks).
template <class Network>
void googlenet(Network& net, index_t classes = 1001, error_location where = error_location::current()) {
  at_call(where, [&] {
    block_builder build{net, normalization{}};
    nn::value x = build.input();
    x = build.convolution(x, {.out_channels = 64, .kernel = {7, 7}, .stride = {2, 2}});
    x = build.max_pool(x, 3, 2, nn::padding::same());
    x = build.convolutions(x, {{.out_channels = 64}, {.out_channels = 192, .kernel = {3, 3}}});
    x = build.max_pool(x, 3, 2, nn::padding::same());
    x = detail::add_googlenet_module(build, x, {"3a", 64, 96, 128, 16, 32, 32});
    x = detail::add_googlenet_module(build, x, {"3b", 128, 128, 192, 32, 96, 64});
    x = build.max_pool(x, 3, 2, nn::padding::same());
    x = detail::add_googlenet_module(build, x, {"4a", 192, 96, 208, 16, 48, 64});
    x = detail::add_googlenet_module(build, x, {"4b", 160, 112, 224, 24, 64, 64});
    x = detail::add_googlenet_module(build, x, {"4c", 128, 128, 256, 24, 64, 64});
    x = detail::add_googlenet_module(build, x, {"4d", 112, 144, 288, 32, 64, 64});
    x = detail::add_googlenet_module(build, x, {"4e", 256, 160, 320, 32, 128, 128});
    x = build.max_pool(x, 3, 2, nn::padding::same());
    x = detail::add_googlenet_module(build, x, {"5a", 256, 160, 320, 32, 128, 128});
    x = detail::add_googlenet_module(build, x, {"5b", 384, 192, 384, 48, 128, 128});
    x = build.average_pool(x, 7, 1);
    build.classify(x, classes);
  });
}

}  // namespace gradus::models
