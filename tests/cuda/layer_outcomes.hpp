// SPDX-License-Identifier: BSL-1.0
//
// One training step of a network with every kind of layer, on any device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradus/core/random.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/activations.hpp"
#include "gradus/nn/layers/elementwise.hpp"
#include "gradus/nn/network.hpp"

namespace gpu_layers {

using gradus::index_t;
namespace nn = gradus::nn;

inline constexpr index_t batch = 6;
inline constexpr nn::value_shape image{.channels = 3, .height = 11, .width = 9};

/// Every layer, fused and not, with padding that cuDNN has and padding that it has not.
template <class Network>
void build(Network& net, bool last_batch_smaller) {
  nn::value x = net.input();
  x = net.add("conv1", nn::conv2d{.out_channels = 8, .kernel = {3, 3}, .padding = nn::padding::same()}, x);
  x = net.add("relu1", nn::relu{}, x);
  const nn::value shortcut = x;
  x = net.add("conv2", nn::conv2d{.out_channels = 8, .kernel = {3, 3}, .padding = nn::padding::same(), .bias = false},
              x);
  x = net.add("norm2", nn::batch_norm{}, x);
  x = net.add("sum", nn::add{}, {x, shortcut});
  x = net.add("relu2", nn::relu{}, x);
  x = net.add("response", nn::local_response_norm{.alpha = 0.1}, x);
  const nn::value left = net.add(
      "down",
      nn::conv2d{.out_channels = 12, .kernel = {2, 4}, .stride = {2, 2}, .padding = nn::padding::same(), .groups = 2},
      x);
  const nn::value right =
      net.add("pool", nn::max_pool2d{.kernel = {3, 3}, .stride = {2, 2}, .padding = nn::padding::same()}, x);
  x = net.add("both", nn::concat{}, {left, right});
  x = net.add("average", nn::average_pool2d{.kernel = {3, 3}, .stride = {1, 1}, .padding = nn::padding::same()}, x);
  x = net.add("wider", nn::pad_channels{.before = 1, .after = 3}, x);
  x = net.add("norm3", nn::batch_norm{.scale = false}, x);
  x = net.add("relu3", nn::relu{}, x);
  const nn::value gate =
      net.add("gate", nn::sigmoid{}, net.add("wide", nn::conv2d{.out_channels = net.shape(x).channels}, x));
  x = net.add("gated", nn::elementwise([](auto a, auto b) { return a * b + 0.5 * max(a, b); }), {x, gate});
  x = net.add("prelu", nn::prelu{.initial = nn::normal(0.5)}, x);
  x = net.add("curve",
              nn::elementwise([](auto a, auto b, auto c) { return b * a + c * tanh(a); },
                              {nn::per_channel("linear", nn::normal(1)), nn::per_layer("bent", nn::ones())}),
              x);
  x = net.add("dropped", nn::dropout{.rate = 0.25}, x);
  x = net.add("flat", nn::flatten{}, x);
  x = net.add("hidden", nn::dense{.out_features = 13}, x);
  x = net.add("relu4", nn::relu{}, x);
  x = net.add("scores", nn::dense{.out_features = 5}, x);
  net.loss(nn::softmax_cross_entropy{}, x);
  net.compile({.max_batch_size = last_batch_smaller ? batch + 2 : batch, .seed = 3});
}

/// In the logical order.
struct outcome {
  double loss = 0;
  index_t correct = 0;
  double evaluated = 0;
  std::vector<std::vector<double>> gradients;
  std::vector<double> statistics;
};

template <class Element, class Layout, class Device>
outcome train(Device& device, bool last_batch_smaller) {
  nn::network<Element, Layout, Device> net{device, image};
  build(net, last_batch_smaller);
  const gradus::image_extents shape = image.batch(batch);
  std::vector<Element> values(static_cast<std::size_t>(shape.size()));
  const auto strides = gradus::dense_strides<Layout, 4>(shape);
  const gradus::random_stream stream{7, "images"};
  std::uint64_t number = 0;
  for (index_t n = 0; n < shape.n; ++n) {
    for (index_t c = 0; c < shape.c; ++c) {
      for (index_t h = 0; h < shape.h; ++h) {
        for (index_t w = 0; w < shape.w; ++w) {
          values[static_cast<std::size_t>(n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3])] =
              static_cast<Element>(static_cast<float>(stream.normal(number++)));
        }
      }
    }
  }
  std::vector<std::int32_t> labels(batch);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<std::int32_t>(i * 3 % 5);
  }
  gradus::image_tensor<Element, Layout, Device> images{device, shape};
  gradus::tensor<std::int32_t, 1, gradus::row_major, Device> classes{device, {batch}};
  device.copy_from_host(images.data(), values.data(), values.size() * sizeof(Element));
  device.copy_from_host(classes.data(), labels.data(), labels.size() * sizeof(std::int32_t));
  const std::span<const std::int32_t> on_device{classes.data(), labels.size()};

  outcome result;
  const auto sums = net.train_step(images, on_device, {.step = 5, .first_example = 100, .global_examples = 9});
  result.loss = sums.loss;
  result.correct = sums.correct;
  for (const auto& parameter : net.parameters()) {
    const auto gradient = parameter.copy_gradient();
    result.gradients.emplace_back(gradient.begin(), gradient.end());
  }
  std::vector<typename decltype(net)::parameter_element_type> statistics(net.buffer_values().size());
  device.copy_to_host(statistics.data(), net.buffer_values().data(), net.buffer_values().size_bytes());
  result.statistics.assign(statistics.begin(), statistics.end());
  result.evaluated = net.evaluate(images, on_device).loss;
  return result;
}

/// In double precision on the CPU, in a translation unit of its own: nvcc does not compile the kernels of the CPU.
outcome on_cpu_nchw(bool last_batch_smaller);
outcome on_cpu_nhwc(bool last_batch_smaller);

}  // namespace gpu_layers
