// SPDX-License-Identifier: BSL-1.0
//
// Small networks with branches, sums and concatenations, and what a few training steps of them leave behind.
#pragma once

#include <gradus/models/resnet.hpp>
#include <gradus/nn/layers.hpp>
#include <gradus/nn/network.hpp>

#include <string>
#include <vector>

#include "network_checks.hpp"

namespace gradus_test {

namespace nn = gradus::nn;

/// Convolution, batch normalization, ReLU.
template <class Network>
nn::value add_block(Network& net, const std::string& name, nn::value x, gradus::index_t channels, nn::size2d kernel) {
  x = net.add(name + "_conv",
              nn::conv2d{.out_channels = channels, .kernel = kernel, .padding = nn::padding::same(), .bias = false}, x);
  x = net.add(name + "_norm", nn::batch_norm{}, x);
  return net.add(name + "_relu", nn::relu{}, x);
}

/// Four branches of about the same work, joined: like an Inception module; one of them splits again.
template <class Network>
nn::value add_module(Network& net, const std::string& name, nn::value x) {
  const nn::value a = add_block(net, name + "_a", x, 6, {3, 3});
  nn::value b = add_block(net, name + "_b1", x, 4, {1, 1});
  b = add_block(net, name + "_b2", b, 6, {3, 3});
  nn::value c = add_block(net, name + "_c1", x, 4, {1, 1});
  const nn::value wide = add_block(net, name + "_c2", c, 4, {1, 3});
  const nn::value high = add_block(net, name + "_c3", c, 4, {3, 1});
  c = net.add(name + "_c4", nn::concat{}, {wide, high});
  nn::value d =
      net.add(name + "_d1", nn::average_pool2d{.kernel = {3, 3}, .stride = {1, 1}, .padding = nn::padding::same()}, x);
  d = net.add(name + "_d2",
              nn::conv2d{.out_channels = 5, .kernel = {3, 3}, .padding = nn::padding::same(), .bias = true}, d);
  return net.add(name + "_joined", nn::concat{}, {a, b, c, d});
}

/// Modules, a block with a projection, a chain of concatenations, and every kind of layer that can be recomputed.
template <class Network>
void build_branching(Network& net) {
  nn::value x = add_block(net, "stem", net.input(), 8, {3, 3});
  x = add_module(net, "module1", x);
  x = net.add("pool", nn::max_pool2d{.kernel = {3, 3}, .stride = {2, 2}, .padding = nn::padding::same()}, x);
  x = net.add("lrn", nn::local_response_norm{}, x);
  x = add_module(net, "module2", x);
  // Densely connected: every concatenation reads the one before it, and a ReLU is in place.
  for (const char* const name : {"dense1", "dense2", "dense3", "dense4"}) {
    nn::value y = net.add(std::string{name} + "_relu", nn::relu{}, x);
    y = net.add(std::string{name} + "_conv",
                nn::conv2d{.out_channels = 4, .kernel = {3, 3}, .padding = nn::padding::same()}, y);
    x = net.add(std::string{name} + "_joined", nn::concat{}, {x, y});
  }
  // A shortcut with a projection, a sum that no layer can take over, and one with more channels.
  nn::value y = add_block(net, "wide1", x, 12, {3, 3});
  y = net.add("wide2", nn::conv2d{.out_channels = 16, .kernel = {3, 3}, .padding = nn::padding::same(), .bias = false},
              y);
  y = net.add("wide2_norm", nn::batch_norm{}, y);
  nn::value shortcut = net.add(
      "projection", nn::conv2d{.out_channels = 16, .kernel = {3, 3}, .padding = nn::padding::same(), .bias = false}, x);
  shortcut = net.add("projection_norm", nn::batch_norm{}, shortcut);
  x = net.add("sum", nn::add{}, {y, shortcut});
  x = net.add("sum_relu", nn::relu{}, x);
  y = net.add("smooth", nn::average_pool2d{.kernel = {3, 3}, .stride = {1, 1}, .padding = nn::padding::same()}, x);
  x = net.add("sum2", nn::add{}, {x, y});
  x = net.add("padded", nn::pad_channels{.before = 1, .after = 2}, x);
  x = add_block(net, "last", x, 12, {1, 1});
  x = net.add("mean", nn::global_average_pool2d{}, x);
  x = net.add("dropout", nn::dropout{.rate = 0.25}, x);
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 5}, x));
}

/// Everything that a few steps leave: losses, gradients, running statistics, scores.
template <class Layout, class Build>
std::vector<std::vector<float>> results_of_steps(const gradus::cpu_options& threads, const nn::value_shape& input,
                                                 const Build& build, nn::recomputation recompute = {}) {
  gradus::cpu device{threads};
  nn::network<float, Layout> net{device, input};
  build(net);
  net.compile({.max_batch_size = 6, .seed = 1, .recompute = recompute, .parallel_branches = true});
  std::vector<std::vector<float>> results;
  for (const gradus::index_t examples : {6, 5}) {
    const random_batch<float, Layout> batch{device, input.batch(examples), 5};
    const auto sums = net.train_step(batch.images, batch.labels, {.step = 3, .first_example = 7});
    results.push_back({static_cast<float>(sums.loss)});
    results.emplace_back(net.gradients().begin(), net.gradients().end());
    results.emplace_back(net.buffer_values().begin(), net.buffer_values().end());
    const auto scores = net.forward(batch.images);
    results.emplace_back(scores.data(), scores.data() + scores.size());
    for (std::size_t k = 0; k < net.values().size(); ++k) {
      net.values()[k] -= 0.01F * net.gradients()[k];
    }
  }
  return results;
}

}  // namespace gradus_test
