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
#include "gradus/nn/layers/conv_transpose2d.hpp"
#include "gradus/nn/layers/elementwise.hpp"
#include "gradus/nn/layers/layer_norm.hpp"
#include "gradus/nn/layers/pad2d.hpp"
#include "gradus/nn/losses.hpp"
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
  x = net.add("leaky_both", nn::leaky_relu{.negative_slope = 0.5}, x);  // in place: concat does not fuse
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
                              {nn::per_channel("linear", nn::normal(1)), nn::per_layer("saturating", nn::ones())}),
              x);
  const nn::size2d three{3, 3};
  x = net.add("dilated",
              nn::conv2d{.out_channels = 8, .kernel = three, .padding = nn::padding::same(), .dilation = {2, 1}}, x);
  x = net.add("leaky_dilated", nn::leaky_relu{.negative_slope = 0.25}, x);
  x = net.add("dilated_odd",  // an odd padding, which cuDNN does not have
              nn::conv2d{.out_channels = 6, .kernel = {2, 3}, .padding = nn::padding::same(), .dilation = {3, 2}}, x);
  x = net.add("ring",
              nn::conv2d{.out_channels = 8,
                         .kernel = three,
                         .padding = nn::padding::same(),
                         .padding_mode = nn::padding_mode::circular,
                         .groups = 2},
              x);
  x = net.add("up",
              nn::conv_transpose2d{.out_channels = 6,
                                   .kernel = three,
                                   .stride = {2, 2},
                                   .padding = nn::padding::explicit_padding(1),
                                   .output_padding = {1, 1},
                                   .groups = 2},
              x);
  x = net.add("relu6_up", nn::relu6{}, x);
  x = net.add("up_odd",
              nn::conv_transpose2d{.out_channels = 4,
                                   .kernel = {2, 3},
                                   .stride = {1, 2},
                                   .padding = nn::padding::explicit_padding(1, 0, 4, 1),
                                   .dilation = {2, 1}},
              x);
  x = net.add("mirrored",
              nn::pad2d{.padding = nn::padding::explicit_padding(2, 0, 1, 3), .mode = nn::padding_mode::reflect}, x);
  x = net.add("smaller", nn::max_pool2d{.kernel = {2, 3}, .stride = {2, 3}}, x);
  x = net.add("norm4", nn::group_norm{.groups = 4}, x);
  x = net.add("leaky4", nn::leaky_relu{.negative_slope = 0.125}, x);
  x = net.add("norm5", nn::layer_norm{.axes = nn::norm_axes::channels, .shift = false}, x);
  x = net.add("relu5", nn::relu{}, x);
  x = net.add("norm6", nn::layer_norm{}, net.add("more", nn::conv2d{.out_channels = 6}, x));
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
outcome on_cpu_in_float16(bool channels_last);  // not with a smaller last batch

/// What a loss computes of random scores, logits of the layout in logical order.
struct loss_outcome {
  double loss = 0;
  index_t correct = 0;
  index_t labels = 0;
  std::vector<double> gradient;
};

/// Runs a loss on 3 examples of 5 x 3 x 7 scores with weights: with labels of pixels, one of four ignored, or with real
/// targets.
template <class Element, class Layout, class Device, class Options>
loss_outcome loss_on(Device& device, const Options& options, bool labeled) {
  using number = gradus::parameter_element_t<Element>;
  const nn::value_shape shape{5, 3, 7};
  const gradus::image_extents extents = shape.batch(3);
  const auto count = static_cast<std::size_t>(extents.size());
  const auto strides = gradus::dense_strides<Layout, 4>(extents);
  const gradus::random_stream stream{11, "losses"};
  std::vector<Element> scores(count);
  std::vector<number> targets(count);
  std::vector<std::size_t> order;  // where each element is, in the logical order
  for (index_t n = 0; n < 3; ++n) {
    for (index_t c = 0; c < 5; ++c) {
      for (index_t h = 0; h < 3; ++h) {
        for (index_t w = 0; w < 7; ++w) {
          const auto at = static_cast<std::size_t>(n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3]);
          scores[at] = static_cast<Element>(static_cast<float>(2 * stream.normal(order.size())));
          targets[at] = static_cast<number>(static_cast<float>(stream.uniform(1000 + order.size())));
          order.push_back(at);
        }
      }
    }
  }
  std::vector<std::int32_t> labels(3 * 3 * 7);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    labels[i] = i % 4 == 1 ? 255 : static_cast<std::int32_t>(i * 7 % 5);
  }
  const std::vector<number> weights{number{0.5}, number{2}, number{1}};
  gradus::image_tensor<Element, Layout, Device> z{device, extents};
  gradus::image_tensor<Element, Layout, Device> slopes{device, extents};
  gradus::image_tensor<number, Layout, Device> t{device, extents};
  gradus::tensor<std::int32_t, 1, gradus::row_major, Device> classes{device, {static_cast<index_t>(labels.size())}};
  gradus::tensor<number, 1, gradus::row_major, Device> factors{device, {3}};
  device.copy_from_host(z.data(), scores.data(), count * sizeof(Element));
  device.copy_from_host(t.data(), targets.data(), count * sizeof(number));
  device.copy_from_host(classes.data(), labels.data(), labels.size() * sizeof(std::int32_t));
  device.copy_from_host(factors.data(), weights.data(), weights.size() * sizeof(number));
  typename Options::template loss<Element, Layout, Device> loss{options};
  loss.infer(shape);
  loss.prepare(device);
  nn::targets<Element, Device> compared;
  if (labeled) {
    compared.labels = {classes.data(), labels.size()};
  } else {
    compared.values = {device, t.data(), extents};
  }
  compared.weights = {factors.data(), weights.size()};
  gradus::kernels::loss_sums sums =
      loss.compute({device, z.data(), extents}, compared, 0.25, {device, slopes.data(), extents});
  if constexpr (gradus::kernels::has_deferred_loss_sums<Device>) {
    sums += take_loss_sums(device);
  }
  std::vector<Element> gradient(count);
  device.copy_to_host(gradient.data(), slopes.data(), count * sizeof(Element));
  loss_outcome result{sums.loss, sums.correct, sums.labels, {}};
  for (const std::size_t at : order) {
    result.gradient.push_back(static_cast<double>(static_cast<number>(gradient[at])));
  }
  return result;
}

/// The losses that are compared.
enum class loss_kind { smoothed, ignored, squared, huber, binary, positive, cosine, summed };

template <class Element, class Layout, class Device>
loss_outcome loss_of_kind(Device& device, loss_kind kind) {
  const auto run = [&](const auto& options, bool labeled) {
    return loss_on<Element, Layout>(device, options, labeled);
  };
  switch (kind) {
    case loss_kind::smoothed:
      return run(
          nn::softmax_cross_entropy{.label_smoothing = 0.1, .class_weights = {0.5, 1, 2, 1.5, 1}, .ignored_label = 255},
          true);
    case loss_kind::ignored:
      return run(nn::softmax_cross_entropy{.ignored_label = 255}, true);
    case loss_kind::squared:
      return run(nn::mean_squared_error{}, false);
    case loss_kind::huber:
      return run(nn::huber{.delta = 0.5}, false);
    case loss_kind::binary:
      return run(nn::binary_cross_entropy_with_logits{}, false);
    case loss_kind::positive:
      return run(nn::binary_cross_entropy_with_logits{.positive_weight = {0.5, 1, 2, 1.5, 3}}, false);
    case loss_kind::cosine:
      return run(nn::cosine_similarity{}, false);
    case loss_kind::summed:
      break;
  }
  return run(nn::loss_of([](auto y, auto t) { return sum(square(y - t)); }), false);
}

/// On the host, in double precision.
loss_outcome expected_loss(loss_kind kind, bool channels_last);

}  // namespace gpu_layers
