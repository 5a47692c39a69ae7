// SPDX-License-Identifier: BSL-1.0
//
// The layers of a network as ONNX operators.
#pragma once

#include <algorithm>         // std::max, std::min
#include <array>             // std::array
#include <cstddef>           // std::size_t
#include <cstdint>           // std::int64_t
#include <initializer_list>  // std::initializer_list
#include <limits>            // std::numeric_limits
#include <span>              // std::span
#include <string>            // std::string
#include <string_view>       // std::string_view
#include <utility>           // std::move
#include <vector>            // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/detail/onnx/export_context.hpp"
#include "gradus/io/detail/onnx/model.hpp"
#include "gradus/kernels/activation.hpp"
#include "gradus/kernels/group_norm.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/adaptive_pool2d.hpp"
#include "gradus/nn/layers/conv_transpose2d.hpp"
#include "gradus/nn/layers/elementwise.hpp"
#include "gradus/nn/layers/group_norm.hpp"
#include "gradus/nn/layers/normalize.hpp"
#include "gradus/nn/layers/pad2d.hpp"
#include "gradus/nn/layers/shaping.hpp"
#include "gradus/nn/layers/softmax.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::io::detail {

/// Writes the layers of one network.
class onnx_exporter : public onnx_export_context {
 public:
  using onnx_export_context::onnx_export_context;

  /// @throws configuration_error for a layer that ONNX has no operators for
  void run(std::string_view input, std::string_view output) {
    const nn::value_shape& in = network_.shape(std::size_t{0});
    to_.value(true, input, std::array{batch_, in.channels, in.height, in.width});
    values_.assign(1, {std::string{input}, false});
    for (std::size_t i = 0; i < network_.nodes().size(); ++i) {
      const nn::graph::node& layer = network_.nodes()[i];
      layer_ = &layer;
      index_ = i;
      parts_ = 0;
      own_ = layer.name == input || layer.name == output ? part() : layer.name;
      values_.push_back(layer_value(*layer.layer));
    }
    const exported& scores = values_[network_.scores()];
    add("Identity", {scores.name}, gradus::join({output, "/identity"}), output);
    const nn::value_shape& out = network_.shape(network_.scores());
    if (scores.vector) {
      to_.value(false, output, std::array{batch_, out.size()});
    } else {
      to_.value(false, output, std::array{batch_, out.channels, out.height, out.width});
    }
  }

 private:
  // ---- layers

  exported layer_value(const nn::layer_base& layer) {
    if (const auto* conv = dynamic_cast<const nn::detail::conv2d_base*>(&layer)) {
      return convolution(conv->options());
    }
    if (const auto* conv = dynamic_cast<const nn::detail::conv_transpose2d_base*>(&layer)) {
      return transposed_convolution(conv->options());
    }
    if (const auto* dense = dynamic_cast<const nn::detail::dense_base*>(&layer)) {
      return linear(dense->options().bias);
    }
    if (const auto* norm = dynamic_cast<const nn::detail::batch_norm_base*>(&layer)) {
      const index_t channels = shape().channels;
      const std::string scale = weight_or("weight", channels, 1);
      const std::string shift = weight_or("bias", channels, 0);
      return named(node("BatchNormalization",
                        {input().name, scale, shift, weight("running_mean"), weight("running_variance")}, own_)
                       .real("epsilon", norm->options().epsilon),
                   input().vector);
    }
    if (dynamic_cast<const nn::detail::normalize_base*>(&layer) != nullptr) {
      const std::array dims{shape().channels, index_t{1}, index_t{1}};
      const auto each_channel = std::span{dims}.first(input().vector ? 1 : 3);
      const std::string centered = simple("Sub", {input().name, weight("mean", each_channel)});
      return named("Div", {centered, weight("deviation", each_channel)}, input().vector);
    }
    if (const auto* norm = dynamic_cast<const nn::detail::set_norm_base*>(&layer)) {
      return set_normalization(norm->options());
    }
    if (const auto* norm = dynamic_cast<const nn::detail::local_response_norm_base*>(&layer)) {
      const kernels::local_response_norm_parameters& o = norm->options();
      const index_t size = 2 * o.radius + 1;
      return named(node("LRN", {image()}, own_)
                       .integer("size", size)
                       .real("alpha", o.alpha * static_cast<double>(size))  // ONNX divides it by the size
                       .real("beta", o.beta)
                       .real("bias", o.k));
    }
    if (const auto* pool = dynamic_cast<const nn::detail::max_pool2d_base*>(&layer)) {
      const nn::max_pool2d& o = pool->options();
      onnx_node made = pooling("MaxPool", o.kernel, o.stride, o.dilation, o.padding, o.ceil_mode);
      if (o.dilation != nn::size2d{1, 1}) {
        made.integers("dilations", {o.dilation.height, o.dilation.width});
      }
      return named(std::move(made));
    }
    if (const auto* pool = dynamic_cast<const nn::detail::average_pool2d_base*>(&layer)) {
      const nn::average_pool2d& o = pool->options();
      return named(pooling("AveragePool", o.kernel, o.stride, {1, 1}, o.padding, o.ceil_mode)
                       .integer("count_include_pad", o.count_padding ? 1 : 0));
    }
    if (dynamic_cast<const nn::detail::global_average_pool2d_base*>(&layer) != nullptr) {
      return named("GlobalAveragePool", {image()});
    }
    if (const auto* pool = dynamic_cast<const nn::detail::pooling_base*>(&layer)) {  // the other ones
      return adaptive(pool->geometry(), dynamic_cast<const nn::detail::adaptive_max_pool2d_base*>(pool) != nullptr);
    }
    if (const auto* function = dynamic_cast<const nn::detail::elementwise_base*>(&layer)) {
      return elementwise(*function);
    }
    if (const auto* unit = dynamic_cast<const nn::detail::relu_base*>(&layer)) {
      return rectifier(unit->function());
    }
    if (dynamic_cast<const nn::detail::dropout_base*>(&layer) != nullptr) {
      return input();
    }
    if (dynamic_cast<const nn::detail::add_base*>(&layer) != nullptr) {
      return of_two("Add");
    }
    if (dynamic_cast<const nn::detail::multiply_base*>(&layer) != nullptr) {
      return of_two("Mul");
    }
    if (dynamic_cast<const nn::detail::concat_base*>(&layer) != nullptr) {
      std::vector<std::string> parts;
      for (std::size_t k = 0; k < layer_->inputs.size(); ++k) {
        parts.push_back(image(k));
      }
      const std::vector<std::string_view> inputs(parts.begin(), parts.end());
      return named(onnx_node{"Concat", own_, inputs, {own_}}.integer("axis", 1));
    }
    if (dynamic_cast<const nn::detail::flatten_base*>(&layer) != nullptr) {
      return {vector(), true};
    }
    if (const auto* softmax = dynamic_cast<const nn::detail::channel_softmax_base*>(&layer)) {
      return named(
          node(softmax->kind() == "softmax" ? "Softmax" : "LogSoftmax", {input().name}, own_).integer("axis", 1),
          input().vector);
    }
    return shaping(layer);
  }

  exported shaping(const nn::layer_base& layer) {
    const nn::value_shape& out = output_shape();
    if (const auto* pad = dynamic_cast<const nn::detail::pad2d_base*>(&layer)) {
      const nn::pad2d& o = pad->options();
      return {padded(image(), padding_of({1, 1}, {1, 1}, o.padding), o.mode, o.value), false};
    }
    if (const auto* pad = dynamic_cast<const nn::detail::pad_channels_base*>(&layer)) {
      const std::string amounts =
          integers(std::array<index_t, 8>{0, pad->options().before, 0, 0, 0, pad->options().after, 0, 0});
      return named(node("Pad", {image(), amounts, number(0)}, own_).text("mode", "constant"));
    }
    if (const auto* region = dynamic_cast<const nn::detail::region_base*>(&layer)) {
      const nn::value_shape& first = region->first();
      return {slice(image(), {first.channels, first.height, first.width},
                    {first.channels + out.channels, first.height + out.height, first.width + out.width}, {1, 2, 3}),
              false};
    }
    if (const auto* resize = dynamic_cast<const nn::detail::upsample2d_base*>(&layer)) {
      return resized(resize->options());
    }
    if (const auto* shuffle = dynamic_cast<const nn::detail::pixel_shuffle_base*>(&layer)) {
      return named(node("DepthToSpace", {image()}, own_).integer("blocksize", shuffle->factor()).text("mode", "CRD"));
    }
    if (const auto* shuffle = dynamic_cast<const nn::detail::pixel_unshuffle_base*>(&layer)) {
      const index_t r = shuffle->factor();  // SpaceToDepth has the order of channels that PyTorch has not
      const std::string split = reshaped(image(), {0, shape().channels, shape().height / r, r, shape().width / r, r});
      const std::string moved = part();
      to_.add(node("Transpose", {split}, moved).integers("perm", {0, 1, 3, 5, 2, 4}));
      return {reshaped(moved, {0, out.channels, out.height, out.width}), false};
    }
    if (const auto* permute = dynamic_cast<const nn::detail::permute_base*>(&layer)) {
      const auto number_of = [&](std::size_t k) { return static_cast<index_t>(permute->axes()[k]); };
      return named(node("Transpose", {image()}, own_).integers("perm", {0, number_of(0), number_of(1), number_of(2)}));
    }
    if (dynamic_cast<const nn::detail::reshape_base*>(&layer) != nullptr) {
      return {reshaped(input().name, {0, out.channels, out.height, out.width}), false};
    }
    raise<configuration_error>({"io::save_onnx: layer '", layer_->name, "'"}, "a layer that ONNX has operators for",
                               layer.kind(),
                               "write element-wise functions by nn::elementwise, which is exported step by step");
  }

  exported rectifier(const kernels::activation& act) {
    if (act == kernels::activation::relu) {
      return named("Relu", {input().name}, input().vector);
    }
    if (act.slope == 0) {
      return named("Clip", {input().name, number(0), number(act.cap)}, input().vector);
    }
    return named(node("LeakyRelu", {input().name}, own_).real("alpha", act.slope), input().vector);
  }

  exported convolution(const nn::conv2d& o) {
    const nn::size2d reach{(o.kernel.height - 1) * o.dilation.height + 1, (o.kernel.width - 1) * o.dilation.width + 1};
    std::array<index_t, 4> pads = padding_of(reach, o.stride, o.padding);
    std::string from = image();
    if (o.padding_mode != kernels::padding_mode::zeros) {
      from = padded(from, pads, o.padding_mode, 0);
      pads = {0, 0, 0, 0};
    }
    const std::string w = weight("weight");
    const std::string b = o.bias ? weight("bias") : std::string{};
    return named((o.bias ? node("Conv", {from, w, b}, own_) : node("Conv", {from, w}, own_))
                     .integers("kernel_shape", {o.kernel.height, o.kernel.width})
                     .integers("strides", {o.stride.height, o.stride.width})
                     .integers("dilations", {o.dilation.height, o.dilation.width})
                     .integers("pads", {pads[0], pads[1], pads[2], pads[3]})
                     .integer("group", o.groups));
  }

  exported transposed_convolution(const nn::conv_transpose2d& o) {
    index_t bottom = o.padding.bottom();
    index_t right = o.padding.right();
    nn::size2d more = o.output_padding;
    // Output padding gives back what the padding cuts off; runtimes refuse one that is not less than the stride.
    const auto give_back = [](index_t& padding, index_t& output_padding) {
      const index_t both = std::min(padding, output_padding);
      padding -= both;
      output_padding -= both;
    };
    give_back(bottom, more.height);
    give_back(right, more.width);
    const bool beyond = more.height >= o.stride.height || more.width >= o.stride.width;
    const nn::size2d behind = beyond ? more : nn::size2d{0, 0};  // rows and columns that hold only the bias
    if (beyond) {
      more = {0, 0};
    }
    const std::string from = image();
    const std::string w = weight("weight");
    const bool adds = beyond && o.bias;
    const std::array channels{o.out_channels, index_t{1}, index_t{1}};
    const std::string b = o.bias ? weight("bias", std::span{channels}.first(beyond ? 3 : 1)) : std::string{};
    std::string name = beyond ? part() : own_;
    to_.add((o.bias && !adds ? node("ConvTranspose", {from, w, b}, name) : node("ConvTranspose", {from, w}, name))
                .integers("kernel_shape", {o.kernel.height, o.kernel.width})
                .integers("strides", {o.stride.height, o.stride.width})
                .integers("dilations", {o.dilation.height, o.dilation.width})
                .integers("pads", {o.padding.top(), o.padding.left(), bottom, right})
                .integers("output_padding", {more.height, more.width})
                .integer("group", o.groups));
    if (beyond) {
      name = padded(name, {0, 0, behind.height, behind.width}, kernels::padding_mode::zeros, 0);
    }
    return {adds ? simple("Add", {name, b}) : name, false};
  }

  exported linear(bool bias) {
    const std::string from = vector();
    const std::string w = weight("weight");
    const std::string b = bias ? weight("bias") : std::string{};
    return named((bias ? node("Gemm", {from, w, b}, own_) : node("Gemm", {from, w}, own_)).integer("transB", 1), true);
  }

  onnx_node pooling(std::string_view op_type, nn::size2d kernel, nn::size2d stride, nn::size2d dilation,
                    const nn::padding& padding, bool ceil_mode) {
    const nn::size2d reach{(kernel.height - 1) * dilation.height + 1, (kernel.width - 1) * dilation.width + 1};
    std::array<index_t, 4> pads = padding_of(reach, stride, padding);
    std::string from = image();
    // onnxruntime refuses padding that is not less than a dilated kernel without its dilation.
    if (dilation != nn::size2d{1, 1} &&
        (std::max(pads[0], pads[2]) >= kernel.height || std::max(pads[1], pads[3]) >= kernel.width)) {
      const nn::value_shape& out = output_shape();
      const auto behind = [](index_t outputs, index_t step, index_t taps, index_t before, index_t pixels) {
        return std::max<index_t>(0, (outputs - 1) * step + taps - before - pixels);
      };
      from = padded(from,
                    {pads[0], pads[1], behind(out.height, stride.height, reach.height, pads[0], shape().height),
                     behind(out.width, stride.width, reach.width, pads[1], shape().width)},
                    kernels::padding_mode::zeros, -std::numeric_limits<double>::infinity());
      pads = {0, 0, 0, 0};
      ceil_mode = false;
    }
    onnx_node made = node(op_type, {from}, own_);
    made.integers("kernel_shape", {kernel.height, kernel.width})
        .integers("strides", {stride.height, stride.width})
        .integers("pads", {pads[0], pads[1], pads[2], pads[3]});
    if (ceil_mode && padding.rule() != nn::padding::kind::same) {
      made.integer("ceil_mode", 1);
    }
    return made;
  }

  /// ONNX has no adaptive pooling: equal windows are those of an ordinary one, which is exported as PyTorch does it.
  exported adaptive(const kernels::pool2d_geometry& windows, bool maximum) {
    if (windows.out_height == 1 && windows.out_width == 1) {
      return named(maximum ? "GlobalMaxPool" : "GlobalAveragePool", {image()});
    }
    if (windows.adaptive) {
      raise<configuration_error>(
          {"io::save_onnx: layer '", layer_->name, "'"}, "an adaptive pooling whose output divides its input",
          {windows.in_height, " x ", windows.in_width, " to ", windows.out_height, " x ", windows.out_width},
          "ONNX has no operator for windows of different extents; choose another size of images");
    }
    const nn::size2d kernel{windows.kernel_height, windows.kernel_width};
    return named(pooling(maximum ? "MaxPool" : "AveragePool", kernel, kernel, {1, 1}, nn::padding::valid(), false));
  }

  exported set_normalization(const nn::detail::set_norm_options& o) {
    const nn::value_shape& in = shape();
    if (o.over == kernels::normalized_set::image) {
      const std::array dims{in.channels, in.height, in.width};
      const std::string scale =
          o.scale ? weight("weight", dims) : numbers(dims, std::vector<float>(static_cast<std::size_t>(in.size()), 1));
      const std::string from = image();
      return named((o.shift ? node("LayerNormalization", {from, scale, weight("bias", dims)}, own_)
                            : node("LayerNormalization", {from, scale}, own_))
                       .integer("axis", 1)
                       .real("epsilon", o.epsilon));
    }
    if (o.over == kernels::normalized_set::pixel) {
      const std::string last = part();
      to_.add(node("Transpose", {image()}, last).integers("perm", {0, 2, 3, 1}));
      const std::string scale = weight_or("weight", in.channels, 1);
      const std::string normalized = part();
      to_.add((o.shift ? node("LayerNormalization", {last, scale, weight("bias")}, normalized)
                       : node("LayerNormalization", {last, scale}, normalized))
                  .integer("axis", -1)
                  .real("epsilon", o.epsilon));
      return named(node("Transpose", {normalized}, own_).integers("perm", {0, 3, 1, 2}));
    }
    const index_t groups = o.groups == 0 ? in.channels : o.groups;
    const std::string split = reshaped(image(), {0, groups, -1});
    const std::string normalized = part();
    to_.add(node("InstanceNormalization", {split, filled(groups, 1), filled(groups, 0)}, normalized)
                .real("epsilon", o.epsilon));
    std::string result = reshaped(normalized, {0, in.channels, in.height, in.width});
    const std::array dims{in.channels, index_t{1}, index_t{1}};
    if (o.scale) {
      result = simple("Mul", {result, weight("weight", dims)});
    }
    if (o.shift) {
      result = simple("Add", {result, weight("bias", dims)});
    }
    return {result, false};
  }

  exported resized(const nn::upsample2d& o) {
    const nn::value_shape& out = output_shape();
    const std::string from = image();
    const std::string dims = part();
    to_.add(node("Shape", {from}, dims).integer("start", 0).integer("end", 2));
    const std::string size = part();
    to_.add(node("Concat", {dims, integers(std::array{out.height, out.width})}, size).integer("axis", 0));
    onnx_node made = node("Resize", {from, "", "", size}, own_);
    if (o.mode == nn::interpolation::nearest) {
      made.text("mode", "nearest").text("nearest_mode", "floor").text("coordinate_transformation_mode", "asymmetric");
    } else {
      made.text("mode", "linear")
          .text("coordinate_transformation_mode", o.align_corners ? "align_corners" : "half_pixel");
    }
    return named(std::move(made));
  }

  exported of_two(std::string_view op_type) {
    if (input(0).vector && input(1).vector) {
      return named(op_type, {input(0).name, input(1).name}, true);
    }
    const std::string a = image(0);
    const std::string b = image(1);
    return named(op_type, {a, b});
  }

  exported elementwise(const nn::detail::elementwise_base& function) {
    using operation = formula_operation;
    bool all_vectors = true;
    for (std::size_t k = 0; k < layer_->inputs.size(); ++k) {
      all_vectors = all_vectors && input(k).vector;
    }
    const std::vector<formula_step> steps = function.steps();
    std::vector<std::string> names;
    for (const formula_step& step : steps) {
      const auto operand = [&](std::size_t k) -> std::string_view {
        return names[static_cast<std::size_t>(step.operands[k])];
      };
      switch (step.operation) {
        case operation::number:
          names.push_back(number(step.number));
          break;
        case operation::variable: {
          const auto k = static_cast<std::size_t>(step.operands[0]);
          if (k < layer_->inputs.size()) {
            names.push_back(all_vectors ? input(k).name : image(k));
          } else {
            const nn::elementwise_parameter& p = function.options()[k - layer_->inputs.size()];
            const std::array dims{p.per_channel ? shape().channels : index_t{1}, index_t{1}, index_t{1}};
            names.push_back(weight(p.name, std::span{dims}.first(all_vectors ? 1 : 3)));
          }
          break;
        }
        case operation::clamp:
          names.push_back(simple("Min", {simple("Max", {operand(0), operand(1)}), operand(2)}));
          break;
        case operation::square:
          names.push_back(simple("Mul", {operand(0), operand(0)}));
          break;
        case operation::masked:
          names.push_back(simple("Where", {operand(0), operand(1), number(0)}));
          break;
        case operation::not_equal:
          names.push_back(simple("Not", {simple("Equal", {operand(0), operand(1)})}));
          break;
        case operation::where:
          names.push_back(simple("Where", {operand(0), operand(1), operand(2)}));
          break;
        default:
          names.push_back(step.operands[1] < 0 ? simple(operator_of(step.operation), {operand(0)})
                                               : simple(operator_of(step.operation), {operand(0), operand(1)}));
      }
    }
    return {names.back(), all_vectors};
  }

  /// The operator of a step that is one.
  [[nodiscard]] static std::string_view operator_of(formula_operation operation) noexcept {
    switch (operation) {
      case formula_operation::add:
        return "Add";
      case formula_operation::subtract:
        return "Sub";
      case formula_operation::multiply:
        return "Mul";
      case formula_operation::divide:
        return "Div";
      case formula_operation::negate:
        return "Neg";
      case formula_operation::minimum:
        return "Min";
      case formula_operation::maximum:
        return "Max";
      case formula_operation::exp:
        return "Exp";
      case formula_operation::log:
        return "Log";
      case formula_operation::sqrt:
        return "Sqrt";
      case formula_operation::tanh:
        return "Tanh";
      case formula_operation::sigmoid:
        return "Sigmoid";
      case formula_operation::erf:
        return "Erf";
      case formula_operation::softplus:
        return "Softplus";
      case formula_operation::relu:
        return "Relu";
      case formula_operation::abs:
        return "Abs";
      case formula_operation::pow:
        return "Pow";
      case formula_operation::equal:
        return "Equal";
      case formula_operation::less:
        return "Less";
      case formula_operation::less_equal:
        return "LessOrEqual";
      case formula_operation::logical_and:
        return "And";
      case formula_operation::logical_or:
        return "Or";
      case formula_operation::logical_not:
        return "Not";
      default:
        return "";
    }
  }
};

}  // namespace gradus::io::detail
