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
#include "gradus/nn/value.hpp"
#include "gradus/onnx/detail/import/imported_layers.hpp"
#include "gradus/onnx/detail/import/shapes.hpp"
#include "gradus/onnx/detail/model/model_reader.hpp"

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
      softmax(type == "Softmax");
    } else if (type == "HardSigmoid") {
      const double slope = real("alpha", 0.2);
      const double offset = real("beta", 0.5);
      const int rank = value().rank;
      nn::value made = add(onnx_function_layer{onnx_function::times_number, slope}, value().value);
      made = add(onnx_function_layer{onnx_function::plus_number, offset}, made);
      give(add(onnx_clip{0, 1}, made), rank);
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
        {"Sum", {f::minus, f::plus_number, {}}},
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
             "docs/onnx.md lists the operators; give add_to a function that translates it, or write the network in C++ "
             "and load its weights instead");
    }
    const binary& rule = found->second;
    if (op_->inputs.size() != 2) {
      if (op_->inputs.size() == 1) {
        give(value().value, value().rank);
        return;
      }
      if (op_->inputs.empty() || (op_->op_type != "Sum" && op_->op_type != "Min" && op_->op_type != "Max")) {
        refuse("2 inputs", {op_->inputs.size()});
      }
      several_values(rule.values);
      return;
    }
    const onnx_constant* const left = constant(0);
    const onnx_constant* const right = constant(1);
    if (left == nullptr && right == nullptr) {
      of_two_values(rule.values);
      return;
    }
    const std::size_t k = left == nullptr ? 0 : 1;
    const onnx_constant& number = left == nullptr ? *right : *left;
    if (static_cast<int>(number.dims.size()) > value(k).rank) {
      refuse({"a constant of at most ", value(k).rank, " axes"}, {number.dims.size(), " axes"});
    }
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
    const bool adds = type == "Add" || type == "Sub" || type == "Sum";
    if (!adds && type != "Mul" && !(k == 0 && type == "Div")) {
      refuse("a number, or one for each channel of an Add, Sub, Mul or Div", {number.size(), " numbers"});
    }
    // The axis behind the batch that has a number for each element. Axes are aligned at the last one.
    const int rank = value(k).rank;
    const std::vector<index_t> extents = extents_of(value(k));
    index_t which = 0;
    for (std::size_t i = 0; i < number.dims.size(); ++i) {
      const index_t at = rank - static_cast<index_t>(number.dims.size() - i);
      if (number.dims[i] != 1) {
        if (which != 0 || at == 0 || number.dims[i] != extents[static_cast<std::size_t>(at) - 1]) {
          refuse("a number, or one for each element of one axis behind the batch", {number.size(), " numbers"});
        }
        which = at;
      }
    }
    if (which == 0 || number.numbers.size() != static_cast<std::size_t>(extents[static_cast<std::size_t>(which) - 1])) {
      refuse("a number, or one for each element of one axis behind the batch", {number.size(), " numbers"});
    }
    std::vector<float> numbers = number.numbers;
    for (float& each : numbers) {
      each = type == "Sub" && k == 0 ? -each : type == "Div" ? 1 / each : each;
    }
    const turned_axes turned = with_channels_at(k, which);
    nn::value from = plain(turned.value);
    if (type == "Sub" && k == 1) {
      from = add(onnx_function_layer{onnx_function::negative}, from);
    }
    const std::string name = layer_name();
    const std::size_t count = numbers.size();
    keep(name, adds ? "bias" : "weight", std::move(numbers), count);
    const nn::value made =
        add(name, onnx_function_layer{adds ? onnx_function::plus_channels : onnx_function::times_channels},
            std::array{from});
    give(permuted({made, rank}, turned.back));
  }

  /// Two values of one shape: axes of extent 1 are repeated as the other value has them. Ranks are equal, or the batch
  /// of one value would meet another axis of the other one.
  void of_one_shape(std::vector<nn::value>& values, int rank, int other_rank) {
    if (rank != other_rank) {
      refuse("values of as many axes", {rank, " and ", other_rank},
             "ONNX aligns axes at the last one: the batch of one value would meet another axis");
    }
    bool equal = true;
    nn::value_shape to = net_.shape(values[0]);
    for (const nn::value each : values) {
      equal = equal && net_.shape(each) == to;
    }
    if (equal) {
      return;
    }
    to = {1, 1, 1};
    for (nn::value& each : values) {
      each = plain(each);
      const nn::value_shape& in = net_.shape(each);
      to = {std::max(to.channels, in.channels), std::max(to.height, in.height), std::max(to.width, in.width)};
    }
    const bool multiplies = op_->op_type == "Mul" && values.size() == 2;
    for (nn::value& each : values) {
      // nn::multiply repeats factors of channels.
      if (!(multiplies && net_.shape(each) == nn::value_shape{to.channels, 1, 1})) {
        each = broadcast(each, to);
      }
    }
  }

  void of_two_values(onnx_function which) {
    if (op_->op_type == "Pow") {
      refuse("a number as the exponent", "a value");
    }
    const int rank = value(0).rank;
    std::vector<nn::value> values{value(0).value, value(1).value};
    of_one_shape(values, rank, value(1).rank);
    give(of_two(which, values[0], values[1]), rank);
  }
  [[nodiscard]] nn::value of_two(onnx_function which, nn::value a, nn::value b) {
    const std::string& type = op_->op_type;
    const bool swaps = type == "Greater" || type == "GreaterOrEqual";
    const std::array inputs{swaps ? b : a, swaps ? a : b};
    if (type == "Mul") {
      return add(layer_name(), nn::multiply{}, inputs);
    }
    if (type == "Add" || type == "Sum") {
      return add(layer_name(), nn::add{}, inputs);
    }
    return add(layer_name(), onnx_function_layer{which}, inputs);
  }
  /// Sum, Min and Max of three or more values.
  void several_values(onnx_function which) {
    const int rank = value(0).rank;
    nn::value made = value(0).value;
    for (std::size_t k = 1; k < op_->inputs.size(); ++k) {
      std::vector<nn::value> values{made, value(k).value};
      of_one_shape(values, rank, value(k).rank);
      made = of_two(which, values[0], values[1]);
    }
    give(made, rank);
  }

  void softmax(bool exponentials) {
    const int rank = value().rank;
    index_t which = axis_of(integer("axis", model_.opset < 13 ? 1 : -1), rank);
    if (model_.opset < 13) {  // over all axes from this one on
      std::vector<index_t> extents = extents_of(value());
      index_t last = which;
      int longer = 0;
      for (index_t k = std::max<index_t>(which, 1); k < rank; ++k) {
        if (extents[static_cast<std::size_t>(k) - 1] != 1) {
          last = k;
          ++longer;
        }
      }
      if (longer > 1) {
        refuse("a softmax over one axis", {"the axes from ", which, " on"});
      }
      which = which == 0 ? which : last;
    }
    if (which == 0) {
      refuse("an axis of the images", "the batch");
    }
    const turned_axes turned = with_channels_at(0, which);
    const nn::value from = turned.value;
    const nn::value made = exponentials ? add(nn::softmax{}, from) : add(nn::log_softmax{}, from);
    give(permuted({made, rank}, turned.back));
  }

  void choice() {
    const int rank = value(0).rank;
    std::vector<nn::value> inputs{value(0).value};
    std::array<std::optional<double>, 2> numbers;
    for (const std::size_t k : {std::size_t{1}, std::size_t{2}}) {
      if (const onnx_constant* const number = constant(k)) {
        numbers[k - 1] = scalar(*number);
        if (!numbers[k - 1]) {
          refuse("values and numbers", {number->size(), " numbers"});
        }
        if (static_cast<int>(number->dims.size()) > rank) {
          refuse({"a constant of at most ", rank, " axes"}, {number->dims.size(), " axes"});
        }
      } else {
        inputs.push_back(value(k).value);
        of_one_shape(inputs, rank, value(k).rank);
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
    give(add(layer_name(), layer, inputs), rank);
  }
};

}  // namespace gradus::io::detail
