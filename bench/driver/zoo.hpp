// SPDX-License-Identifier: BSL-1.0
//
// The networks that gradus_bench knows, by name.
#pragma once

#include <string>
#include <vector>

#include "gradus/nn/value.hpp"

namespace driver {

using gradus::index_t;

/// The parameters with which a function of gradus::models is called.
enum class family {
  trivial,
  lenet,
  mnist,
  mlp,
  alexnet,
  overfeat,
  vgg,
  googlenet,
  inception3,
  inception4,
  resnet,
  cifar,
  mobilenet,
  cifar_alexnet,
  densenet,
  cifar_densenet,
  unet,
  deeplab
};

/// Whether the network has scores of each pixel, which has a label of its own.
[[nodiscard]] constexpr bool labels_pixels(family kind) noexcept {
  return kind == family::unet || kind == family::deeplab;
}

struct model_properties {
  const char* name;
  driver::family family;
  int depth;    // of families with one: the layers with weights, of deeplab those of its ResNet; of unet the poolings
  int version;  // of residual networks: 1, 15 for 1.5, or 2; of cifar_densenet: the growth rate
  gradus::nn::value_shape image;
  int classes;
  index_t batch_size;   // of a rank, as in tf_cnn_benchmarks
  const char* dataset;  // whose shape the images have
};

[[nodiscard]] std::vector<std::string> model_names();
/// @pre the name is one of model_names()
[[nodiscard]] const model_properties& find_model(const std::string& name);

}  // namespace driver
