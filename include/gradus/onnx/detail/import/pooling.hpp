// SPDX-License-Identifier: BSL-1.0
//
// ONNX operators of pooling and reductions.
#pragma once

#include <algorithm>    // std::max, std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <map>          // std::map
#include <optional>     // std::optional
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/onnx/detail/import/choices.hpp"
#include "gradus/onnx/detail/import/imported_layers.hpp"
#include "gradus/onnx/detail/model/model_reader.hpp"

namespace gradus::io::detail {

/// Makes layers of means and maxima, under a kernel or over whole axes.
class onnx_pooling_operators : public onnx_choice_operators {
 public:
  using onnx_choice_operators::onnx_choice_operators;

 protected:
  /// Pooling and reductions. False if the operator is none.
  [[nodiscard]] bool translate_pooling() {
    const std::string& type = op_->op_type;
    if (type == "MaxPool") {
      require_image();
      ignore({"storage_order"});  // of the positions of the maxima, which are refused
      nn::max_pool2d pool{.kernel = pair("kernel_shape", {0, 1}), .stride = pair("strides", {1, 1})};
      pool.dilation = pair("dilations", {1, 1});
      pool.padding = padding_of(pool.kernel, pool.stride, pool.dilation);
      pool.ceil_mode = rounds_up();
      give_layer(pool);
    } else if (type == "AveragePool") {
      require_image();
      require_no_dilation();
      nn::average_pool2d pool{.kernel = pair("kernel_shape", {0, 1}), .stride = pair("strides", {1, 1})};
      pool.padding = padding_of(pool.kernel, pool.stride, {1, 1});
      pool.count_padding = integer("count_include_pad", 0) != 0;
      pool.ceil_mode = rounds_up();
      give_layer(pool);
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

 private:
  /// ceil_mode, which says nothing about the windows of auto_pad.
  [[nodiscard]] bool rounds_up() { return integer("ceil_mode", 0) != 0 && text("auto_pad", "NOTSET") == "NOTSET"; }

  void require_no_dilation() {
    if (const nn::size2d apart = pair("dilations", {1, 1}); apart != nn::size2d{1, 1}) {
      refuse("dilations of 1", {apart.height, " and ", apart.width});
    }
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
};

}  // namespace gradus::io::detail
