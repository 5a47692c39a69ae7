// SPDX-License-Identifier: BSL-1.0
//
// ONNX operators with weights.
#pragma once

#include <array>    // std::array
#include <cstddef>  // std::size_t
#include <string>   // std::string
#include <utility>  // std::move
#include <vector>   // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/onnx/detail/import/imported_layers.hpp"
#include "gradus/onnx/detail/import/pooling.hpp"
#include "gradus/onnx/detail/model/model_reader.hpp"

namespace gradus::io::detail {

/// Makes layers of convolutions, dense layers and normalizations.
class onnx_weight_operators : public onnx_pooling_operators {
 public:
  using onnx_pooling_operators::onnx_pooling_operators;

 protected:
  /// Convolutions, dense layers and normalizations. False if the operator is none.
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
      require_integer("stash_type", 1);
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
    } else {
      return false;
    }
    return true;
  }

 private:
  /// The extents of a kernel (o, i, r, s).
  [[nodiscard]] const onnx_constant& kernel() {
    require_image();
    const onnx_constant& w = needed(1, "weight");
    const auto rank = static_cast<std::size_t>(value().rank);
    if (w.dims.size() != rank) {
      refuse({"a weight of ", rank, " axes"}, {w.dims.size(), " axes"});
    }
    const std::vector<index_t> extents(w.dims.begin() + 2, w.dims.end());
    if (attribute_integers("kernel_shape", extents) != extents) {
      refuse({"the kernel_shape of the weight, ", listed(extents)}, listed(attribute_integers("kernel_shape", {})));
    }
    return w;
  }

  void convolution() {
    const onnx_constant& w = kernel();
    const std::string name = layer_name(1);
    nn::conv2d options{.out_channels = w.dims[0],
                       .kernel = {w.dims[2], w.dims.size() > 3 ? w.dims[3] : index_t{1}},
                       .stride = pair("strides", {1, 1}),
                       .dilation = pair("dilations", {1, 1}),
                       .groups = integer("group", 1),
                       .bias = has_input(2)};
    options.padding = padding_of(options.kernel, options.stride, options.dilation);
    if (options.groups < 1 || shape().channels % options.groups != 0 ||
        w.dims[1] != shape().channels / options.groups) {
      refuse({"a weight for ", shape().channels, " input channels"},
             {w.dims[1], " in each of ", options.groups, " groups"});
    }
    keep(name, "weight", w.numbers, w.size());
    if (options.bias) {
      keep(name, "bias", needed(2, "bias").numbers, static_cast<std::size_t>(w.dims[0]));
    }
    give(add(name, options, std::array{value().value}), value().rank);
  }

  void transposed_convolution() {
    const onnx_constant& w = kernel();
    const std::string name = layer_name(1);
    if (attribute("output_shape") != nullptr) {
      refuse("pads and output_padding", "output_shape");
    }
    const index_t groups = integer("group", 1);
    if (groups < 1 || w.dims[0] != shape().channels || groups > shape().channels) {
      refuse({"a weight for ", shape().channels, " input channels in at most as many groups"},
             {listed(w.dims), " in ", groups, " groups"});
    }
    const nn::conv_transpose2d options{.out_channels = gradus::detail::checked_product(w.dims[1], groups),
                                       .kernel = {w.dims[2], w.dims.size() > 3 ? w.dims[3] : index_t{1}},
                                       .stride = pair("strides", {1, 1}),
                                       .padding = padding_of({1, 1}, {1, 1}, {1, 1}, true),
                                       .output_padding = pair("output_padding", {0, 0}),
                                       .dilation = pair("dilations", {1, 1}),
                                       .groups = groups,
                                       .bias = has_input(2)};
    keep(name, "weight", w.numbers, w.size());
    if (options.bias) {
      keep(name, "bias", needed(2, "bias").numbers, static_cast<std::size_t>(options.out_channels));
    }
    give(add(name, options, std::array{value().value}), value().rank);
  }

  /// The rows of a matrix as the weight of a layer, (o, i); of (i, o) if `transpose`.
  [[nodiscard]] std::vector<float> matrix(const onnx_constant& w, bool transpose) {
    if (w.dims.size() != 2 || w.dims[transpose ? 0 : 1] != shape().size()) {
      refuse({"a weight of 2 axes for ", shape().size(), " features"}, listed(w.dims));
    }
    return transpose ? transposed(w) : w.numbers;
  }
  /// The numbers of a constant of 2 axes with its axes exchanged.
  [[nodiscard]] static std::vector<float> transposed(const onnx_constant& w) {
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
    dense(integer("transB", 0) == 0, has_input(2), real("alpha", 1), real("beta", 1));
  }
  void matrix_product() {
    if (kept().rank == 2) {
      dense(true, false, 1, 1);
      return;
    }
    // The last axis of images times a matrix: a convolution of one tap.
    const onnx_constant& w = needed(1, "weight");
    const int rank = kept().rank;
    const turned_axes turned = with_channels_at(0, rank - 1);
    const nn::value from = plain(turned.value);
    if (w.dims.size() != 2 || w.dims[0] != net_.shape(from).channels) {
      refuse({"a weight of 2 axes for ", net_.shape(from).channels, " features"}, listed(w.dims));
    }
    const std::string name = layer_name(1);
    keep(name, "weight", transposed(w), w.size());
    const nn::value made =
        add(name, nn::conv2d{.out_channels = w.dims[1], .kernel = {1, 1}, .bias = false}, std::array{from});
    give(permuted({made, rank}, turned.back));
  }
  void dense(bool transpose, bool bias, double alpha, double beta) {
    const onnx_constant& w = needed(1, "weight");
    std::vector<float> rows = matrix(w, transpose);
    const index_t outputs = w.dims[transpose ? 1 : 0];
    for (float& each : rows) {
      each = static_cast<float>(static_cast<double>(each) * alpha);
    }
    const std::string name = layer_name(1);
    keep(name, "weight", std::move(rows), static_cast<std::size_t>(outputs * shape().size()));
    if (bias) {
      const onnx_constant& numbers = needed(2, "bias");
      std::vector<float> values = numbers.numbers;
      if (values.size() == 1) {
        values.resize(w.numbers.empty() ? 1 : static_cast<std::size_t>(outputs), values[0]);
      } else if (numbers.dims.empty() || numbers.dims.back() != outputs) {
        refuse({"a bias, or one for each of ", outputs, " outputs"}, {values.size(), " numbers"});
      }
      for (float& each : values) {
        each = static_cast<float>(static_cast<double>(each) * beta);
      }
      keep(name, "bias", std::move(values), static_cast<std::size_t>(outputs));
    }
    give(add(name, nn::dense{.out_features = outputs, .bias = bias}, std::array{value().value}), 2);
  }

  void batch_normalization() {
    require_integer("training_mode", 0);
    require_integer("spatial", 1);
    ignore({"momentum"});  // of training
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
    require_integer("stash_type", 1);
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
