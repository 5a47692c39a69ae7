// SPDX-License-Identifier: BSL-1.0
//
// ONNX operators with weights, and pooling.
#pragma once

#include <algorithm>    // std::clamp, std::max, std::sort
#include <array>        // std::array
#include <cstddef>      // std::size_t
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
#include "gradus/io/detail/onnx/import_constants.hpp"
#include "gradus/io/detail/onnx/imported_layers.hpp"
#include "gradus/io/detail/onnx/model_reader.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::io::detail {

/// Makes layers of convolutions, dense layers, normalizations and pooling.
class onnx_weight_operators : public onnx_constant_operators {
 public:
  using onnx_constant_operators::onnx_constant_operators;

 protected:
  /// Convolutions, dense layers, normalizations and pooling. False if the operator is none.
  [[nodiscard]] bool translate_weights() {
    const std::string& type = op_->op_type;
    if (type == "Conv") {
      convolution();
    } else if (type == "ConvTranspose") {
      transposed_convolution();
    } else if (type == "Gemm") {
      gemm();
    } else if (type == "MatMul") {
      matrix_product();
    } else if (type == "BatchNormalization") {
      batch_normalization();
    } else if (type == "InstanceNormalization") {
      const std::string name = layer_name(1);
      keep_channels(name, "weight", 1);
      keep_channels(name, "bias", 2);
      give(add(name, nn::instance_norm{.epsilon = real("epsilon", 1e-5), .scale = true, .shift = true},
               std::array{value().value}),
           value().rank);
    } else if (type == "GroupNormalization") {
      if (model_.opset < 21) {
        refuse("version 21 or newer, whose scale has a number for each channel", {model_.opset});
      }
      const std::string name = layer_name(1);
      keep_channels(name, "weight", 1);
      keep_channels(name, "bias", 2);
      give(add(name, nn::group_norm{.groups = integer("num_groups", 0), .epsilon = real("epsilon", 1e-5)},
               std::array{value().value}),
           value().rank);
    } else if (type == "LayerNormalization") {
      layer_normalization();
    } else if (type == "LRN") {
      const index_t size = integer("size", 0);
      if (size < 1 || size % 2 == 0) {
        refuse("an odd size", {size});
      }
      give_layer(nn::local_response_norm{.radius = (size - 1) / 2,
                                         .alpha = real("alpha", 1e-4) / static_cast<double>(size),
                                         .beta = real("beta", 0.75),
                                         .k = real("bias", 1)});
    } else if (type == "MaxPool") {
      require_integer("storage_order", 0);
      nn::max_pool2d pool{.kernel = pair("kernel_shape", {0, 0}), .stride = pair("strides", {1, 1})};
      pool.padding = pooling_padding(pool.kernel, pool.stride);
      give_layer(pool);
    } else if (type == "AveragePool") {
      nn::average_pool2d pool{.kernel = pair("kernel_shape", {0, 0}), .stride = pair("strides", {1, 1})};
      pool.count_padding = integer("count_include_pad", 0) != 0;
      if (pool.count_padding) {
        require_integer("ceil_mode", 0);
      }
      pool.padding = pooling_padding(pool.kernel, pool.stride);
      give_layer(pool);
    } else if (type == "GlobalAveragePool") {
      require_rank(4);
      give_layer(nn::global_average_pool2d{});
    } else if (type == "ReduceMean") {
      require_rank(4);
      std::vector<index_t> axes = integers(1, "axes");
      for (index_t& each : axes) {
        each = axis_of(each, 4);
      }
      std::sort(axes.begin(), axes.end());
      if (axes != std::vector<index_t>{2, 3}) {
        refuse("the mean over the rows and columns", "over other axes");
      }
      give(add(nn::global_average_pool2d{}, value().value), integer("keepdims", 1) != 0 ? 4 : 2);
    } else {
      return false;
    }
    return true;
  }

 private:
  [[nodiscard]] nn::padding padding_of(bool transposed = false) const {
    const std::string rule = text("auto_pad", "NOTSET");
    if (rule == "VALID") {
      return nn::padding::valid();
    }
    if (rule == "SAME_UPPER" && !transposed) {
      return nn::padding::same();
    }
    if (rule != "NOTSET") {
      refuse("auto_pad NOTSET, VALID or SAME_UPPER", rule);
    }
    const std::vector<index_t> pads = attribute_integers("pads", {0, 0, 0, 0});
    return nn::padding::explicit_padding(pads[0], pads[2], pads[1], pads[3]);
  }

  /// With ceil_mode the last window may begin inside and end outside: as if there were more padding.
  [[nodiscard]] nn::padding pooling_padding(nn::size2d kernel, nn::size2d stride) {
    for (const index_t each : attribute_integers("dilations", {1, 1})) {
      if (each != 1) {
        refuse("dilations of 1", {each});
      }
    }
    nn::padding pad = padding_of();
    if (integer("ceil_mode", 0) == 0 || pad.rule() == nn::padding::kind::same) {
      return pad;
    }
    const auto more = [](index_t in, index_t taps, index_t step, index_t before, index_t after) {
      const index_t room = in + before + after - taps;
      if (step < 1 || room < 0 || room % step == 0) {
        return after;
      }
      const index_t outputs = room / step + 2;
      // A window that would begin in the padding behind the image is left out.
      return (outputs - 1) * step >= in + before ? after : after + step - room % step;
    };
    return nn::padding::explicit_padding(
        pad.top(), more(shape().height, kernel.height, stride.height, pad.top(), pad.bottom()), pad.left(),
        more(shape().width, kernel.width, stride.width, pad.left(), pad.right()));
  }

  /// The extents of a kernel (o, i, r, s).
  [[nodiscard]] const onnx_constant& kernel() {
    require_rank(4);
    const onnx_constant& w = needed(1, "weight");
    if (w.dims.size() != 4) {
      refuse("a weight of 4 axes", {w.dims.size(), " axes"});
    }
    return w;
  }

  void convolution() {
    const onnx_constant& w = kernel();
    const std::string name = layer_name(1);
    const nn::conv2d options{.out_channels = w.dims[0],
                             .kernel = {w.dims[2], w.dims[3]},
                             .stride = pair("strides", {1, 1}),
                             .padding = padding_of(),
                             .dilation = pair("dilations", {1, 1}),
                             .groups = integer("group", 1),
                             .bias = has_input(2)};
    if (options.groups < 1 || w.dims[1] * options.groups != shape().channels) {
      refuse({"a weight for ", shape().channels, " input channels"},
             {w.dims[1], " in each of ", options.groups, " groups"});
    }
    keep(name, "weight", w.numbers, w.size());
    if (options.bias) {
      keep(name, "bias", needed(2, "bias").numbers, static_cast<std::size_t>(w.dims[0]));
    }
    give(add(name, options, std::array{value().value}), 4);
  }

  void transposed_convolution() {
    const onnx_constant& w = kernel();
    const std::string name = layer_name(1);
    if (attribute("output_shape") != nullptr) {
      refuse("pads and output_padding", "output_shape");
    }
    const nn::conv_transpose2d options{.out_channels = w.dims[1] * integer("group", 1),
                                       .kernel = {w.dims[2], w.dims[3]},
                                       .stride = pair("strides", {1, 1}),
                                       .padding = padding_of(true),
                                       .output_padding = pair("output_padding", {0, 0}),
                                       .dilation = pair("dilations", {1, 1}),
                                       .groups = integer("group", 1),
                                       .bias = has_input(2)};
    if (w.dims[0] != shape().channels) {
      refuse({"a weight for ", shape().channels, " input channels"}, {w.dims[0]});
    }
    keep(name, "weight", w.numbers, w.size());
    if (options.bias) {
      keep(name, "bias", needed(2, "bias").numbers, static_cast<std::size_t>(options.out_channels));
    }
    give(add(name, options, std::array{value().value}), 4);
  }

  /// The rows of a matrix as the weight of a layer, (o, i); of (i, o) if `transpose`.
  [[nodiscard]] std::vector<float> matrix(const onnx_constant& w, bool transpose) {
    if (w.dims.size() != 2 || w.dims[transpose ? 0 : 1] != shape().size()) {
      refuse({"a weight of 2 axes for ", shape().size(), " features"},
             {w.dims.empty() ? index_t{0} : w.dims[transpose ? 0 : w.dims.size() - 1]});
    }
    if (!transpose) {
      return w.numbers;
    }
    std::vector<float> result(w.numbers.size());
    const auto rows = static_cast<std::size_t>(w.dims[0]);
    const auto columns = static_cast<std::size_t>(w.dims[1]);
    for (std::size_t i = 0; i < rows && result.size() == rows * columns; ++i) {
      for (std::size_t o = 0; o < columns; ++o) {
        result[o * rows + i] = w.numbers[i * columns + o];
      }
    }
    return result;
  }

  void gemm() {
    require_rank(2);
    require_integer("transA", 0);
    if (real("alpha", 1) != 1 || (has_input(2) && real("beta", 1) != 1)) {
      refuse("alpha and beta of 1", "other numbers");
    }
    dense(integer("transB", 0) == 0, has_input(2));
  }
  void matrix_product() {
    require_rank(2);
    dense(true, false);
  }
  void dense(bool transpose, bool bias) {
    const onnx_constant& w = needed(1, "weight");
    std::vector<float> rows = matrix(w, transpose);
    const index_t outputs = w.dims[transpose ? 1 : 0];
    const std::string name = layer_name(1);
    keep(name, "weight", std::move(rows), static_cast<std::size_t>(outputs * shape().size()));
    if (bias) {
      keep(name, "bias", needed(2, "bias").numbers, static_cast<std::size_t>(outputs));
    }
    give(add(name, nn::dense{.out_features = outputs, .bias = bias}, std::array{value().value}), 2);
  }

  void batch_normalization() {
    require_integer("training_mode", 0);
    const std::string name = layer_name(1);
    const nn::value from = plain(value().value);
    keep_channels(name, "weight", 1);
    keep_channels(name, "bias", 2);
    keep_channels(name, "running_mean", 3);
    keep_channels(name, "running_variance", 4);
    give(add(name, nn::batch_norm{.epsilon = real("epsilon", 1e-5)}, std::array{from}), value().rank);
  }

  void layer_normalization() {
    const int rank = kept().rank;
    const index_t first = axis_of(integer("axis", -1), rank);
    const onnx_constant& scale = needed(1, "scale");
    const bool image = first == 1;
    if (!image && !(rank == 4 && first == 3)) {
      refuse("the axes from 1 on, or the last of 4", {"from axis ", first, " of ", rank});
    }
    const std::string name = layer_name(1);
    imported turned = image ? value() : permuted(kept(), {axis::w, axis::c, axis::h});
    const nn::value from = plain(laid_out(turned));
    const auto size = static_cast<std::size_t>(image ? net_.shape(from).size() : net_.shape(from).channels);
    keep(name, "weight", scale.numbers, size);
    if (has_input(2)) {
      keep(name, "bias", needed(2, "bias").numbers, size);
    }
    const nn::value made = add(name,
                               nn::layer_norm{.axes = image ? nn::norm_axes::image : nn::norm_axes::channels,
                                              .epsilon = real("epsilon", 1e-5),
                                              .shift = has_input(2)},
                               std::array{from});
    give(image ? imported{made, rank} : permuted({made, rank}, {axis::h, axis::w, axis::c}));
  }
};

}  // namespace gradus::io::detail
