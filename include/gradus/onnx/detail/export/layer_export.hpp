// SPDX-License-Identifier: BSL-1.0
//
// The layers of a network as ONNX operators.
#pragma once

#include <algorithm>    // std::max, std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <limits>       // std::numeric_limits
#include <map>          // std::map
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <variant>      // std::visit
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/layers/padding.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/onnx/detail/export/described_layer.hpp"
#include "gradus/onnx/detail/export/export_context.hpp"
#include "gradus/onnx/detail/model/model.hpp"
#include "gradus/tensor/formula.hpp"

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
    if (layer.traits().identity_outside_training) {
      return input();
    }
    o_ = described_layer{layer_->name};
    layer.attributes(o_);
    using writer = exported (onnx_exporter::*)();
    static const std::map<std::string_view, writer> writers{
        {"adaptive_average_pool2d", &onnx_exporter::adaptive},
        {"adaptive_max_pool2d", &onnx_exporter::adaptive},
        {"add", &onnx_exporter::of_two},
        {"average_pool2d", &onnx_exporter::average_pooling},
        {"batch_norm", &onnx_exporter::batch_normalization},
        {"concat", &onnx_exporter::concatenation},
        {"conv2d", &onnx_exporter::convolution},
        {"conv_transpose2d", &onnx_exporter::transposed_convolution},
        {"dense", &onnx_exporter::linear},
        {"elementwise", &onnx_exporter::elementwise},
        {"flatten", &onnx_exporter::flattened},
        {"group_norm", &onnx_exporter::group_normalization},
        {"layer_norm", &onnx_exporter::layer_normalization},
        {"local_response_norm", &onnx_exporter::local_normalization},
        {"log_softmax", &onnx_exporter::channel_softmax},
        {"max_pool2d", &onnx_exporter::max_pooling},
        {"multiply", &onnx_exporter::of_two},
        {"normalize", &onnx_exporter::normalized},
        {"pad2d", &onnx_exporter::padded_image},
        {"pad_channels", &onnx_exporter::padded_channels},
        {"permute", &onnx_exporter::permuted},
        {"pixel_shuffle", &onnx_exporter::shuffled},
        {"pixel_unshuffle", &onnx_exporter::unshuffled},
        {"relu", &onnx_exporter::rectifier},
        {"reshape", &onnx_exporter::reshaped_image},
        {"slice", &onnx_exporter::sliced},
        {"softmax", &onnx_exporter::channel_softmax},
        {"upsample2d", &onnx_exporter::resized}};
    const auto found = writers.find(o_.operation());
    if (found != writers.end()) {
      return (this->*found->second)();
    }
    const std::string& named_operation = o_.operation();
    const std::size_t colons = named_operation.find("::");
    if (colons != std::string::npos && colons > 0 && colons + 2 < named_operation.size()) {
      return own_operator(named_operation.substr(0, colons), named_operation.substr(colons + 2));
    }
    refuse_operation(named_operation);
  }

  /// An operator of the program's own domain, of images to an image.
  exported own_operator(const std::string& domain, const std::string& type) {
    std::vector<std::string> names;
    for (std::size_t k = 0; k < layer_->inputs.size(); ++k) {
      names.push_back(image(k));
    }
    for (const auto& each : layer_->parameters) {
      names.push_back(constant(each.name));
    }
    for (const auto& each : layer_->buffers) {
      names.push_back(constant(each.name));
    }
    const std::vector<std::string_view> inputs(names.begin(), names.end());
    onnx_node made{type, own_, inputs, {own_}};
    to_.use_domain(made, domain);
    for (const described_layer::attribute& each : o_.attributes()) {
      std::visit([&](const auto& value) { made.any(each.name, value); }, each.value);
    }
    return named(std::move(made));
  }

  exported batch_normalization() {
    const index_t channels = shape().channels;
    const std::string scale = weight_or("weight", channels, 1);
    const std::string shift = weight_or("bias", channels, 0);
    return named(node("BatchNormalization",
                      {input().name, scale, shift, weight("running_mean"), weight("running_variance")}, own_)
                     .real("epsilon", o_.real("epsilon")),
                 input().vector);
  }

  exported normalized() {
    const std::array dims{shape().channels, index_t{1}, index_t{1}};
    const auto each_channel = std::span{dims}.first(input().vector ? 1 : 3);
    const std::string centered = simple("Sub", {input().name, weight("mean", each_channel)});
    return named("Div", {centered, weight("deviation", each_channel)}, input().vector);
  }

  exported local_normalization() {
    const index_t size = 2 * o_.integer("radius") + 1;
    return named(node("LRN", {image()}, own_)
                     .integer("size", size)
                     .real("alpha", o_.real("alpha") * static_cast<double>(size))  // ONNX divides it by the size
                     .real("beta", o_.real("beta"))
                     .real("bias", o_.real("k")));
  }

  exported max_pooling() {
    const nn::size2d dilation = o_.size("dilation");
    onnx_node made = pooling("MaxPool", o_.size("kernel"), o_.size("stride"), dilation, o_.padding("padding"),
                             o_.integer("ceil_mode") != 0);
    if (dilation != nn::size2d{1, 1}) {
      made.integers("dilations", {dilation.height, dilation.width});
    }
    return named(std::move(made));
  }

  exported average_pooling() {
    return named(pooling("AveragePool", o_.size("kernel"), o_.size("stride"), {1, 1}, o_.padding("padding"),
                         o_.integer("ceil_mode") != 0)
                     .integer("count_include_pad", o_.integer("count_padding")));
  }

  exported concatenation() {
    std::vector<std::string> parts;
    for (std::size_t k = 0; k < layer_->inputs.size(); ++k) {
      parts.push_back(image(k));
    }
    const std::vector<std::string_view> inputs(parts.begin(), parts.end());
    return named(onnx_node{"Concat", own_, inputs, {own_}}.integer("axis", 1));
  }

  exported flattened() { return {vector(), true}; }

  exported channel_softmax() {
    return named(node(o_.operation() == "softmax" ? "Softmax" : "LogSoftmax", {input().name}, own_).integer("axis", 1),
                 input().vector);
  }

  exported padded_image() {
    const nn::padding amount = o_.padding("padding");
    return {padded(image(), padding_of({1, 1}, {1, 1}, amount), o_.text("mode"), o_.real("value")), false};
  }

  exported padded_channels() {
    const std::string amounts =
        integers(std::array<index_t, 8>{0, o_.integer("before"), 0, 0, 0, o_.integer("after"), 0, 0});
    return named(node("Pad", {image(), amounts, number(0)}, own_).text("mode", "constant"));
  }

  exported sliced() {
    const nn::value_shape& out = output_shape();
    const auto [channels, height, width] = o_.integers<3>("begin");
    return {slice(image(), {channels, height, width}, {channels + out.channels, height + out.height, width + out.width},
                  {1, 2, 3}),
            false};
  }

  exported shuffled() {
    const index_t factor = o_.integer("factor");
    return named(node("DepthToSpace", {image()}, own_).integer("blocksize", factor).text("mode", "CRD"));
  }

  exported unshuffled() {
    const nn::value_shape& out = output_shape();
    const index_t r = o_.integer("factor");  // SpaceToDepth has the order of channels that PyTorch has not
    const std::string split = reshaped(image(), {0, shape().channels, shape().height / r, r, shape().width / r, r});
    const std::string moved = part();
    to_.add(node("Transpose", {split}, moved).integers("perm", {0, 1, 3, 5, 2, 4}));
    return {reshaped(moved, {0, out.channels, out.height, out.width}), false};
  }

  exported permuted() {
    const auto [channels, height, width] = o_.integers<3>("axes");
    return named(node("Transpose", {image()}, own_).integers("perm", {0, channels, height, width}));
  }

  exported reshaped_image() {
    const nn::value_shape& out = output_shape();
    return {reshaped(input().name, {0, out.channels, out.height, out.width}), false};
  }

  exported rectifier() {
    const double slope = o_.real("negative_slope");
    const double cap = o_.real("cap");
    if (slope != 0) {
      return named(node("LeakyRelu", {input().name}, own_).real("alpha", slope), input().vector);
    }
    if (cap < std::numeric_limits<double>::infinity()) {
      return named("Clip", {input().name, number(0), number(cap)}, input().vector);
    }
    return named("Relu", {input().name}, input().vector);
  }

  exported convolution() {
    const nn::size2d kernel = o_.size("kernel");
    const nn::size2d stride = o_.size("stride");
    const nn::size2d dilation = o_.size("dilation");
    std::array<index_t, 4> pads = padding_of(reach(kernel, dilation), stride, o_.padding("padding"));
    std::string from = image();
    if (const std::string& mode = o_.text("padding_mode"); mode != "zeros") {
      from = padded(from, pads, mode, 0);
      pads = {0, 0, 0, 0};
    }
    return named(weighted("Conv", from)
                     .integers("kernel_shape", {kernel.height, kernel.width})
                     .integers("strides", {stride.height, stride.width})
                     .integers("dilations", {dilation.height, dilation.width})
                     .integers("pads", {pads[0], pads[1], pads[2], pads[3]})
                     .integer("group", o_.integer("groups")));
  }

  exported transposed_convolution() {
    const nn::size2d kernel = o_.size("kernel");
    const nn::size2d stride = o_.size("stride");
    const nn::size2d dilation = o_.size("dilation");
    auto [top, left, bottom, right] = o_.integers<4>("padding");
    nn::size2d more = o_.size("output_padding");
    // Output padding gives back what the padding cuts off; runtimes refuse one that is not less than the stride.
    const auto give_back = [](index_t& padding, index_t& output_padding) {
      const index_t both = std::min(padding, output_padding);
      padding -= both;
      output_padding -= both;
    };
    give_back(bottom, more.height);
    give_back(right, more.width);
    const bool beyond = more.height >= stride.height || more.width >= stride.width;
    const nn::size2d behind = beyond ? more : nn::size2d{0, 0};  // rows and columns that hold only the bias
    if (beyond) {
      more = {0, 0};
    }
    const std::string from = image();
    const std::string w = weight("weight");
    const bool bias = has("bias");
    const bool adds = beyond && bias;
    const std::array channels{output_shape().channels, index_t{1}, index_t{1}};
    const std::string b = bias ? weight("bias", std::span{channels}.first(beyond ? 3 : 1)) : std::string{};
    std::string name = beyond ? part() : own_;
    to_.add((bias && !adds ? node("ConvTranspose", {from, w, b}, name) : node("ConvTranspose", {from, w}, name))
                .integers("kernel_shape", {kernel.height, kernel.width})
                .integers("strides", {stride.height, stride.width})
                .integers("dilations", {dilation.height, dilation.width})
                .integers("pads", {top, left, bottom, right})
                .integers("output_padding", {more.height, more.width})
                .integer("group", o_.integer("groups")));
    if (beyond) {
      name = padded(name, {0, 0, behind.height, behind.width}, "zeros", 0);
    }
    return {adds ? simple("Add", {name, b}) : name, false};
  }

  exported linear() { return named(weighted("Gemm", vector()).integer("transB", 1), true); }

  /// An operator of a value, the layer's weight and its bias if it has one.
  onnx_node weighted(std::string_view op_type, const std::string& from) {
    const std::string w = weight("weight");
    return has("bias") ? node(op_type, {from, w, weight("bias")}, own_) : node(op_type, {from, w}, own_);
  }

  /// The extents of a kernel with its dilation.
  [[nodiscard]] static nn::size2d reach(nn::size2d kernel, nn::size2d dilation) {
    return {(kernel.height - 1) * dilation.height + 1, (kernel.width - 1) * dilation.width + 1};
  }

  onnx_node pooling(std::string_view op_type, nn::size2d kernel, nn::size2d stride, nn::size2d dilation,
                    const nn::padding& padding, bool ceil_mode) {
    const nn::size2d all = reach(kernel, dilation);
    std::array<index_t, 4> pads = padding_of(all, stride, padding);
    std::string from = image();
    // onnxruntime refuses padding that is not less than a dilated kernel without its dilation.
    if (dilation != nn::size2d{1, 1} &&
        (std::max(pads[0], pads[2]) >= kernel.height || std::max(pads[1], pads[3]) >= kernel.width)) {
      const nn::value_shape& out = output_shape();
      const auto behind = [](index_t outputs, index_t step, index_t taps, index_t before, index_t pixels) {
        return std::max<index_t>(0, (outputs - 1) * step + taps - before - pixels);
      };
      from = padded(from,
                    {pads[0], pads[1], behind(out.height, stride.height, all.height, pads[0], shape().height),
                     behind(out.width, stride.width, all.width, pads[1], shape().width)},
                    "zeros", -std::numeric_limits<double>::infinity());
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
  exported adaptive() {
    const bool maximum = o_.operation() == "adaptive_max_pool2d";
    const nn::value_shape& in = shape();
    const nn::value_shape& out = output_shape();
    if (out.height == 1 && out.width == 1) {
      return named(maximum ? "GlobalMaxPool" : "GlobalAveragePool", {image()});
    }
    if (in.height % out.height != 0 || in.width % out.width != 0) {
      raise<configuration_error>(
          {"io::save_onnx: layer '", layer_->name, "'"}, "an adaptive pooling whose output divides its input",
          {in.height, " x ", in.width, " to ", out.height, " x ", out.width},
          "ONNX has no operator for windows of different extents; choose another size of images");
    }
    const nn::size2d kernel{in.height / out.height, in.width / out.width};
    return named(pooling(maximum ? "MaxPool" : "AveragePool", kernel, kernel, {1, 1}, nn::padding::valid(), false));
  }

  exported layer_normalization() {
    const nn::value_shape& in = shape();
    const double epsilon = o_.real("epsilon");
    if (o_.text("axes") == "image") {
      const std::array dims{in.channels, in.height, in.width};
      const std::string scale = has("weight")
                                    ? weight("weight", dims)
                                    : numbers(dims, std::vector<float>(static_cast<std::size_t>(in.size()), 1));
      const std::string from = image();
      return named((has("bias") ? node("LayerNormalization", {from, scale, weight("bias", dims)}, own_)
                                : node("LayerNormalization", {from, scale}, own_))
                       .integer("axis", 1)
                       .real("epsilon", epsilon));
    }
    const std::string last = part();
    to_.add(node("Transpose", {image()}, last).integers("perm", {0, 2, 3, 1}));
    const std::string scale = weight_or("weight", in.channels, 1);
    const std::string normalized = part();
    to_.add((has("bias") ? node("LayerNormalization", {last, scale, weight("bias")}, normalized)
                         : node("LayerNormalization", {last, scale}, normalized))
                .integer("axis", -1)
                .real("epsilon", epsilon));
    return named(node("Transpose", {normalized}, own_).integers("perm", {0, 3, 1, 2}));
  }

  exported group_normalization() {
    const nn::value_shape& in = shape();
    const index_t groups = o_.integer("groups");
    const std::string split = reshaped(image(), {0, groups, -1});
    const std::string normalized = part();
    to_.add(node("InstanceNormalization", {split, filled(groups, 1), filled(groups, 0)}, normalized)
                .real("epsilon", o_.real("epsilon")));
    std::string result = reshaped(normalized, {0, in.channels, in.height, in.width});
    const std::array dims{in.channels, index_t{1}, index_t{1}};
    if (has("weight")) {
      result = simple("Mul", {result, weight("weight", dims)});
    }
    if (has("bias")) {
      result = simple("Add", {result, weight("bias", dims)});
    }
    return {result, false};
  }

  exported resized() {
    const nn::value_shape& out = output_shape();
    const std::string from = image();
    const std::string dims = part();
    to_.add(node("Shape", {from}, dims).integer("start", 0).integer("end", 2));
    const std::string size = part();
    to_.add(node("Concat", {dims, integers(std::array{out.height, out.width})}, size).integer("axis", 0));
    onnx_node made = node("Resize", {from, "", "", size}, own_);
    if (o_.text("mode") == "nearest") {
      made.text("mode", "nearest").text("nearest_mode", "floor").text("coordinate_transformation_mode", "asymmetric");
    } else {
      made.text("mode", "linear")
          .text("coordinate_transformation_mode", o_.integer("align_corners") != 0 ? "align_corners" : "half_pixel");
    }
    return named(std::move(made));
  }

  exported of_two() {
    const std::string_view op_type = o_.operation() == "add" ? "Add" : "Mul";
    if (input(0).vector && input(1).vector) {
      return named(op_type, {input(0).name, input(1).name}, true);
    }
    const std::string a = image(0);
    const std::string b = image(1);
    return named(op_type, {a, b});
  }

  exported elementwise() {
    using operation = formula_operation;
    require_formula(o_.steps().size());
    bool all_vectors = true;
    for (std::size_t k = 0; k < layer_->inputs.size(); ++k) {
      all_vectors = all_vectors && input(k).vector;
    }
    std::vector<std::string> names;
    for (const formula_step& step : o_.steps()) {
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
            names.push_back(formula_parameter(k - layer_->inputs.size(), all_vectors));
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
    static constexpr std::array<std::string_view, 28> names{
        "Add",  "Sub",   "Mul",     "Div",  "Neg",         "Min",  "Max", "",   "Exp", "Log",
        "Sqrt", "Tanh",  "Sigmoid", "Erf",  "Softplus",    "Relu", "Abs", "",   "Pow", "",
        "",     "Equal", "",        "Less", "LessOrEqual", "And",  "Or",  "Not"};
    static_assert(static_cast<int>(formula_operation::add) == 0 && static_cast<int>(formula_operation::exp) == 8 &&
                  static_cast<int>(formula_operation::pow) == 18 &&
                  static_cast<int>(formula_operation::logical_not) + 1 == static_cast<int>(names.size()));
    return names[static_cast<std::size_t>(operation)];
  }

  described_layer o_;  // the operation and options of the one that is exported
};

}  // namespace gradus::io::detail
