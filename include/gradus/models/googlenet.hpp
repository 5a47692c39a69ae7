// SPDX-License-Identifier: BSL-1.0
//
// GoogLeNet.
#pragma once

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/models/blocks.hpp"

namespace gradus::models {

/// The variant of GoogLeNet.
enum class googlenet_version : unsigned char {
  /// Table 1 of the paper, without normalization and without dropout (as in tf_cnn_benchmarks).
  v1,
  /// torchvision's model: batch normalization in place of a bias behind each convolution, symmetric padding of the
  /// first one, a kernel of 3 x 3 in place of 5 x 5 in the modules, 2 x 2 in place of 3 x 3 in the last max pooling,
  /// max poolings that cover the last row and column of any image (ceil_mode), a mean over images of any size, and
  /// dropout before the scores.
  torchvision
};

/// Options of GoogLeNet.
struct googlenet_options {
  index_t classes = 1001;                             ///< number of classes
  googlenet_version version = googlenet_version::v1;  ///< variant of the network
};

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

template <class Network>
class googlenet_builder {
 public:
  googlenet_builder(Network& net, const googlenet_options& options)
      : build_{net,
               {.use = options.version == googlenet_version::torchvision,
                .layer = {.momentum = 0.1, .epsilon = 0.001}}},
        options_{options} {}

  void run() {
    nn::value x = build_.input();
    x = build_.convolution(x, {.out_channels = 64,
                               .kernel = {7, 7},
                               .stride = {2, 2},
                               .padding = torchvision() ? nn::padding::explicit_padding(3) : nn::padding::same()});
    x = halve(x, 3);
    x = build_.convolutions(x, {{.out_channels = 64}, {.out_channels = 192, .kernel = {3, 3}}});
    x = halve(x, 3);
    x = module(x, {"3a", 64, 96, 128, 16, 32, 32});
    x = module(x, {"3b", 128, 128, 192, 32, 96, 64});
    x = halve(x, 3);
    x = module(x, {"4a", 192, 96, 208, 16, 48, 64});
    x = module(x, {"4b", 160, 112, 224, 24, 64, 64});
    x = module(x, {"4c", 128, 128, 256, 24, 64, 64});
    x = module(x, {"4d", 112, 144, 288, 32, 64, 64});
    x = module(x, {"4e", 256, 160, 320, 32, 128, 128});
    x = halve(x, torchvision() ? 2 : 3);
    x = module(x, {"5a", 256, 160, 320, 32, 128, 128});
    x = module(x, {"5b", 384, 192, 384, 48, 128, 128});
    x = torchvision() ? build_.dropout(build_.global_average_pool(x), 0.2) : build_.average_pool(x, 7, 1);
    build_.classify(x, options_.classes);
  }

 private:
  [[nodiscard]] bool torchvision() const noexcept { return options_.version == googlenet_version::torchvision; }

  /// Max pooling with a stride of 2. A row below and a column on the right give the extents of ceil_mode; for even
  /// extents they are those of padding::same().
  nn::value halve(nn::value x, index_t kernel) {
    return build_.max_pool(x, kernel, 2,
                           torchvision() ? nn::padding::explicit_padding(0, 1, 0, 1) : nn::padding::same());
  }

  nn::value module(nn::value x, const googlenet_module& of) {
    build_.begin(gradus::join({"inception", of.name, "_"}));
    const index_t wide = torchvision() ? 3 : 5;
    const nn::value direct = build_.convolution(x, {.out_channels = of.direct});
    const nn::value three =
        build_.convolutions(x, {{.out_channels = of.reduce3}, {.out_channels = of.conv3, .kernel = {3, 3}}});
    const nn::value five =
        build_.convolutions(x, {{.out_channels = of.reduce5}, {.out_channels = of.conv5, .kernel = {wide, wide}}});
    const nn::value pool = build_.convolution(build_.max_pool(x, 3, 1, nn::padding::same()), {.out_channels = of.pool});
    return build_.concat({direct, three, five, pool});
  }

  block_builder<Network> build_;
  googlenet_options options_;
};

}  // namespace detail

/// Adds GoogLeNet for images of 224 x 224, without the auxiliary classifiers and without response normalization
/// (Szegedy et al.: "Going deeper with convolutions", 2015, table 1). {.classes = 1000, .version =
/// googlenet_version::torchvision} makes torchvision's model (gradus/io/torchvision.hpp), for images of any size, with
/// 6,624,904 parameters.
template <class Network>
void googlenet(Network& net, const googlenet_options& options = {}, error_location where = error_location::current()) {
  at_call(where, [&] { detail::googlenet_builder<Network>{net, options}.run(); });
}
/// The same with a number of classes.
template <class Network>
void googlenet(Network& net, index_t classes, error_location where = error_location::current()) {
  googlenet(net, googlenet_options{.classes = classes}, where);
}

}  // namespace gradus::models
