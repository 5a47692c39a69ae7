// SPDX-License-Identifier: BSL-1.0
//
// ONNX operators on elements.
#pragma once

#include <algorithm>    // std::clamp, std::max, std::sort
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <limits>       // std::numeric_limits
#include <map>          // std::map
#include <optional>     // std::optional
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/detail/onnx/import_shapes.hpp"
#include "gradus/io/detail/onnx/imported_layers.hpp"
#include "gradus/io/detail/onnx/model_reader.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::io::detail {

/// Makes layers of activations and of functions of elements.
class onnx_function_operators : public onnx_shape_operators {
 public:
  using onnx_shape_operators::onnx_shape_operators;

 protected:
  /// Activations and softmax. False if the operator is none.
  [[nodiscard]] bool translate_activations() {
    const std::string& type = op_->op_type;
    if (type == "Relu") {
      give_layer(nn::relu{});
    } else if (type == "LeakyRelu") {
      give_layer(nn::leaky_relu{.negative_slope = real("alpha", 0.01)});
    } else if (type == "Elu") {
      give_layer(nn::elu{.alpha = real("alpha", 1)});
    } else if (type == "Sigmoid") {
      give_layer(nn::sigmoid{});
    } else if (type == "Tanh") {
      give_layer(nn::tanh{});
    } else if (type == "Softplus") {
      give_layer(nn::softplus{.threshold = 100});
    } else if (type == "HardSwish") {
      give_layer(nn::hard_swish{});
    } else if (type == "Gelu") {
      if (text("approximate", "none") == "tanh") {
        give_layer(nn::gelu_tanh{});
      } else {
        give_layer(nn::gelu{});
      }
    } else if (type == "PRelu") {
      const onnx_constant& slope = needed(1, "slope");
      const std::string name = layer_name(1);
      const nn::value from = plain(value().value);
      const bool each = slope.numbers.size() != 1;
      keep(name, "weight", slope.numbers, each ? static_cast<std::size_t>(net_.shape(from).channels) : 1);
      if (each && !per_channel(slope)) {
        refuse("a slope, or one for each channel", "slopes of another shape");
      }
      give(add(name, nn::prelu{.per_channel = each}, std::array{from}), value().rank);
    } else if (type == "Clip") {
      const double low = bound(1, "min", -std::numeric_limits<double>::infinity());
      const double high = bound(2, "max", std::numeric_limits<double>::infinity());
      if (low == 0 && high == std::numeric_limits<double>::infinity()) {
        give_layer(nn::relu{});
      } else if (low == 0 && high == 6) {
        give_layer(nn::relu6{});
      } else {
        give_layer(onnx_clip{low, high});
      }
    } else if (type == "Softmax" || type == "LogSoftmax") {
      const index_t which = axis_of(integer("axis", model_.opset < 13 ? 1 : -1), value().rank);
      if (which != 1 || (model_.opset < 13 && value().rank != 2)) {
        refuse("the axis of the channels", {which});
      }
      if (type == "Softmax") {
        give_layer(nn::softmax{});
      } else {
        give_layer(nn::log_softmax{});
      }
    } else {
      return false;
    }
    return true;
  }

  /// Functions of elements.
  /// @throws configuration_error for any other operator
  void translate_arithmetic() {
    using f = onnx_function;
    static const std::map<std::string_view, f> unary{{"Exp", f::exp},        {"Log", f::log},      {"Sqrt", f::sqrt},
                                                     {"Erf", f::erf},        {"Abs", f::absolute}, {"Neg", f::negative},
                                                     {"Not", f::logical_not}};
    if (const auto found = unary.find(op_->op_type); found != unary.end()) {
      give_layer(onnx_function_layer{found->second});
      return;
    }
    if (op_->op_type == "Reciprocal") {
      give_layer(onnx_function_layer{f::number_over, 1});
      return;
    }
    if (op_->op_type == "Where") {
      choice();
      return;
    }
    struct binary {
      f values;                    // of two values
      f with_number;               // value, number
      std::optional<f> of_number;  // number, value; none: as with_number
    };
    static const std::map<std::string_view, binary> known{
        {"Add", {f::minus, f::plus_number, {}}},
        {"Sub", {f::minus, f::plus_number, f::number_minus}},
        {"Mul", {f::over, f::times_number, {}}},
        {"Div", {f::over, f::over_number, f::number_over}},
        {"Min", {f::minimum, f::minimum_number, {}}},
        {"Max", {f::maximum, f::maximum_number, {}}},
        {"Pow", {f::exp, f::power_number, f::exp}},
        {"Less", {f::less, f::less_number, f::number_less}},
        {"LessOrEqual", {f::less_equal, f::less_equal_number, f::number_less_equal}},
        {"Greater", {f::less, f::number_less, f::less_number}},
        {"GreaterOrEqual", {f::less_equal, f::number_less_equal, f::less_equal_number}},
        {"Equal", {f::equal, f::equal_number, {}}},
        {"And", {f::logical_and, f::times_number, {}}},
        {"Or", {f::logical_or, f::plus_number, {}}}};
    const auto found = known.find(op_->op_type);
    if (found == known.end()) {
      refuse("an operator that the layers of gradus compute", op_->op_type,
             "docs/onnx.md lists the operators; write the network in C++ and load its weights instead");
    }
    const binary& rule = found->second;
    if (op_->inputs.size() != 2) {
      if (op_->inputs.size() == 1) {
        give(value().value, value().rank);
        return;
      }
      refuse("2 inputs", {op_->inputs.size()});
    }
    const onnx_constant* const left = constant(0);
    const onnx_constant* const right = constant(1);
    if (left == nullptr && right == nullptr) {
      of_two_values(rule.values);
      return;
    }
    const std::size_t k = left == nullptr ? 0 : 1;
    const onnx_constant& number = left == nullptr ? *right : *left;
    if (const std::optional<double> c = scalar(number)) {
      with_number(k, *c, k == 0 ? rule.with_number : rule.of_number.value_or(rule.with_number));
      return;
    }
    with_channels(k, number);
  }

 private:
  [[nodiscard]] double bound(std::size_t k, std::string_view name, double otherwise) const {
    if (!has_input(k)) {
      return real(name, otherwise);
    }
    const std::optional<double> found = scalar(needed(k, name));
    if (!found) {
      refuse({"a number as ", name}, {needed(k, name).size(), " numbers"});
    }
    return *found;
  }

  /// Whether a constant has one number for each channel of value 0 (or 1).
  [[nodiscard]] bool per_channel(const onnx_constant& number, std::size_t k = 0) {
    const int rank = value(k).rank;
    const index_t channels = rank == 2 ? shape(k).size() : shape(k).channels;
    // Axes are aligned at the last one; the slope of PRelu may leave out the axes behind the channels.
    const auto count = static_cast<int>(number.dims.size());
    for (int i = 0; i < count; ++i) {
      const int at = rank - count + i;
      if (number.dims[static_cast<std::size_t>(i)] != 1 && at != 1) {
        return false;
      }
    }
    return static_cast<index_t>(number.numbers.size()) == channels && count <= rank && rank - count <= 1;
  }

  void with_number(std::size_t k, double c, onnx_function which) {
    const std::string& type = op_->op_type;
    if ((type == "Pow" && k == 1) || type == "And" || type == "Or") {
      refuse("a value and a number as its exponent, or two values", "others");
    }
    onnx_function_layer layer{which, type == "Sub" && k == 0 ? -c : c};
    give(add(layer, value(k).value), value(k).rank);
  }

  void with_channels(std::size_t k, const onnx_constant& number) {
    const std::string& type = op_->op_type;
    if (!per_channel(number, k) || (type != "Add" && type != "Mul" && !(k == 0 && (type == "Sub" || type == "Div")))) {
      refuse("a number, or one for each channel of an Add, Sub, Mul or Div", {number.size(), " numbers"});
    }
    std::vector<float> numbers = number.numbers;
    for (float& each : numbers) {
      each = type == "Sub" ? -each : type == "Div" ? 1 / each : each;
    }
    const bool adds = type == "Add" || type == "Sub";
    const std::string name = layer_name();
    const std::size_t count = numbers.size();
    keep(name, adds ? "bias" : "weight", std::move(numbers), count);
    give(add(name, onnx_function_layer{adds ? onnx_function::plus_channels : onnx_function::times_channels},
             std::array{plain(value(k).value)}),
         value(k).rank);
  }

  void of_two_values(onnx_function which) {
    const std::string& type = op_->op_type;
    nn::value a = value(0).value;
    nn::value b = value(1).value;
    if (net_.shape(a) != net_.shape(b)) {
      a = plain(a);
      b = plain(b);
    }
    const bool swaps = type == "Greater" || type == "GreaterOrEqual";
    const std::array inputs{swaps ? b : a, swaps ? a : b};
    const int rank = std::max(value(0).rank, value(1).rank);
    if (type == "Pow") {
      refuse("a number as the exponent", "a value");
    }
    if (type == "Mul") {
      give(add(layer_name(), nn::multiply{}, inputs), rank);
      return;
    }
    if (net_.shape(a) != net_.shape(b)) {
      refuse("two values of one shape", {nn::describe(net_.shape(a)), " and ", nn::describe(net_.shape(b))});
    }
    if (type == "Add") {
      give(add(layer_name(), nn::add{}, inputs), rank);
      return;
    }
    give(add(layer_name(), onnx_function_layer{which}, inputs), rank);
  }

  void choice() {
    std::vector<nn::value> inputs{value(0).value};
    std::array<std::optional<double>, 2> numbers;
    for (const std::size_t k : {std::size_t{1}, std::size_t{2}}) {
      if (const onnx_constant* const number = constant(k)) {
        numbers[k - 1] = scalar(*number);
        if (!numbers[k - 1]) {
          refuse("values and numbers", {number->size(), " numbers"});
        }
      } else {
        inputs.push_back(value(k).value);
      }
    }
    onnx_function_layer layer{onnx_function::choose};
    if (numbers[0] && numbers[1]) {
      layer = {onnx_function::choose_numbers, *numbers[0], *numbers[1]};
    } else if (numbers[0]) {
      layer = {onnx_function::choose_number_or, *numbers[0]};
    } else if (numbers[1]) {
      layer = {onnx_function::choose_or_number, *numbers[1]};
    }
    give(add(layer_name(), layer, inputs), value(0).rank);
  }
};

}  // namespace gradus::io::detail
