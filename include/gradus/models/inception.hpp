// SPDX-License-Identifier: BSL-1.0
//
// Inception-v3 and Inception-v4.
#pragma once

#include <string>  // std::string

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/models/blocks.hpp"

namespace gradus::models {

/// The variant of Inception-v3.
enum class inception3_version : unsigned char {
  /// The normalizations have no scale, means leave out the padding, and the last module has a max pooling (as in
  /// tf_cnn_benchmarks).
  v1,
  /// torchvision's model: the normalizations have a scale, means count the padding, the pooling of the last module is a
  /// mean as in the others, the mean at the end is for images of any size, and dropout is before the scores.
  torchvision
};

/// Options of Inception-v3.
struct inception3_options {
  index_t classes = 1001;                               ///< number of classes
  inception3_version version = inception3_version::v1;  ///< variant of the network
};

namespace detail {

/// The batch normalization of the Inception networks: with a shift, without a scale.
inline normalization inception_normalization() {
  return {.use = true, .layer = {.momentum = 0.001, .epsilon = 0.001, .scale = false}};
}

template <class Network>
class inception3_builder {
 public:
  inception3_builder(Network& net, const inception3_options& options)
      : build_{net, options.version == inception3_version::torchvision
                        ? normalization{.use = true, .layer = {.momentum = 0.1, .epsilon = 0.001}}
                        : inception_normalization()},
        options_{options} {}

  void run() {
    build_.begin("stem");
    nn::value x =
        build_.convolutions(build_.input(), {{32, {3, 3}, {2, 2}, valid}, {32, {3, 3}, {1, 1}, valid}, {64, {3, 3}}});
    x = build_.max_pool(x, 3, 2);
    x = build_.convolutions(x, {{80, {1, 1}, {1, 1}, valid}, {192, {3, 3}, {1, 1}, valid}});
    x = build_.max_pool(x, 3, 2);
    x = module_a(x, "a1", 32);
    x = module_a(x, "a2", 64);
    x = module_a(x, "a3", 64);
    x = module_b(x);
    x = module_c(x, "c1", 128);
    x = module_c(x, "c2", 160);
    x = module_c(x, "c3", 160);
    x = module_c(x, "c4", 192);
    x = module_d(x);
    x = module_e(x, "e1", false);
    x = module_e(x, "e2", !torchvision());
    build_.begin("head");
    x = torchvision() ? build_.dropout(build_.global_average_pool(x), 0.5) : build_.average_pool(x, 8, 1);
    build_.classify(x, options_.classes);
  }

 private:
  static constexpr nn::padding valid = nn::padding::valid();
  static constexpr nn::padding same = nn::padding::same();

  [[nodiscard]] bool torchvision() const noexcept { return options_.version == inception3_version::torchvision; }

  nn::value mean(nn::value x) { return build_.average_pool(x, 3, 1, same, torchvision()); }

  nn::value module_a(nn::value x, const std::string& name, index_t pooled) {
    build_.begin(gradus::join({name, "_"}));
    const nn::value one = build_.convolution(x, {64});
    const nn::value five = build_.convolutions(x, {{48}, {64, {5, 5}}});
    const nn::value three = build_.convolutions(x, {{64}, {96, {3, 3}}, {96, {3, 3}}});
    const nn::value pool = build_.convolution(mean(x), {pooled});
    return build_.concat({one, five, three, pool});
  }

  nn::value module_b(nn::value x) {
    build_.begin("b1_");
    const nn::value one = build_.convolution(x, {384, {3, 3}, {2, 2}, valid});
    const nn::value two = build_.convolutions(x, {{64}, {96, {3, 3}}, {96, {3, 3}, {2, 2}, valid}});
    return build_.concat({one, two, build_.max_pool(x, 3, 2)});
  }

  nn::value module_c(nn::value x, const std::string& name, index_t n) {
    build_.begin(gradus::join({name, "_"}));
    const nn::value one = build_.convolution(x, {192});
    const nn::value two = build_.convolutions(x, {{n}, {n, {1, 7}}, {192, {7, 1}}});
    const nn::value three = build_.convolutions(x, {{n}, {n, {7, 1}}, {n, {1, 7}}, {n, {7, 1}}, {192, {1, 7}}});
    const nn::value pool = build_.convolution(mean(x), {192});
    return build_.concat({one, two, three, pool});
  }

  nn::value module_d(nn::value x) {
    build_.begin("d1_");
    const nn::value one = build_.convolutions(x, {{192}, {320, {3, 3}, {2, 2}, valid}});
    const nn::value two = build_.convolutions(x, {{192}, {192, {1, 7}}, {192, {7, 1}}, {192, {3, 3}, {2, 2}, valid}});
    return build_.concat({one, two, build_.max_pool(x, 3, 2)});
  }

  nn::value module_e(nn::value x, const std::string& name, bool max_pool) {
    build_.begin(gradus::join({name, "_"}));
    const nn::value one = build_.convolution(x, {320});
    const nn::value two = build_.convolution(x, {384});
    const nn::value two_wide = build_.convolution(two, {384, {1, 3}});
    const nn::value two_high = build_.convolution(two, {384, {3, 1}});
    const nn::value three = build_.convolutions(x, {{448}, {384, {3, 3}}});
    const nn::value three_wide = build_.convolution(three, {384, {1, 3}});
    const nn::value three_high = build_.convolution(three, {384, {3, 1}});
    const nn::value pooled = max_pool ? build_.max_pool(x, 3, 1, same) : mean(x);
    return build_.concat({one, two_wide, two_high, three_wide, three_high, build_.convolution(pooled, {192})});
  }

  block_builder<Network> build_;
  inception3_options options_;
};

template <class Network>
class inception4_builder {
 public:
  explicit inception4_builder(Network& net) : build_{net, inception_normalization()} {}

  void run(index_t classes) {
    nn::value x = stem();
    for (int i = 1; i <= 4; ++i) {
      x = module_a(x, gradus::join({"a", i}));
    }
    x = reduction_a(x);
    for (int i = 1; i <= 7; ++i) {
      x = module_b(x, gradus::join({"b", i}));
    }
    x = reduction_b(x);
    for (int i = 1; i <= 3; ++i) {
      x = module_c(x, gradus::join({"c", i}));
    }
    build_.begin("head");
    x = build_.network().add("global_pool", nn::global_average_pool2d{}, x);
    build_.classify(build_.dropout(x, 0.2), classes);
  }

 private:
  static constexpr nn::padding valid = nn::padding::valid();
  static constexpr nn::padding same = nn::padding::same();

  nn::value stem() {
    build_.begin("stem");
    nn::value x =
        build_.convolutions(build_.input(), {{32, {3, 3}, {2, 2}, valid}, {32, {3, 3}, {1, 1}, valid}, {64, {3, 3}}});
    x = build_.concat({build_.max_pool(x, 3, 2), build_.convolution(x, {96, {3, 3}, {2, 2}, valid})});
    const nn::value straight = build_.convolutions(x, {{64}, {96, {3, 3}, {1, 1}, valid}});
    const nn::value crossed = build_.convolutions(x, {{64}, {64, {7, 1}}, {64, {1, 7}}, {96, {3, 3}, {1, 1}, valid}});
    x = build_.concat({straight, crossed});
    return build_.concat({build_.convolution(x, {192, {3, 3}, {2, 2}, valid}), build_.max_pool(x, 3, 2)});
  }

  nn::value module_a(nn::value x, const std::string& name) {
    build_.begin(gradus::join({name, "_"}));
    const nn::value pool = build_.convolution(build_.average_pool(x, 3, 1, same), {96});
    const nn::value one = build_.convolution(x, {96});
    const nn::value two = build_.convolutions(x, {{64}, {96, {3, 3}}});
    const nn::value three = build_.convolutions(x, {{64}, {96, {3, 3}}, {96, {3, 3}}});
    return build_.concat({pool, one, two, three});
  }

  nn::value reduction_a(nn::value x) {
    build_.begin("reduction_a_");
    const nn::value pool = build_.max_pool(x, 3, 2);
    const nn::value one = build_.convolution(x, {384, {3, 3}, {2, 2}, valid});
    const nn::value two = build_.convolutions(x, {{192}, {224, {3, 3}}, {256, {3, 3}, {2, 2}, valid}});
    return build_.concat({pool, one, two});
  }

  nn::value module_b(nn::value x, const std::string& name) {
    build_.begin(gradus::join({name, "_"}));
    const nn::value pool = build_.convolution(build_.average_pool(x, 3, 1, same), {128});
    const nn::value one = build_.convolution(x, {384});
    const nn::value two = build_.convolutions(x, {{192}, {224, {1, 7}}, {256, {7, 1}}});
    const nn::value three = build_.convolutions(x, {{192}, {192, {1, 7}}, {224, {7, 1}}, {224, {1, 7}}, {256, {7, 1}}});
    return build_.concat({pool, one, two, three});
  }

  nn::value reduction_b(nn::value x) {
    build_.begin("reduction_b_");
    const nn::value pool = build_.max_pool(x, 3, 2);
    const nn::value one = build_.convolutions(x, {{192}, {192, {3, 3}, {2, 2}, valid}});
    const nn::value two = build_.convolutions(x, {{256}, {256, {1, 7}}, {320, {7, 1}}, {320, {3, 3}, {2, 2}, valid}});
    return build_.concat({pool, one, two});
  }

  nn::value module_c(nn::value x, const std::string& name) {
    build_.begin(gradus::join({name, "_"}));
    const nn::value pool = build_.convolution(build_.average_pool(x, 3, 1, same), {256});
    const nn::value one = build_.convolution(x, {256});
    const nn::value two = build_.convolution(x, {384});
    const nn::value two_wide = build_.convolution(two, {256, {1, 3}});
    const nn::value two_high = build_.convolution(two, {256, {3, 1}});
    const nn::value three = build_.convolutions(x, {{384}, {448, {1, 3}}, {512, {3, 1}}});
    const nn::value three_high = build_.convolution(three, {256, {3, 1}});
    const nn::value three_wide = build_.convolution(three, {256, {1, 3}});
    return build_.concat({pool, one, two_wide, two_high, three_high, three_wide});
  }

  block_builder<Network> build_;
};

}  // namespace detail

/// Adds Inception-v3 for images of 299 x 299, without the auxiliary classifier (Szegedy et al.: "Rethinking the
/// inception architecture", 2016). With 1001 classes: 23,819,401 parameters. {.classes = 1000, .version =
/// inception3_version::torchvision} makes torchvision's model (gradus/io/torchvision.hpp), for images of at least
/// 75 x 75, with 23,834,568 parameters.
template <class Network>
void inception3(Network& net, const inception3_options& options = {},
                error_location where = error_location::current()) {
  at_call(where, [&] { detail::inception3_builder<Network>{net, options}.run(); });
}
/// The same with a number of classes.
template <class Network>
void inception3(Network& net, index_t classes, error_location where = error_location::current()) {
  inception3(net, inception3_options{.classes = classes}, where);
}

/// Adds Inception-v4 for images of 299 x 299 (Szegedy et al.: "Inception-v4, Inception-ResNet", 2017, figures 3 to 9).
template <class Network>
void inception4(Network& net, index_t classes = 1001, error_location where = error_location::current()) {
  at_call(where, [&] { detail::inception4_builder<Network>{net}.run(classes); });
}

}  // namespace gradus::models
