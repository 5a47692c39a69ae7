// SPDX-License-Identifier: BSL-1.0
//
// A graph as the C++ that builds its network.
#pragma once

#include <cstddef>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "graph_spec.hpp"

namespace gradus_test {

/// The options of a layer as C++.
class options_text {
 public:
  std::string operator()(const nn::add&) const { return "nn::add{}"; }
  std::string operator()(const nn::adaptive_average_pool2d& options) const {
    return "nn::adaptive_average_pool2d{.output = " + size(options.output) + "}";
  }
  std::string operator()(const nn::adaptive_max_pool2d& options) const {
    return "nn::adaptive_max_pool2d{.output = " + size(options.output) + "}";
  }
  std::string operator()(const nn::average_pool2d& options) const {
    return pool("average_pool2d", options, options.count_padding ? ", .count_padding = true" : "");
  }
  std::string operator()(const nn::max_pool2d& options) const {
    return pool("max_pool2d", options, ", .dilation = " + size(options.dilation));
  }
  std::string operator()(const nn::batch_norm& options) const {
    std::ostringstream out;
    out << "nn::batch_norm{.momentum = " << options.momentum << ", .epsilon = " << options.epsilon
        << (options.scale ? "" : ", .scale = false") << (options.shift ? "" : ", .shift = false") << "}";
    return out.str();
  }
  std::string operator()(const nn::group_norm& options) const {
    std::ostringstream out;
    out << "nn::group_norm{.groups = " << options.groups << ", .epsilon = " << options.epsilon
        << (options.scale ? "" : ", .scale = false") << (options.shift ? "" : ", .shift = false") << "}";
    return out.str();
  }
  std::string operator()(const nn::layer_norm& options) const {
    std::ostringstream out;
    out << "nn::layer_norm{.axes = nn::norm_axes::" << (options.axes == nn::norm_axes::image ? "image" : "channels")
        << ", .epsilon = " << options.epsilon << (options.scale ? "" : ", .scale = false")
        << (options.shift ? "" : ", .shift = false") << "}";
    return out.str();
  }
  std::string operator()(const nn::concat&) const { return "nn::concat{}"; }
  std::string operator()(const nn::conv2d& options) const {
    std::ostringstream out;
    out << "nn::conv2d{.out_channels = " << options.out_channels << ", " << windows(options)
        << mode(", .padding_mode", options.padding_mode) << ", .dilation = " << size(options.dilation)
        << ", .groups = " << options.groups << (options.bias ? "" : ", .bias = false") << "}";
    return out.str();
  }
  std::string operator()(const nn::conv_transpose2d& options) const {
    std::ostringstream out;
    out << "nn::conv_transpose2d{.out_channels = " << options.out_channels << ", " << windows(options)
        << ", .output_padding = " << size(options.output_padding) << ", .dilation = " << size(options.dilation)
        << ", .groups = " << options.groups << (options.bias ? "" : ", .bias = false") << "}";
    return out.str();
  }
  std::string operator()(const nn::crop2d& options) const {
    return options.size == nn::size2d{0, 0}
               ? "nn::crop2d{}"
               : "nn::crop2d{.top = " + std::to_string(options.top) + ", .left = " + std::to_string(options.left) +
                     ", .size = " + size(options.size) + "}";
  }
  std::string operator()(const nn::dense& options) const {
    return "nn::dense{.out_features = " + std::to_string(options.out_features) +
           (options.bias ? "" : ", .bias = false") + "}";
  }
  std::string operator()(const nn::dropout& options) const {
    std::ostringstream out;
    out << "nn::dropout{.rate = " << options.rate << ", .name = \"" << options.name << "\"}";
    return out.str();
  }
  std::string operator()(const nn::flatten&) const { return "nn::flatten{}"; }
  std::string operator()(const nn::global_average_pool2d&) const { return "nn::global_average_pool2d{}"; }
  std::string operator()(const nn::local_response_norm& options) const {
    std::ostringstream out;
    out << "nn::local_response_norm{.radius = " << options.radius << ", .alpha = " << options.alpha
        << ", .beta = " << options.beta << ", .k = " << options.k << "}";
    return out.str();
  }
  std::string operator()(const nn::multiply&) const { return "nn::multiply{}"; }
  std::string operator()(const nn::pad2d& options) const {
    std::ostringstream out;
    out << "nn::pad2d{" << padding(options.padding) << mode(", .mode", options.mode);
    if (options.value != 0) {
      out << ", .value = " << options.value;
    }
    out << "}";
    return out.str();
  }
  std::string operator()(const nn::pad_channels& options) const {
    return "nn::pad_channels{.before = " + std::to_string(options.before) +
           ", .after = " + std::to_string(options.after) + "}";
  }
  std::string operator()(const nn::permute& options) const {
    std::string text = "nn::permute{.axes = {";
    for (std::size_t k = 0; k < 3; ++k) {
      text += std::string{k > 0 ? ", " : ""} + "gradus::axis::" + "nchw"[static_cast<std::size_t>(options.axes[k])];
    }
    return text + "}}";
  }
  std::string operator()(const nn::pixel_shuffle& options) const {
    return "nn::pixel_shuffle{.factor = " + std::to_string(options.factor) + "}";
  }
  std::string operator()(const nn::relu&) const { return "nn::relu{}"; }
  std::string operator()(const nn::relu6&) const { return "nn::relu6{}"; }
  std::string operator()(const nn::leaky_relu& options) const {
    return "nn::leaky_relu{.negative_slope = " + std::to_string(options.negative_slope) + "}";
  }
  std::string operator()(const nn::reshape& options) const {
    return "nn::reshape{.channels = " + std::to_string(options.channels) +
           ", .height = " + std::to_string(options.height) + ", .width = " + std::to_string(options.width) + "}";
  }
  std::string operator()(const nn::softmax&) const { return "nn::softmax{}"; }
  std::string operator()(const nn::upsample2d& options) const {
    return "nn::upsample2d{.scale = " + size(options.scale) + ", .size = " + size(options.size) +
           (options.mode == nn::interpolation::nearest ? "" : ", .mode = nn::interpolation::bilinear") +
           (options.align_corners ? ", .align_corners = true}" : "}");
  }

 private:
  [[nodiscard]] static std::string size(nn::size2d extents) {
    return "{" + std::to_string(extents.height) + ", " + std::to_string(extents.width) + "}";
  }

  [[nodiscard]] static std::string mode(const char* name, nn::padding_mode which) {
    switch (which) {
      case nn::padding_mode::reflect:
        return std::string{name} + " = nn::padding_mode::reflect";
      case nn::padding_mode::replicate:
        return std::string{name} + " = nn::padding_mode::replicate";
      case nn::padding_mode::circular:
        return std::string{name} + " = nn::padding_mode::circular";
      default:
        return "";
    }
  }

  [[nodiscard]] static std::string padding(const nn::padding& options) {
    std::ostringstream out;
    out << ".padding = nn::padding::";
    switch (options.rule()) {
      case nn::padding::kind::same:
        out << "same()";
        break;
      case nn::padding::kind::valid:
        out << "valid()";
        break;
      case nn::padding::kind::explicit_amount:
        out << "explicit_padding(" << options.top() << ", " << options.bottom() << ", " << options.left() << ", "
            << options.right() << ")";
        break;
    }
    return out.str();
  }

  template <class Options>
  [[nodiscard]] static std::string windows(const Options& options) {
    return ".kernel = " + size(options.kernel) + ", .stride = " + size(options.stride) + ", " +
           padding(options.padding);
  }

  template <class Options>
  [[nodiscard]] static std::string pool(const char* name, const Options& options, const std::string& more) {
    return "nn::" + std::string{name} + "{" + windows(options) + more +
           (options.ceil_mode ? ", .ceil_mode = true}" : "}");
  }
};

/// The statements that build the network.
[[nodiscard]] inline std::string to_cpp(const graph_spec& spec) {
  std::ostringstream out;
  out << "nn::network<Element, Layout> net{device, {.channels = " << spec.input.channels
      << ", .height = " << spec.input.height << ", .width = " << spec.input.width << "}};\n"
      << "const nn::value v0 = net.input();\n";
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    out << "const nn::value v" << i + 1 << " = net.add(\"" << layer_name(i) << "\", "
        << std::visit(options_text{}, named_options(spec, i)) << ", ";
    const std::vector<std::size_t>& inputs = spec.layers[i].inputs;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      out << (k > 0 ? ", v" : inputs.size() > 1 ? "{v" : "v") << inputs[k];
    }
    out << (inputs.size() > 1 ? "});\n" : ");\n");
    if (spec.layers[i].frozen) {
      out << "net.freeze(\"" << layer_name(i) << (spec.layers[i].evaluates ? "\", {.evaluates = true});\n" : "\");\n");
    }
    if (has_parameters(spec.layers[i]) && spec.layers[i].learning_rate_factor != 1) {
      out << "net.group(\"" << layer_name(i) << ".*\", {.learning_rate_factor = " << spec.layers[i].learning_rate_factor
          << "});\n";
    }
  }
  out << "net.loss(nn::softmax_cross_entropy{}, v" << spec.layers.size() << ");\n";
  return out.str();
}

}  // namespace gradus_test
