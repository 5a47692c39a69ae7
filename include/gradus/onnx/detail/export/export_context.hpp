// SPDX-License-Identifier: BSL-1.0
//
// What the ONNX operators of a layer are made of: names, constants, reshapes and padding.
#pragma once

#include <algorithm>         // std::max, std::ranges::find
#include <array>             // std::array
#include <cstddef>           // std::size_t
#include <cstdint>           // std::int64_t
#include <initializer_list>  // std::initializer_list
#include <span>              // std::span
#include <string>            // std::string
#include <string_view>       // std::string_view
#include <vector>            // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/layers/padding.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/onnx/detail/model/model.hpp"

namespace gradus::io::detail {

/// A parameter or a buffer of a network in the logical order, as floats.
struct onnx_weight {
  std::string name;           ///< "conv1.weight"
  std::vector<index_t> dims;  ///< (o, i, r, s), (o, i * r * s) or (o)
  std::vector<float> values;
};

/// One network on its way into a model: the layer that is exported, and the values before it. Values are images
/// (N, C, H, W), or vectors (N, C) from nn::flatten and nn::dense on.
class onnx_export_context {
 public:
  /// @param weights  of all layers
  /// @param batch    the number of examples of a call; 0: any
  onnx_export_context(const nn::graph& network, std::span<const onnx_weight> weights, index_t batch, onnx_graph& to)
      : network_{network}, weights_{weights}, batch_{batch}, to_{to} {}

 protected:
  struct exported {
    std::string name;
    bool vector = false;  // (N, C), else (N, C, H, W)
  };

  // ---- pieces

  /// A name that no other layer has: "conv1", or "conv1/2" for what leads to it.
  [[nodiscard]] std::string part() { return gradus::join({layer_->name, "/", ++parts_}); }

  onnx_node node(std::string_view op_type, std::initializer_list<std::string_view> inputs, std::string_view output) {
    return {op_type, output, inputs, {output}};
  }
  void add(std::string_view op_type, std::initializer_list<std::string_view> inputs, std::string_view name,
           std::string_view output) {
    to_.add({op_type, name, inputs, {output}});
  }
  /// An operator without attributes.
  std::string simple(std::string_view op_type, std::initializer_list<std::string_view> inputs) {
    std::string name = part();
    to_.add(node(op_type, inputs, name));
    return name;
  }

  [[nodiscard]] const exported& input(std::size_t k = 0) const { return values_[input_index(k)]; }
  [[nodiscard]] const nn::value_shape& shape(std::size_t k = 0) const { return network_.shape(input_index(k)); }
  [[nodiscard]] const nn::value_shape& output_shape() const { return network_.shape(index_ + 1); }

  std::string integers(std::span<const index_t> values) {
    std::string name = part();
    static_assert(sizeof(index_t) == sizeof(std::int64_t));
    to_.constant(name, onnx_int64, std::array{static_cast<index_t>(values.size())},
                 {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
    return name;
  }
  std::string numbers(std::span<const index_t> dims, std::span<const float> values) {
    std::string name = part();
    to_.constant(name, onnx_float, dims, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
    return name;
  }
  std::string number(double value) { return numbers({}, std::array{static_cast<float>(value)}); }

  std::string filled(index_t count, float value) {
    return numbers(std::array{count}, std::vector<float>(static_cast<std::size_t>(count), value));
  }

  [[nodiscard]] std::string whole_name(std::string_view name) const { return gradus::join({layer_->name, ".", name}); }
  /// True if the layer has the weight `name`.
  [[nodiscard]] bool has(std::string_view name) const {
    return std::ranges::find(weights_, whole_name(name), &onnx_weight::name) != weights_.end();
  }
  /// The weight `name` of the layer, as a constant of the same name with the extents `dims` if they are given.
  [[nodiscard]] std::string weight(std::string_view name, std::span<const index_t> dims = {}) {
    return constant(whole_name(name), dims);
  }
  /// The same by the weight's whole name: "conv1.weight".
  std::string constant(std::string_view name, std::span<const index_t> dims = {}) {
    const auto found = std::ranges::find(weights_, name, &onnx_weight::name);
    if (found == weights_.end()) {
      refuse({"the parameter '", name, "', which its operation has"}, "none");
    }
    to_.constant(found->name, onnx_float, dims.empty() ? std::span<const index_t>{found->dims} : dims,
                 {reinterpret_cast<const char*>(found->values.data()), found->values.size() * sizeof(float)});
    return found->name;
  }
  /// The weight `name`, or `count` times `value` if the layer has none.
  std::string weight_or(std::string_view name, index_t count, float value) {
    return has(name) ? weight(name) : filled(count, value);
  }

  std::string reshaped(std::string_view from, std::initializer_list<index_t> dims) {
    return simple("Reshape", {from, integers(std::span{dims.begin(), dims.size()})});
  }
  /// Input k as an image.
  std::string image(std::size_t k = 0) {
    if (!input(k).vector) {
      return input(k).name;
    }
    return reshaped(input(k).name, {0, shape(k).channels, shape(k).height, shape(k).width});
  }
  /// Input k as a vector, in the order (c, h, w).
  std::string vector(std::size_t k = 0) {
    if (input(k).vector) {
      return input(k).name;
    }
    std::string name = part();
    to_.add(node("Flatten", {input(k).name}, name).integer("axis", 1));
    return name;
  }

  exported named(onnx_node made, bool is_vector = false) {
    to_.add(made);
    return {own_, is_vector};
  }
  exported named(std::string_view op_type, std::initializer_list<std::string_view> inputs, bool is_vector = false) {
    return named(node(op_type, inputs, own_), is_vector);
  }

  /// The padding {top, left, bottom, right} of a kernel that slides over input 0.
  [[nodiscard]] std::array<index_t, 4> padding_of(nn::size2d kernel, nn::size2d stride, const nn::padding& pad) const {
    if (pad.rule() != nn::padding::kind::same) {
      return {pad.top(), pad.left(), pad.bottom(), pad.right()};
    }
    const auto total = [](index_t in, index_t reach, index_t step) {
      return std::max<index_t>(0, ((in + step - 1) / step - 1) * step + reach - in);
    };
    const index_t rows = total(shape().height, kernel.height, stride.height);
    const index_t columns = total(shape().width, kernel.width, stride.width);
    return {rows / 2, columns / 2, rows - rows / 2, columns - columns / 2};
  }

  std::string slice(std::string_view from, std::initializer_list<index_t> begin, std::initializer_list<index_t> end,
                    std::initializer_list<index_t> axes) {
    return simple("Slice",
                  {from, integers(std::span{begin.begin(), begin.size()}), integers(std::span{end.begin(), end.size()}),
                   integers(std::span{axes.begin(), axes.size()})});
  }

  /// The image with rows and columns around it. @param mode  as kernels::name_of(padding_mode) says
  std::string padded(std::string from, const std::array<index_t, 4>& pads, std::string_view mode, double value) {
    if (mode == "circular") {  // Pad has no "wrap" before version 19
      for (const index_t axis : {index_t{2}, index_t{3}}) {
        const index_t extent = axis == 2 ? shape().height : shape().width;
        const index_t before = pads[static_cast<std::size_t>(axis - 2)];
        const index_t after = pads[static_cast<std::size_t>(axis)];
        std::vector<std::string> parts;
        if (before > 0) {
          parts.push_back(slice(from, {extent - before}, {extent}, {axis}));
        }
        parts.push_back(from);
        if (after > 0) {
          parts.push_back(slice(from, {0}, {after}, {axis}));
        }
        if (parts.size() > 1) {
          from = part();
          const std::vector<std::string_view> inputs(parts.begin(), parts.end());
          to_.add(onnx_node{"Concat", from, inputs, {from}}.integer("axis", axis));
        }
      }
      return from;
    }
    const std::string_view name = mode == "reflect" ? mode : mode == "replicate" ? "edge" : "constant";
    std::string result = part();
    const std::string amounts = integers(std::array<index_t, 8>{0, 0, pads[0], pads[1], 0, 0, pads[2], pads[3]});
    to_.add(node("Pad", {from, amounts, number(value)}, result).text("mode", name));
    return result;
  }

  /// Raises configuration_error for the layer that is exported.
  [[noreturn]] void refuse(message_part expected, message_part actual, message_part hint = {}) const {
    raise<configuration_error>({"io::save_onnx: layer '", layer_->name, "' (", layer_->layer->kind(), ")"}, expected,
                               actual, hint);
  }

  /// The same: the operation that the layer names is none of the library's, and no operator with its domain.
  [[noreturn]] void refuse_operation(std::string_view name) const {
    if (!name.empty()) {
      refuse("an operation of the library, or an operator with its domain", {"visit.operation(\"", name, "\")"},
             {"name the domain too, as in visit.operation(\"company::", name.starts_with("::") ? "name" : name, "\")"});
    }
    refuse("a layer that ONNX has operators for", "one whose function attributes names none",
           "write element-wise functions by nn::elementwise, which is exported step by step, or "
           "name an operator in the layer's function attributes: visit.operation(\"company::name\")");
  }
  /// Refuses an element-wise layer without steps.
  void require_formula(std::size_t steps) const {
    if (steps == 0) {
      refuse("the function that it computes, behind visit.operation(\"elementwise\")", "no visit.formula",
             {"write visit.formula(gradus::formula_of<", variables(), ">(function).steps()) in attributes"});
    }
  }
  /// Parameter p of the layer, a number or one for each channel, as a constant that operators repeat.
  std::string formula_parameter(std::size_t p, bool for_vectors) {
    if (p >= layer_->parameters.size()) {
      refuse(
          {"a formula of its ", layer_->inputs.size(), " inputs, then its ", layer_->parameters.size(), " parameters"},
          {"one with a variable ", layer_->inputs.size() + p + 1},
          {"write gradus::formula_of<", variables(), ">(function)"});
    }
    const std::string& name = layer_->parameters[p].name;
    const image_extents& shape = layer_->parameters[p].shape;
    const index_t channels = output_shape().channels;
    if (shape.size() != shape.n || (shape.n != 1 && shape.n != channels)) {
      refuse({"1 number or one for each of ", channels, " channels in the parameter '", name, "' of a formula"},
             to_string(shape));
    }
    const std::array dims{shape.n, index_t{1}, index_t{1}};
    return constant(name, std::span{dims}.first(for_vectors ? 1 : 3));
  }

  const nn::graph& network_;
  std::span<const onnx_weight> weights_;
  index_t batch_;
  onnx_graph& to_;
  std::vector<exported> values_;            // of the network, by their index
  const nn::graph::node* layer_ = nullptr;  // the one that is exported
  std::size_t index_ = 0;
  std::string own_;  // the name of its output
  int parts_ = 0;

 private:
  /// Of a formula.
  [[nodiscard]] std::size_t variables() const { return layer_->inputs.size() + layer_->parameters.size(); }

  /// The value that is input k.
  [[nodiscard]] std::size_t input_index(std::size_t k) const {
    if (k >= layer_->inputs.size()) {
      refuse({"at least ", k + 1, " inputs, as its operation has"}, {layer_->inputs.size()});
    }
    return layer_->inputs[k];
  }
};

}  // namespace gradus::io::detail
