// SPDX-License-Identifier: BSL-1.0
//
// The layers that ONNX models are made of here, as data.
#pragma once

#include <string>   // std::string
#include <variant>  // std::variant

#include "gradus/core/config.hpp"
#include "gradus/nn/initializer.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/activations.hpp"
#include "gradus/nn/layers/conv_transpose2d.hpp"
#include "gradus/nn/layers/elementwise.hpp"
#include "gradus/nn/layers/group_norm.hpp"
#include "gradus/nn/layers/layer_norm.hpp"
#include "gradus/nn/layers/pad2d.hpp"
#include "gradus/nn/layers/shaping.hpp"
#include "gradus/nn/layers/softmax.hpp"
#include "gradus/tensor/functions.hpp"

namespace gradus::io::detail {

/// Element-wise functions of ONNX that are no layers of their own. Conditions are 1 and 0.
enum class onnx_function : unsigned char {
  // of x
  exp,
  log,
  sqrt,
  erf,
  absolute,
  negative,
  logical_not,
  // of x and a number, or a number and x
  plus_number,
  number_minus,
  times_number,
  number_over,
  over_number,
  minimum_number,
  maximum_number,
  power_number,
  less_number,
  number_less,
  less_equal_number,
  number_less_equal,
  equal_number,
  // of x and y
  minus,
  over,
  minimum,
  maximum,
  less,
  less_equal,
  equal,
  logical_and,
  logical_or,
  // of x and a number for each channel
  plus_channels,
  times_channels,
  // of a condition and numbers or values
  choose,
  choose_or_number,
  choose_number_or,
  choose_numbers
};

/// A function with its numbers.
struct onnx_function_layer {
  onnx_function which = onnx_function::exp;
  double number = 0;
  double second = 0;  // of choose_numbers
};

/// clamp(x, low, high).
struct onnx_clip {
  double low = 0;
  double high = 0;
};

/// The options of one layer.
using imported_options =
    std::variant<nn::conv2d, nn::conv_transpose2d, nn::dense, nn::batch_norm, nn::group_norm, nn::instance_norm,
                 nn::layer_norm, nn::local_response_norm, nn::max_pool2d, nn::average_pool2d, nn::global_average_pool2d,
                 nn::relu, nn::relu6, nn::leaky_relu, nn::elu, nn::gelu, nn::gelu_tanh, nn::tanh, nn::sigmoid,
                 nn::softplus, nn::hard_swish, nn::prelu, nn::softmax, nn::log_softmax, nn::add, nn::multiply,
                 nn::concat, nn::flatten, nn::pad2d, nn::pad_channels, nn::upsample2d, nn::slice, nn::pixel_shuffle,
                 nn::pixel_unshuffle, nn::reshape, nn::permute, onnx_clip, onnx_function_layer>;

/// Calls add(options) with the options of a layer that nn::network takes.
template <class Add>
decltype(auto) add_function(const onnx_function_layer& layer, const Add& add) {
  const double c = layer.number;
  switch (layer.which) {
    case onnx_function::exp:
      return add(nn::elementwise([](auto x) { return exp(x); }));
    case onnx_function::log:
      return add(nn::elementwise([](auto x) { return log(x); }));
    case onnx_function::sqrt:
      return add(nn::elementwise([](auto x) { return sqrt(x); }));
    case onnx_function::erf:
      return add(nn::elementwise([](auto x) { return gradus::erf(x); }));
    case onnx_function::absolute:
      return add(nn::elementwise([](auto x) { return abs(x); }));
    case onnx_function::negative:
      return add(nn::elementwise([](auto x) { return -x; }));
    case onnx_function::logical_not:
      return add(nn::elementwise([](auto x) { return where(x == 0, 1, 0); }));
    case onnx_function::plus_number:
      return add(nn::elementwise([c](auto x) { return x + c; }));
    case onnx_function::number_minus:
      return add(nn::elementwise([c](auto x) { return c - x; }));
    case onnx_function::times_number:
      return add(nn::elementwise([c](auto x) { return c * x; }));
    case onnx_function::number_over:
      return add(nn::elementwise([c](auto x) { return c / x; }));
    case onnx_function::over_number:
      return add(nn::elementwise([c](auto x) { return x / c; }));
    case onnx_function::minimum_number:
      return add(nn::elementwise([c](auto x) { return min(x, c); }));
    case onnx_function::maximum_number:
      return add(nn::elementwise([c](auto x) { return max(x, c); }));
    case onnx_function::power_number:
      return add(nn::elementwise([c](auto x) { return pow(x, c); }));
    case onnx_function::less_number:
      return add(nn::elementwise([c](auto x) { return where(x < c, 1, 0); }));
    case onnx_function::number_less:
      return add(nn::elementwise([c](auto x) { return where(x > c, 1, 0); }));
    case onnx_function::less_equal_number:
      return add(nn::elementwise([c](auto x) { return where(x <= c, 1, 0); }));
    case onnx_function::number_less_equal:
      return add(nn::elementwise([c](auto x) { return where(x >= c, 1, 0); }));
    case onnx_function::equal_number:
      return add(nn::elementwise([c](auto x) { return where(x == c, 1, 0); }));
    case onnx_function::minus:
      return add(nn::elementwise([](auto x, auto y) { return x - y; }));
    case onnx_function::over:
      return add(nn::elementwise([](auto x, auto y) { return x / y; }));
    case onnx_function::minimum:
      return add(nn::elementwise([](auto x, auto y) { return min(x, y); }));
    case onnx_function::maximum:
      return add(nn::elementwise([](auto x, auto y) { return max(x, y); }));
    case onnx_function::less:
      return add(nn::elementwise([](auto x, auto y) { return where(x < y, 1, 0); }));
    case onnx_function::less_equal:
      return add(nn::elementwise([](auto x, auto y) { return where(x <= y, 1, 0); }));
    case onnx_function::equal:
      return add(nn::elementwise([](auto x, auto y) { return where(x == y, 1, 0); }));
    case onnx_function::logical_and:
      return add(nn::elementwise([](auto x, auto y) { return where(x != 0 && y != 0, 1, 0); }));
    case onnx_function::logical_or:
      return add(nn::elementwise([](auto x, auto y) { return where(x != 0 || y != 0, 1, 0); }));
    case onnx_function::plus_channels:
      return add(nn::elementwise([](auto x, auto p) { return x + p; }, {nn::per_channel("bias", nn::zeros())}));
    case onnx_function::times_channels:
      return add(nn::elementwise([](auto x, auto p) { return x * p; }, {nn::per_channel("weight", nn::ones())}));
    case onnx_function::choose:
      return add(nn::elementwise([](auto t, auto x, auto y) { return where(t != 0, x, y); }));
    case onnx_function::choose_or_number:
      return add(nn::elementwise([c](auto t, auto x) { return where(t != 0, x, c); }));
    case onnx_function::choose_number_or:
      return add(nn::elementwise([c](auto t, auto y) { return where(t != 0, c, y); }));
    default:
      return add(nn::elementwise([c, d = layer.second](auto t) { return where(t != 0, c, d); }));
  }
}

}  // namespace gradus::io::detail
