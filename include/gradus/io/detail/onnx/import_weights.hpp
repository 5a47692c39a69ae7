// SPDX-License-Identifier: BSL-1.0
//
// ONNX operators with weights, and pooling.
#pragma once

#include <algorithm>    // std::max, std::min
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
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/detail/onnx/import_choices.hpp"
#include "gradus/io/detail/onnx/imported_layers.hpp"
#include "gradus/io/detail/onnx/model_reader.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::io::detail {

/// Makes layers of convolutions, dense layers, normalizations and pooling.
class onnx_weight_operators : public onnx_choice_operators {
 public:
  using onnx_choice_operators::onnx_choice_operators;

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
    } else if (type == "MaxPool") {
      require_image();
      ignore({"storage_order"});  // of the places of the maxima, which are refused
      nn::max_pool2d pool{.kernel = pair("kernel_shape", {0, 1}), .stride = pair("strides", {1, 1})};
      pool.padding = pooling_padding(pool.kernel, pool.stride, shape());
      give_layer(pool);
    } else if (type == "AveragePool") {
      require_image();
      nn::average_pool2d pool{.kernel = pair("kernel_shape", {0, 1}), .stride = pair("strides", {1, 1})};
      pool.count_padding = integer("count_include_pad", 0) != 0;
      nn::value from = value().value;
      pool.padding = average_padding(pool, from);
      give(add(pool, from), value().rank);
    } else if (type == "GlobalAveragePool" || type == "GlobalMaxPool") {
      require_image();
      give(reduced(value(), {false, true, true}, type == "GlobalMaxPool"), value().rank);
    } else if (const auto rule = reductions().find(type); rule != reductions().end()) {
      reduction(rule->second);
    } else {
      return false;
    }
    return true;
  }

 private:
  /// The padding of a convolution or pooling.
  [[nodiscard]] nn::padding padding_of(nn::size2d taps, nn::size2d step, nn::size2d apart, bool transposed = false) {
    require_window(taps, step, apart);
    const std::string rule = text("auto_pad", "NOTSET");
    if (rule != "NOTSET") {
      ignore({"pads"});
    }
    if (rule == "VALID") {
      return nn::padding::valid();
    }
    if (rule == "SAME_UPPER" && !transposed) {
      return nn::padding::same();
    }
    if (rule == "SAME_LOWER" && !transposed) {  // more of an odd padding before the image
      const nn::size2d rows = padding_of_axis(shape().height, taps.height, step.height, apart.height);
      const nn::size2d columns = padding_of_axis(shape().width, taps.width, step.width, apart.width);
      return nn::padding::explicit_padding(rows.height, rows.width, columns.height, columns.width);
    }
    if (rule != "NOTSET") {
      refuse(transposed ? "auto_pad NOTSET or VALID" : "auto_pad NOTSET, VALID, SAME_UPPER or SAME_LOWER", rule);
    }
    const std::vector<index_t> none(value().rank == 3 ? 2 : 4, 0);
    const std::vector<index_t> pads = attribute_integers("pads", none);
    for (const index_t each : pads) {
      if (each < 0 || each > most_pixels) {
        refuse({"pads from 0 to ", most_pixels}, listed(pads));
      }
    }
    if (value().rank == 3) {
      return nn::padding::explicit_padding(pads[0], pads[1], 0, 0);
    }
    return nn::padding::explicit_padding(pads[0], pads[2], pads[1], pads[3]);
  }
  /// Products of two, and of one with an extent, stay far from the largest integer.
  void require_window(nn::size2d taps, nn::size2d step, nn::size2d apart) const {
    for (const index_t each : {taps.height, taps.width, step.height, step.width, apart.height, apart.width}) {
      if (each < 1 || each > most_pixels) {
        refuse({"extents of kernel, strides and dilations from 1 to ", most_pixels}, {each});
      }
    }
  }
  /// What SAME_LOWER puts before and after an axis.
  [[nodiscard]] static nn::size2d padding_of_axis(index_t in, index_t taps, index_t step, index_t apart) {
    const index_t outputs = (in + step - 1) / step;
    const index_t all = std::max<index_t>(0, (outputs - 1) * step + (taps - 1) * apart + 1 - in);
    return {all - all / 2, all / 2};
  }

  /// With ceil_mode the last window may begin inside and end outside: as if there were more padding.
  [[nodiscard]] nn::padding pooling_padding(nn::size2d kernel, nn::size2d stride, const nn::value_shape& in) {
    const nn::size2d apart = pair("dilations", {1, 1});
    if (apart != nn::size2d{1, 1}) {
      refuse("dilations of 1", {apart.height, " and ", apart.width});
    }
    const nn::padding pad = padding_of(kernel, stride, apart);
    if (integer("ceil_mode", 0) == 0 || text("auto_pad", "NOTSET") != "NOTSET") {
      return pad;
    }
    const auto more = [](index_t extent, index_t taps, index_t step, index_t before, index_t after) {
      const index_t room = extent + before + after - taps;
      if (room < 0 || room % step == 0) {
        return after;
      }
      const index_t outputs = room / step + 2;
      // A window that would begin in the padding behind the image is left out.
      return (outputs - 1) * step >= extent + before ? after : after + step - room % step;
    };
    return nn::padding::explicit_padding(
        pad.top(), more(in.height, kernel.height, stride.height, pad.top(), pad.bottom()), pad.left(),
        more(in.width, kernel.width, stride.width, pad.left(), pad.right()));
  }
  /// As pooling_padding. The last window of a mean that counts the padding ends with it: an image gets its padding as
  /// pixels first.
  [[nodiscard]] nn::padding average_padding(nn::average_pool2d& pool, nn::value& from) {
    if (!pool.count_padding || integer("ceil_mode", 0) == 0 || text("auto_pad", "NOTSET") != "NOTSET") {
      return pooling_padding(pool.kernel, pool.stride, shape());
    }
    pool.count_padding = false;
    const nn::padding pad = padding_of(pool.kernel, pool.stride, {1, 1});
    if (pad.top() == 0 && pad.bottom() == 0 && pad.left() == 0 && pad.right() == 0) {
      return pooling_padding(pool.kernel, pool.stride, shape());
    }
    const nn::value_shape in = shape();
    from = add(nn::pad2d{.padding = pad}, from);
    const nn::padding whole = pooling_padding(pool.kernel, pool.stride, in);
    return nn::padding::explicit_padding(0, whole.bottom() - pad.bottom(), 0, whole.right() - pad.right());
  }

  /// The mean or maximum over channels, rows or columns, as extents of 1.
  [[nodiscard]] nn::value reduced(const imported& from, const std::array<bool, 3>& over, bool maximum) {
    nn::value made = plain(from.value);
    if (over[0]) {
      const nn::permute exchange{{axis::h, axis::c, axis::w}};
      made = pooled(add(exchange, made), true, false, maximum);
      made = add(exchange, made);
    }
    return pooled(made, over[1], over[2], maximum);
  }
  /// The mean or maximum over rows or columns.
  [[nodiscard]] nn::value pooled(nn::value from, bool rows, bool columns, bool maximum) {
    const nn::value_shape in = net_.shape(from);
    if (!maximum) {
      if (rows && columns) {
        return add(nn::global_average_pool2d{}, from);
      }
      const nn::size2d all{rows ? in.height : index_t{1}, columns ? in.width : index_t{1}};
      return all == nn::size2d{1, 1} ? from : add(nn::average_pool2d{.kernel = all, .stride = all}, from);
    }
    // A kernel of a maximum has at most 256 elements.
    for (const bool vertical : {true, false}) {
      while (vertical ? rows && net_.shape(from).height > 1 : columns && net_.shape(from).width > 1) {
        const index_t extent = vertical ? net_.shape(from).height : net_.shape(from).width;
        const index_t taps = std::min<index_t>(extent, 256);
        const index_t after = (taps - extent % taps) % taps;
        const nn::size2d window = vertical ? nn::size2d{taps, 1} : nn::size2d{1, taps};
        from = add(nn::max_pool2d{.kernel = window,
                                  .stride = window,
                                  .padding = nn::padding::explicit_padding(0, vertical ? after : index_t{0}, 0,
                                                                           vertical ? index_t{0} : after)},
                   from);
      }
    }
    return from;
  }
  /// A reduction of ONNX by those of layers: a function, the mean or maximum, and another function.
  struct reduction_rule {
    std::optional<onnx_function> before = {};
    bool maximum = false;
    bool sum = false;
    std::optional<onnx_function> after = {};
  };
  [[nodiscard]] static const std::map<std::string_view, reduction_rule>& reductions() {
    using f = onnx_function;
    static const std::map<std::string_view, reduction_rule> rules{
        {"ReduceMean", {}},
        {"ReduceMax", {{}, true}},
        {"ReduceMin", {f::negative, true, false, f::negative}},
        {"ReduceSum", {{}, false, true}},
        {"ReduceL1", {f::absolute, false, true}},
        {"ReduceL2", {f::power_number, false, true, f::sqrt}},
        {"ReduceSumSquare", {f::power_number, false, true}}};
    return rules;
  }
  void reduction(const reduction_rule& rule) {
    ignore({"noop_with_empty_axes"});  // no axes are refused
    const imported from = value();
    std::array<bool, 3> over{};
    const std::vector<index_t> axes = integers(1, "axes");
    for (const index_t each : axes) {
      const index_t which = axis_of(each, from.rank);
      if (which == 0) {
        refuse("axes of the images", "the batch");
      }
      over[static_cast<std::size_t>(which) - 1] = true;
    }
    if (axes.empty()) {
      refuse("axes of the images", "all axes");
    }
    const std::vector<index_t> before = extents_of(from);
    imported operand = from;
    if (rule.before) {
      operand.value = add(onnx_function_layer{*rule.before, 2}, operand.value);
    }
    nn::value made = reduced(operand, over, rule.maximum);
    if (rule.sum) {
      index_t count = 1;
      for (std::size_t k = 0; k < before.size(); ++k) {
        count *= over[k] ? before[k] : index_t{1};
      }
      made = add(onnx_function_layer{onnx_function::times_number, static_cast<double>(count)}, made);
    }
    if (rule.after) {
      made = add(onnx_function_layer{*rule.after}, made);
    }
    if (integer("keepdims", 1) != 0) {
      give(made, from.rank);
      return;
    }
    std::vector<index_t> left;
    for (std::size_t k = 0; k < before.size(); ++k) {
      if (!over[k]) {
        left.push_back(before[k]);
      }
    }
    if (left.empty()) {
      refuse("a result with axes behind the batch", "none");
    }
    const nn::value_shape to{left[0], left.size() > 1 ? left[1] : index_t{1}, 1};
    give(net_.shape(made) == to ? made : add(nn::reshape{to.channels, to.height, to.width}, made),
         static_cast<int>(left.size()) + 1);
  }

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
