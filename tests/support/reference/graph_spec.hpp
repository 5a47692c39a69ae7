// SPDX-License-Identifier: BSL-1.0
//
// The graph of a network as data: it builds the network, and it is what the plain reference computes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gradus/conformance/layers.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/conv_transpose2d.hpp"
#include "gradus/nn/layers/group_norm.hpp"
#include "gradus/nn/layers/layer_norm.hpp"
#include "gradus/nn/layers/pad2d.hpp"
#include "gradus/nn/layers/shaping.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/value.hpp"

namespace gradus_test {

using gradus::index_t;
namespace nn = gradus::nn;

namespace detail {

template <class... Layers>
std::variant<Layers..., nn::group_norm, nn::layer_norm, nn::conv_transpose2d, nn::pad2d, nn::upsample2d, nn::crop2d,
             nn::pixel_shuffle, nn::reshape, nn::permute, nn::multiply, nn::softmax>
with_other_layers(const std::variant<Layers...>&);

}  // namespace detail

/// The layers of the conformance suite, and others that graphs have.
using layer_options = decltype(detail::with_other_layers(std::declval<const gradus::conformance::layer_options&>()));

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
  return std::visit(
      [](const auto& options) {
        if constexpr (requires { options.scale&& options.shift; }) {  // a normalization
          return options.scale || options.shift;
        } else {
          return requires {
            options.bias;
          };
        }
      },
      layer.options);
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

/// The distance of the taps of a kernel: 1 for layers without dilation.
template <class Options>
[[nodiscard]] nn::size2d dilation_of(const Options& options) {
  if constexpr (requires { options.dilation; }) {
    return options.dilation;
  } else {
    return {1, 1};
  }
}

template <class Options>
[[nodiscard]] std::pair<window_spec, window_spec> windows_of(const Options& options, const nn::value_shape& in) {
  const nn::size2d dilation = dilation_of(options);
  std::pair<window_spec, window_spec> both{
      window_of(in.height, (options.kernel.height - 1) * dilation.height + 1, options.stride.height,
                options.padding.rule(), options.padding.top(), options.padding.bottom()),
      window_of(in.width, (options.kernel.width - 1) * dilation.width + 1, options.stride.width, options.padding.rule(),
                options.padding.left(), options.padding.right())};
  if constexpr (requires { options.ceil_mode; }) {
    if (options.ceil_mode && options.padding.rule() != nn::padding::kind::same) {
      // One window more where the last one leaves pixels over, if it begins in the image.
      const auto add_window = [](window_spec& windows, index_t input, index_t reach, index_t stride, index_t before,
                                 index_t after) {
        if (windows.outputs > 0 && (windows.outputs - 1) * stride + reach < before + input + after &&
            windows.outputs * stride < before + input) {
          ++windows.outputs;
        }
      };
      add_window(both.first, in.height, (options.kernel.height - 1) * dilation.height + 1, options.stride.height,
                 options.padding.top(), options.padding.bottom());
      add_window(both.second, in.width, (options.kernel.width - 1) * dilation.width + 1, options.stride.width,
                 options.padding.left(), options.padding.right());
    }
  }
  return both;
}

/// Whether a padding mode can put these numbers of elements before and after `extent` others.
[[nodiscard]] inline bool can_pad(nn::padding_mode mode, index_t extent, index_t before, index_t after) {
  const index_t most = std::max(before, after);
  return (mode != nn::padding_mode::reflect || most < extent) && (mode != nn::padding_mode::circular || most <= extent);
}

/// The element of 0 ... extent - 1 that a padding mode puts at a position before, among or after them; -1 for none.
[[nodiscard]] inline index_t source_of(nn::padding_mode mode, index_t position, index_t extent) {
  const bool inside = position >= 0 && position < extent;
  switch (mode) {
    case nn::padding_mode::reflect:
      return inside ? position : position < 0 ? -position : 2 * (extent - 1) - position;
    case nn::padding_mode::replicate:
      return std::clamp<index_t>(position, 0, extent - 1);
    case nn::padding_mode::circular:
      return (position + extent) % extent;
    default:
      return inside ? position : -1;
  }
}

/// Whether every window along one axis holds an element of the image, as pooling needs.
[[nodiscard]] inline bool windows_hold_elements(const window_spec& window, index_t input, index_t kernel,
                                                index_t stride, index_t dilation) {
  for (index_t p = 0; p < window.outputs; ++p) {
    bool holds = false;
    for (index_t r = 0; r < kernel; ++r) {
      const index_t position = p * stride + r * dilation - window.before;
      holds = holds || (position >= 0 && position < input);
    }
    if (!holds) {
      return false;
    }
  }
  return true;
}

/// The first element of the window of an adaptive pooling, and one past the last: rounded down and up.
[[nodiscard]] inline std::pair<index_t, index_t> adaptive_window(index_t output, index_t outputs, index_t inputs) {
  const index_t end = (output + 1) * inputs;
  return {output * inputs / outputs, end / outputs + (end % outputs != 0 ? 1 : 0)};
}

/// The output of a layer by its definition, or nothing where the layer cannot read these shapes.
class shape_rule {
 public:
  explicit shape_rule(const std::vector<nn::value_shape>& inputs) : in_{inputs} {}

  using result = std::optional<nn::value_shape>;

  result operator()(const nn::add&) const { return in_.size() == 2 && in_[0] == in_[1] ? result{in_[0]} : result{}; }
  result operator()(const nn::adaptive_average_pool2d& options) const { return adaptive(options.output); }
  result operator()(const nn::adaptive_max_pool2d& options) const { return adaptive(options.output); }
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
    const auto pads = [&](const window_spec& window, index_t extent, index_t kernel, index_t dilation, index_t stride,
                          index_t after) {
      const index_t reach = (window.outputs - 1) * stride + (kernel - 1) * dilation + 1;
      const bool same = options.padding.rule() == nn::padding::kind::same;
      return can_pad(options.padding_mode, extent, window.before,
                     same ? std::max<index_t>(0, reach - window.before - extent) : after);
    };
    return pads(rows, in_[0].height, options.kernel.height, options.dilation.height, options.stride.height,
                options.padding.bottom()) &&
                   pads(columns, in_[0].width, options.kernel.width, options.dilation.width, options.stride.width,
                        options.padding.right())
               ? windows(options.out_channels, rows, columns)
               : result{};
  }
  result operator()(const nn::conv_transpose2d& options) const {
    if (!image() || in_[0].channels % options.groups != 0 || options.out_channels % options.groups != 0) {
      return {};
    }
    const index_t height = (in_[0].height - 1) * options.stride.height - options.padding.top() -
                           options.padding.bottom() + (options.kernel.height - 1) * options.dilation.height + 1 +
                           options.output_padding.height;
    const index_t width = (in_[0].width - 1) * options.stride.width - options.padding.left() - options.padding.right() +
                          (options.kernel.width - 1) * options.dilation.width + 1 + options.output_padding.width;
    return height > 0 && width > 0 ? result{{options.out_channels, height, width}} : result{};
  }
  result operator()(const nn::pad2d& options) const {
    const nn::padding& pad = options.padding;
    return image() && can_pad(options.mode, in_[0].height, pad.top(), pad.bottom()) &&
                   can_pad(options.mode, in_[0].width, pad.left(), pad.right())
               ? result{{in_[0].channels, in_[0].height + pad.top() + pad.bottom(),
                         in_[0].width + pad.left() + pad.right()}}
               : result{};
  }
  result operator()(const nn::upsample2d& options) const {
    const bool sized = options.size != nn::size2d{0, 0};
    if (in_[0].flattened || (in_.size() == 2 && (in_[1].flattened || sized))) {
      return {};
    }
    if (in_.size() == 2) {
      return result{{in_[0].channels, in_[1].height, in_[1].width}};
    }
    return sized ? result{{in_[0].channels, options.size.height, options.size.width}}
                 : result{{in_[0].channels, in_[0].height * options.scale.height, in_[0].width * options.scale.width}};
  }
  result operator()(const nn::crop2d& options) const {
    if (in_[0].flattened || (in_.size() == 2 && in_[1].flattened)) {
      return {};
    }
    const nn::size2d size = in_.size() == 2 ? nn::size2d{in_[1].height, in_[1].width} : options.size;
    return options.top + size.height <= in_[0].height && options.left + size.width <= in_[0].width
               ? result{{in_[0].channels, size.height, size.width}}
               : result{};
  }
  result operator()(const nn::pixel_shuffle& options) const {
    const index_t squares = options.factor * options.factor;
    return image() && in_[0].channels % squares == 0
               ? result{{in_[0].channels / squares, in_[0].height * options.factor, in_[0].width * options.factor}}
               : result{};
  }
  result operator()(const nn::reshape& options) const {
    nn::value_shape out{options.channels, options.height, options.width};
    const index_t known =
        std::max<index_t>(out.channels, 1) * std::max<index_t>(out.height, 1) * std::max<index_t>(out.width, 1);
    for (index_t* const extent : {&out.channels, &out.height, &out.width}) {
      *extent = *extent == -1 ? in_[0].size() / known : *extent;
    }
    return in_.size() == 1 && out.size() == in_[0].size() ? result{out} : result{};
  }
  result operator()(const nn::permute& options) const {
    const std::array<index_t, 4> in{1, in_[0].channels, in_[0].height, in_[0].width};
    const auto extent = [&](std::size_t k) { return in[static_cast<std::size_t>(options.axes[k])]; };
    return image() ? result{{extent(0), extent(1), extent(2)}} : result{};
  }
  result operator()(const nn::multiply&) const {
    if (in_.size() != 2 || in_[0] == in_[1]) {
      return in_.size() == 2 ? result{in_[0]} : result{};
    }
    for (const std::size_t k : {0U, 1U}) {
      if (!in_[k].flattened && in_[1 - k] == nn::value_shape{in_[k].channels, 1, 1}) {
        return in_[k];
      }
    }
    return {};
  }
  result operator()(const nn::softmax&) const { return in_.size() == 1 ? result{in_[0]} : result{}; }
  result operator()(const nn::dense& options) const {
    return in_.size() == 1 ? result{{options.out_features, 1, 1}} : result{};
  }
  result operator()(const nn::dropout&) const { return in_.size() == 1 ? result{in_[0]} : result{}; }
  result operator()(const nn::relu&) const { return in_.size() == 1 ? result{in_[0]} : result{}; }
  result operator()(const nn::relu6&) const { return in_.size() == 1 ? result{in_[0]} : result{}; }
  result operator()(const nn::leaky_relu&) const { return in_.size() == 1 ? result{in_[0]} : result{}; }
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
    const nn::size2d dilation = dilation_of(options);
    const bool filled =
        windows_hold_elements(rows, in_[0].height, options.kernel.height, options.stride.height, dilation.height) &&
        windows_hold_elements(columns, in_[0].width, options.kernel.width, options.stride.width, dilation.width);
    return filled ? windows(in_[0].channels, rows, columns) : result{};
  }

  [[nodiscard]] result adaptive(nn::size2d output) const {
    return image() ? result{{in_[0].channels, output.height, output.width}} : result{};
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

}  // namespace gradus_test
