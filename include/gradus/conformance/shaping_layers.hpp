// SPDX-License-Identifier: BSL-1.0
//
// The layers of nn/layers/shaping.hpp with the options and inputs of their conformance cases, for any device that has
// their kernels.
#pragma once

#include <string>   // std::string
#include <variant>  // std::variant, std::visit
#include <vector>   // std::vector

#include "gradus/conformance/layer.hpp"
#include "gradus/conformance/suite.hpp"
#include "gradus/core/element.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/nn/layers/shaping.hpp"

namespace gradus::conformance {

/// The options of any layer of nn/layers/shaping.hpp.
using shaping_layer_options = std::variant<nn::crop2d, nn::log_softmax, nn::multiply, nn::permute, nn::pixel_shuffle,
                                           nn::pixel_unshuffle, nn::reshape, nn::slice, nn::softmax, nn::upsample2d>;

/// A layer of nn/layers/shaping.hpp with the shapes of its inputs.
struct shaping_layer_case {
  std::string name;                     ///< name of the case, unique in shaping_layer_cases()
  shaping_layer_options options;        ///< makes the layer
  std::vector<nn::value_shape> inputs;  ///< shape of each input, without the batch
};

/// At least one case for each alternative of shaping_layer_options.
[[nodiscard]] inline std::vector<shaping_layer_case> shaping_layer_cases() {
  const nn::value_shape image{4, 5, 7};
  const auto bilinear = nn::interpolation::bilinear;
  std::vector<shaping_layer_case> cases{
      {"crop", nn::crop2d{.top = 1, .left = 2, .size = {3, 4}}, {image}},
      {"crop to the size of a value", nn::crop2d{}, {image, {2, 3, 2}}},
      {"crop of everything", nn::crop2d{.size = {5, 7}}, {image}},
      {"logarithm of softmax", nn::log_softmax{}, {image}},
      {"logarithm of softmax of a vector", nn::log_softmax{}, {{19, 1, 1}}},
      {"logarithm of softmax of a long vector", nn::log_softmax{}, {{300, 1, 1}}},
      {"product", nn::multiply{}, {image, image}},
      {"product with channels", nn::multiply{}, {image, {4, 1, 1}}},
      {"product of channels", nn::multiply{}, {{37, 1, 1}, {37, 6, 5}}},
      {"product of vectors", nn::multiply{}, {{19, 1, 1}, {19, 1, 1}}},
      {"permute", nn::permute{.axes = {axis::w, axis::c, axis::h}}, {image}},
      {"permute, long axes", nn::permute{.axes = {axis::h, axis::w, axis::c}}, {{70, 3, 66}}},
      {"pixel shuffle", nn::pixel_shuffle{.factor = 2}, {{8, 3, 5}}},
      {"pixel shuffle by 3", nn::pixel_shuffle{.factor = 3}, {{45, 2, 3}}},
      {"pixel unshuffle", nn::pixel_unshuffle{.factor = 2}, {{5, 6, 4}}},
      {"reshape of an image", nn::reshape{.channels = 10, .height = 7, .width = 2}, {image}},
      {"reshape to a vector", nn::reshape{}, {image}},
      {"reshape of a vector", nn::reshape{.channels = 4, .height = 5, .width = -1}, {{140, 1, 1}}},
      {"reshape without a refinement", nn::reshape{.channels = 6, .height = -1, .width = 5}, {{4, 5, 3}}},
      {"slice", nn::slice{.channels = {1, 3}, .rows = {2, -1}, .columns = {0, 6}}, {image}},
      {"slice of channels", nn::slice{.channels = {17, 33}}, {{40, 3, 2}}},
      {"slice of one element", nn::slice{.channels = {1, 2}, .rows = {4, 5}, .columns = {6, 7}}, {image}},
      {"softmax", nn::softmax{}, {image}},
      {"softmax of a vector", nn::softmax{}, {{19, 1, 1}}},
      {"softmax of a long vector", nn::softmax{}, {{300, 1, 1}}},
      {"upsample", nn::upsample2d{}, {image}},
      {"upsample, other scales", nn::upsample2d{.scale = {3, 1}}, {{17, 3, 4}}},
      {"upsample to a smaller size", nn::upsample2d{.size = {3, 9}}, {image}},
      {"upsample to the size of a value", nn::upsample2d{}, {image, {1, 8, 9}}},
      {"upsample, bilinear", nn::upsample2d{.mode = bilinear}, {image}},
      {"upsample, bilinear, many channels", nn::upsample2d{.mode = bilinear}, {{23, 3, 2}}},
      {"upsample, bilinear to a size", nn::upsample2d{.size = {4, 11}, .mode = bilinear}, {image}},
      {"upsample, aligned corners", nn::upsample2d{.size = {9, 4}, .mode = bilinear, .align_corners = true}, {image}},
      {"upsample of one pixel", nn::upsample2d{.size = {3, 2}, .mode = bilinear}, {{3, 1, 1}}},
      {"upsample to one pixel", nn::upsample2d{.size = {1, 1}, .mode = bilinear, .align_corners = true}, {image}},
  };
  return cases;
}

/// Runs the cases of all layers of nn/layers/shaping.hpp with the kernels of a device and returns their results.
template <class Element, class Layout, class Device>
[[nodiscard]] std::vector<result> check_shaping_layers(Device& device) {
  std::vector<result> results;
  for (const shaping_layer_case& each : shaping_layer_cases()) {
    run_case(results, each.name + ", " + std::string{element_name<Element>} + ", " + std::string{Layout::name}, [&] {
      std::visit([&](const auto& options) { require_layer_contract<Element, Layout>(device, options, each.inputs); },
                 each.options);
    });
  }
  return results;
}

}  // namespace gradus::conformance
