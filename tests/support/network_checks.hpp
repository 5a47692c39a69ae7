// SPDX-License-Identifier: BSL-1.0
//
// Checks of networks against finite differences and against each other.
#pragma once

#include <gradus/core/element.hpp>
#include <gradus/core/random.hpp>
#include <gradus/nn/layers.hpp>
#include <gradus/nn/network.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace gradus_test {

/// A batch of random images in (-1, 1) and random labels, the same for every layout.
template <class Element, class Layout>
struct random_batch {
  gradus::image_tensor<Element, Layout> images;
  std::vector<std::int32_t> labels;

  random_batch(gradus::cpu& device, const gradus::image_extents& shape, std::int32_t classes, std::uint64_t seed = 7)
      : images{device, shape} {
    const gradus::random_stream stream{seed, "batch"};
    std::uint64_t index = 0;
    for (gradus::index_t n = 0; n < shape.n; ++n) {
      for (gradus::index_t c = 0; c < shape.c; ++c) {
        for (gradus::index_t h = 0; h < shape.h; ++h) {
          for (gradus::index_t w = 0; w < shape.w; ++w) {
            images(n, c, h, w) = static_cast<Element>(
                static_cast<gradus::parameter_element_t<Element>>(2.0 * stream.uniform(index++) - 1.0));
          }
        }
      }
      labels.push_back(static_cast<std::int32_t>(stream.below(static_cast<std::uint64_t>(classes), 1000 + index)));
    }
  }
};

/// The largest |finite difference - gradient| / (1e-4 + |finite difference|) over (at most `most` entries of) all
/// parameters, and where it is.
struct gradient_difference {
  double relative = 0;
  std::string where;
};

/// Central differences of the loss in training mode (with the same random numbers in every call).
template <class Network, class Batch>
gradient_difference check_gradients(Network& net, const Batch& batch, int most = 24) {
  const gradus::nn::step_options options{.step = 3, .first_example = 11, .global_examples = 0};
  const auto loss = [&] {
    return net.train_step(batch.images, batch.labels, options).loss / static_cast<double>(batch.labels.size());
  };
  (void)loss();
  std::vector<std::vector<double>> gradients;
  for (const auto& p : net.parameters()) {
    const auto g = p.copy_gradient();
    gradients.emplace_back(g.begin(), g.end());
  }
  gradient_difference worst;
  for (std::size_t k = 0; k < net.parameters().size(); ++k) {
    const auto& p = net.parameters()[k];
    auto values = p.copy_values();
    const std::size_t stride = std::max<std::size_t>(1, values.size() / static_cast<std::size_t>(most));
    for (std::size_t i = 0; i < values.size(); i += stride) {
      const double original = values[i];
      // Two step sizes: a kink of ReLU or max pooling inside the larger one does not spoil the smaller one.
      double best = 1e300;
      for (const double step : {1e-5, 1e-7}) {
        values[i] = original + step;
        p.assign_values(values);
        const double above = loss();
        values[i] = original - step;
        p.assign_values(values);
        const double below = loss();
        const double difference = (above - below) / (2 * step);
        best = std::min(best, std::abs(difference - gradients[k][i]) / (1e-3 + std::abs(difference)));
      }
      values[i] = original;
      p.assign_values(values);
      if (best > worst.relative || std::isnan(best)) {
        worst = {best, p.name() + "[" + std::to_string(i) + "]"};
      }
    }
  }
  return worst;
}

}  // namespace gradus_test
