// SPDX-License-Identifier: BSL-1.0
//
// All layers of the library with the options and inputs of their conformance cases, for any device.
#pragma once

#include <string>   // std::string
#include <variant>  // std::variant, std::visit
#include <vector>   // std::vector

#include "gradus/conformance/layer.hpp"
#include "gradus/conformance/suite.hpp"
#include "gradus/core/element.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/adaptive_pool2d.hpp"

namespace gradus::conformance {

/// The options of any layer of the library.
using layer_options =
    std::variant<nn::adaptive_average_pool2d, nn::adaptive_max_pool2d, nn::add, nn::average_pool2d, nn::batch_norm,
                 nn::concat, nn::conv2d, nn::dense, nn::dropout, nn::flatten, nn::global_average_pool2d, nn::leaky_relu,
                 nn::local_response_norm, nn::max_pool2d, nn::pad_channels, nn::relu, nn::relu6>;

/// A layer with the shapes of its inputs.
struct layer_case {
  std::string name;                     ///< name of the case, unique in layer_cases()
  layer_options options;                ///< makes the layer
  std::vector<nn::value_shape> inputs;  ///< shape of each input, without the batch
  index_t least_batch = 1;              ///< examples that it needs in training
};

/// At least one case for each alternative of layer_options.
[[nodiscard]] inline std::vector<layer_case> layer_cases() {
  const nn::value_shape image{4, 5, 7};
  const nn::size2d three{3, 3};
  std::vector<layer_case> cases{
      {"adaptive average pool", nn::adaptive_average_pool2d{.output = {3, 4}}, {image}},
      {"adaptive average pool to more pixels", nn::adaptive_average_pool2d{.output = {7, 9}}, {image}},
      {"adaptive max pool", nn::adaptive_max_pool2d{.output = {3, 4}}, {{17, 5, 7}}},
      {"adaptive max pool of the image", nn::adaptive_max_pool2d{}, {image}},
      {"add", nn::add{}, {image, image}},
      {"average pool", nn::average_pool2d{.kernel = {3, 2}, .stride = {2, 1}}, {image}},
      {"average pool with padding",
       nn::average_pool2d{.kernel = three, .stride = {1, 1}, .padding = nn::padding::same(), .count_padding = true},
       {image}},
      {"average pool, rounded up",
       nn::average_pool2d{.kernel = {3, 2}, .stride = {3, 2}, .padding = 1, .count_padding = true, .ceil_mode = true},
       {image}},
      {"batch norm", nn::batch_norm{}, {image}},
      {"batch norm without scale and shift", nn::batch_norm{.scale = false, .shift = false}, {image}},
      {"batch norm of a vector", nn::batch_norm{.scale = false}, {{19, 1, 1}}, 2},
      {"concat", nn::concat{}, {image, {3, 5, 7}, {16, 5, 7}}},
      {"convolution", nn::conv2d{.out_channels = 6, .kernel = three, .padding = nn::padding::same()}, {image}},
      {"convolution, 1x1", nn::conv2d{.out_channels = 17, .bias = false}, {image}},
      {"convolution, strides", nn::conv2d{.out_channels = 3, .kernel = {3, 2}, .stride = {2, 3}}, {image}},
      {"convolution, groups", nn::conv2d{.out_channels = 8, .kernel = three, .groups = 2}, {image}},
      {"convolution, depthwise",
       nn::conv2d{.out_channels = 4, .kernel = three, .padding = nn::padding::same(), .groups = 4},
       {image}},
      {"convolution, dilated",
       nn::conv2d{.out_channels = 6, .kernel = three, .padding = nn::padding::same(), .dilation = {2, 3}},
       {image}},
      {"convolution, filtered",
       nn::conv2d{.out_channels = 32, .kernel = three, .padding = nn::padding::same()},
       {{32, 8, 8}}},
      {"dense", nn::dense{.out_features = 9}, {image}},
      {"dense without bias", nn::dense{.out_features = 3, .bias = false}, {{21, 1, 1}}},
      {"dropout", nn::dropout{.rate = 0.4}, {image}},
      {"flatten", nn::flatten{}, {image}},
      {"global average pool", nn::global_average_pool2d{}, {image}},
      {"local response norm", nn::local_response_norm{.radius = 2, .alpha = 0.1}, {image}},
      {"max pool", nn::max_pool2d{.kernel = {2, 2}, .stride = {2, 2}}, {image}},
      {"max pool, overlapping",
       nn::max_pool2d{.kernel = three, .stride = {2, 1}, .padding = nn::padding::same()},
       {{17, 6, 5}}},
      {"max pool, dilated and rounded up",
       nn::max_pool2d{.kernel = {2, 3}, .stride = 2, .padding = 1, .dilation = {3, 2}, .ceil_mode = true},
       {{17, 6, 5}}},
      {"pad channels", nn::pad_channels{.before = 2, .after = 3}, {image}},
      {"leaky relu", nn::leaky_relu{.negative_slope = 0.25}, {image}},
      {"leaky relu, falling", nn::leaky_relu{.negative_slope = -0.5}, {image}},
      {"relu", nn::relu{}, {image}},
      {"relu6", nn::relu6{}, {image}},
  };
  return cases;
}

/// Runs the cases of all layers with the kernels of a device and returns their results.
template <class Element, class Layout, class Device>
[[nodiscard]] std::vector<result> check_layers(Device& device) {
  std::vector<result> results;
  for (const layer_case& each : layer_cases()) {
    run_case(results, each.name + ", " + std::string{element_name<Element>} + ", " + std::string{Layout::name}, [&] {
      std::visit(
          [&](const auto& options) {
            require_layer_contract<Element, Layout>(device, options, each.inputs, each.least_batch);
          },
          each.options);
    });
  }
  return results;
}

}  // namespace gradus::conformance
