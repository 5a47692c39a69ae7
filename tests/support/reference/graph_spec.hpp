// SPDX-License-Identifier: BSL-1.0
//
// The graph of a network as data: it builds the network, it is what the plain reference computes, and it prints as C++.
#pragma once

#include <cstddef>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gradus/conformance/layers.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/group_norm.hpp"
#include "gradus/nn/layers/layer_norm.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/value.hpp"

namespace gradus_test {

using gradus::index_t;
namespace nn = gradus::nn;

namespace detail {

template <class... Layers>
std::variant<Layers..., nn::group_norm, nn::layer_norm> with_norms_of_examples(const std::variant<Layers...>&);

}  // namespace detail

/// The layers of the conformance suite, and others that graphs have.
using layer_options =
    decltype(detail::with_norms_of_examples(std::declval<const gradus::conformance::layer_options&>()));

/// One layer and the values that it reads: 0 is the input of the network, i + 1 the output of layer i.
struct layer_spec {
  layer_options options;
  std::vector<std::size_t> inputs;
  bool frozen = false;              ///< not trained
  bool evaluates = false;           ///< and runs as in evaluation
  double learning_rate_factor = 1;  ///< of its parameters
};

/// Whether the layer has parameters.
[[nodiscard]] inline bool has_parameters(const layer_spec& layer) {
  const auto* const norm = std::get_if<nn::batch_norm>(&layer.options);
  return std::holds_alternative<nn::conv2d>(layer.options) || std::holds_alternative<nn::dense>(layer.options) ||
         (norm != nullptr && (norm->scale || norm->shift));
}

/// A network that ends with softmax cross-entropy over the output of its last layer.
struct graph_spec {
  nn::value_shape input;
  std::vector<layer_spec> layers;
};

/// Whether not all of its parameters are frozen: a network whose layers are all frozen is refused.
[[nodiscard]] inline bool trains_something(const graph_spec& spec) {
  bool any = false;
  for (const layer_spec& layer : spec.layers) {
    if (has_parameters(layer) && !layer.frozen) {
      return true;
    }
    any = any || has_parameters(layer);
  }
  return !any;
}

/// The windows of a convolution or pooling along one axis, by the definition of nn::padding.
struct window_spec {
  index_t outputs = 0;
  index_t before = 0;  ///< padding before the first element
};

[[nodiscard]] inline window_spec window_of(index_t input, index_t kernel, index_t stride, nn::padding::kind rule,
                                           index_t before, index_t after) {
  if (rule == nn::padding::kind::same) {
    const index_t outputs = (input + stride - 1) / stride;
    const index_t added = (outputs - 1) * stride + kernel - input;
    return {outputs, added > 0 ? added / 2 : 0};
  }
  return input + before + after < kernel ? window_spec{}
                                         : window_spec{(input + before + after - kernel) / stride + 1, before};
}

template <class Options>
[[nodiscard]] std::pair<window_spec, window_spec> windows_of(const Options& options, const nn::value_shape& in) {
  return {window_of(in.height, options.kernel.height, options.stride.height, options.padding.rule(),
                    options.padding.top(), options.padding.bottom()),
          window_of(in.width, options.kernel.width, options.stride.width, options.padding.rule(),
                    options.padding.left(), options.padding.right())};
}

/// Whether every window along one axis holds an element of the image, as pooling needs.
[[nodiscard]] inline bool windows_hold_elements(const window_spec& window, index_t input, index_t kernel,
                                                index_t stride) {
  return window.before < kernel && (window.outputs - 1) * stride - window.before < input;
}

/// The output of a layer by its definition, or nothing where the layer cannot read these shapes.
class shape_rule {
 public:
  explicit shape_rule(const std::vector<nn::value_shape>& inputs) : in_{inputs} {}

  using result = std::optional<nn::value_shape>;

  result operator()(const nn::add&) const { return in_.size() == 2 && in_[0] == in_[1] ? result{in_[0]} : result{}; }
  result operator()(const nn::average_pool2d& options) const { return pooled(options); }
  result operator()(const nn::max_pool2d& options) const { return pooled(options); }
  result operator()(const nn::batch_norm&) const { return image(); }
  result operator()(const nn::group_norm& options) const {
    return image() && in_[0].channels % options.groups == 0 ? image() : result{};
  }
  result operator()(const nn::layer_norm&) const { return image(); }
  result operator()(const nn::concat&) const {
    nn::value_shape out = in_[0];
    out.channels = 0;
    for (const nn::value_shape& each : in_) {
      if (each.flattened || each.height != out.height || each.width != out.width) {
        return {};
      }
      out.channels += each.channels;
    }
    return in_.size() < 2 ? result{} : result{out};
  }
  result operator()(const nn::conv2d& options) const {
    if (!image() || in_[0].channels % options.groups != 0 || options.out_channels % options.groups != 0) {
      return {};
    }
    const auto [rows, columns] = windows_of(options, in_[0]);
    return windows(options.out_channels, rows, columns);
  }
  result operator()(const nn::dense& options) const {
    return in_.size() == 1 ? result{{options.out_features, 1, 1}} : result{};
  }
  result operator()(const nn::dropout&) const { return in_.size() == 1 ? result{in_[0]} : result{}; }
  result operator()(const nn::relu&) const { return in_.size() == 1 ? result{in_[0]} : result{}; }
  result operator()(const nn::flatten&) const {
    nn::value_shape out = in_[0];
    out.flattened = true;
    return in_.size() == 1 ? result{out} : result{};
  }
  result operator()(const nn::global_average_pool2d&) const {
    return image() ? result{{in_[0].channels, 1, 1}} : result{};
  }
  result operator()(const nn::local_response_norm&) const { return image(); }
  result operator()(const nn::pad_channels& options) const {
    result out = image();
    if (out) {
      out->channels += options.before + options.after;
    }
    return out;
  }

 private:
  [[nodiscard]] result image() const { return in_.size() == 1 && !in_[0].flattened ? result{in_[0]} : result{}; }

  [[nodiscard]] static result windows(index_t channels, const window_spec& rows, const window_spec& columns) {
    return rows.outputs > 0 && columns.outputs > 0 ? result{{channels, rows.outputs, columns.outputs}} : result{};
  }

  template <class Options>
  [[nodiscard]] result pooled(const Options& options) const {
    if (!image()) {
      return {};
    }
    const auto [rows, columns] = windows_of(options, in_[0]);
    const bool filled = windows_hold_elements(rows, in_[0].height, options.kernel.height, options.stride.height) &&
                        windows_hold_elements(columns, in_[0].width, options.kernel.width, options.stride.width);
    return filled ? windows(in_[0].channels, rows, columns) : result{};
  }

  const std::vector<nn::value_shape>& in_;
};

/// The shapes of all values, or nothing where a layer cannot read what it is given or a value is read by no layer.
[[nodiscard]] inline std::optional<std::vector<nn::value_shape>> shapes_of(const graph_spec& spec) {
  std::vector<nn::value_shape> shapes{spec.input};
  std::vector<bool> used(spec.layers.size() + 1);
  for (const layer_spec& layer : spec.layers) {
    std::vector<nn::value_shape> inputs;
    for (const std::size_t value : layer.inputs) {
      if (value >= shapes.size()) {
        return {};
      }
      inputs.push_back(shapes[value]);
      used[value] = true;
    }
    const auto out = std::visit(shape_rule{inputs}, layer.options);
    if (!out) {
      return {};
    }
    shapes.push_back(*out);
  }
  used.back() = true;
  for (std::size_t value = 1; value < used.size(); ++value) {
    if (!used[value]) {
      return {};
    }
  }
  const nn::value_shape& scores = shapes.back();
  return spec.layers.empty() || scores.height != 1 || scores.width != 1 ? std::nullopt : std::optional{shapes};
}

/// The name of layer i in the network: "l3".
[[nodiscard]] inline std::string layer_name(std::size_t i) {
  return "l" + std::to_string(i);
}

/// The options of layer i; dropout draws from a stream of its own.
[[nodiscard]] inline layer_options named_options(const graph_spec& spec, std::size_t i) {
  layer_options options = spec.layers[i].options;
  if (auto* const dropout = std::get_if<nn::dropout>(&options)) {
    dropout->name = layer_name(i);
  }
  return options;
}

/// Adds the layers and the loss to a network whose input has the shape of the graph's.
template <class Network>
void build(Network& net, const graph_spec& spec) {
  std::vector<nn::value> values{net.input()};
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    std::vector<nn::value> inputs;
    for (const std::size_t value : spec.layers[i].inputs) {
      inputs.push_back(values[value]);
    }
    values.push_back(
        std::visit([&](const auto& options) { return net.add(layer_name(i), options, nn::input_list{inputs}); },
                   named_options(spec, i)));
    if (spec.layers[i].frozen) {
      net.freeze(layer_name(i), {.evaluates = spec.layers[i].evaluates});
    }
    if (has_parameters(spec.layers[i]) && spec.layers[i].learning_rate_factor != 1) {
      net.group(layer_name(i) + ".*", {.learning_rate_factor = spec.layers[i].learning_rate_factor});
    }
  }
  net.loss(nn::softmax_cross_entropy{}, values.back());
}

/// The options of a layer as C++.
class options_text {
 public:
  std::string operator()(const nn::add&) const { return "nn::add{}"; }
  std::string operator()(const nn::average_pool2d& options) const {
    return pool("average_pool2d", options, options.count_padding ? ", .count_padding = true" : "");
  }
  std::string operator()(const nn::max_pool2d& options) const { return pool("max_pool2d", options, ""); }
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
        << ", .groups = " << options.groups << (options.bias ? "" : ", .bias = false") << "}";
    return out.str();
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
  std::string operator()(const nn::pad_channels& options) const {
    return "nn::pad_channels{.before = " + std::to_string(options.before) +
           ", .after = " + std::to_string(options.after) + "}";
  }
  std::string operator()(const nn::relu&) const { return "nn::relu{}"; }

 private:
  template <class Options>
  [[nodiscard]] static std::string windows(const Options& options) {
    std::ostringstream out;
    out << ".kernel = {" << options.kernel.height << ", " << options.kernel.width << "}, .stride = {"
        << options.stride.height << ", " << options.stride.width << "}, .padding = nn::padding::";
    switch (options.padding.rule()) {
      case nn::padding::kind::same:
        out << "same()";
        break;
      case nn::padding::kind::valid:
        out << "valid()";
        break;
      case nn::padding::kind::explicit_amount:
        out << "explicit_padding(" << options.padding.top() << ", " << options.padding.bottom() << ", "
            << options.padding.left() << ", " << options.padding.right() << ")";
        break;
    }
    return out.str();
  }

  template <class Options>
  [[nodiscard]] static std::string pool(const char* name, const Options& options, const char* more) {
    return "nn::" + std::string{name} + "{" + windows(options) + more + "}";
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
