// SPDX-License-Identifier: BSL-1.0
//
// ONNX operators that move elements.
#pragma once

#include <algorithm>    // std::clamp, std::max, std::min, std::sort
#include <array>        // std::array
#include <cmath>        // std::ceil, std::floor
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
#include "gradus/io/detail/onnx/import_weights.hpp"
#include "gradus/io/detail/onnx/imported_layers.hpp"
#include "gradus/io/detail/onnx/model_reader.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::io::detail {

/// Makes layers of operators that only move elements, pad and resize.
class onnx_shape_operators : public onnx_weight_operators {
 public:
  using onnx_weight_operators::onnx_weight_operators;

 protected:
  /// Operators that move elements. False if the operator is none.
  [[nodiscard]] bool translate_shapes() {
    const std::string& type = op_->op_type;
    if (type == "Flatten") {
      require_integer("axis", 1);
      give(value().rank == 2 ? value().value : add(nn::flatten{}, value().value), 2);
    } else if (type == "Reshape") {
      reshape();
    } else if (type == "Transpose") {
      transpose();
    } else if (type == "Slice") {
      slice();
    } else if (type == "Pad") {
      pad();
    } else if (type == "Resize" || type == "Upsample") {
      resize();
    } else if (type == "DepthToSpace") {
      depth_to_space();
    } else if (type == "SpaceToDepth") {
      require_rank(4);
      const index_t factor = integer("blocksize", 0);
      const nn::value made = add(nn::pixel_unshuffle{.factor = factor}, value().value);
      give(channels_exchanged(made, net_.shape(made).channels / (factor * factor)), 4);
    } else if (type == "Split") {
      split();
    } else if (type == "Expand") {
      expand();
    } else if (type == "Concat") {
      concatenation();
    } else if (type == "Unsqueeze" || type == "Squeeze" || type == "Cast" || type == "Identity" || type == "Dropout") {
      plumbing();
    } else {
      return false;
    }
    return true;
  }

 private:
  /// Keeps a value under the name of the output.
  void plumbing() {
    const std::string& type = op_->op_type;
    const imported& from = value();
    if (type == "Cast") {
      ignore({"saturate"});
      const index_t to = integer("to", 1);
      if (to == 9) {  // bool: 1 where the number is not 0
        give(add(onnx_function_layer{onnx_function::choose_numbers, 1, 0}, from.value), from.rank);
        return;
      }
      if (to != 1 && to != 10 && to != 11 && to != 16) {
        refuse("numbers, or conditions", {"element type ", to});
      }
    }
    if (type == "Dropout") {
      ignore({"ratio", "seed"});
      if (has_input(2) && scalar(needed(2, "training_mode")).value_or(1) != 0) {
        refuse("training_mode = 0", {1});
      }
    }
    if (type == "Squeeze" || type == "Unsqueeze") {
      reshape_axes(type == "Squeeze");
      return;
    }
    give(from.value, from.rank);
  }
  /// Squeeze of the rows and columns of one pixel, and the reverse.
  void reshape_axes(bool squeeze) {
    std::vector<index_t> axes = integers(1, "axes");
    for (index_t& each : axes) {
      each = axis_of(each, squeeze ? value().rank : value().rank + static_cast<int>(axes.size()));
    }
    std::sort(axes.begin(), axes.end());
    const std::vector<index_t> before = extents_of(value());
    if (squeeze && axes.empty()) {
      refuse("axes", "none");
    }
    for (std::size_t k = 0; k < axes.size(); ++k) {
      if (axes[k] == 0 || (k > 0 && axes[k] == axes[k - 1]) ||
          (squeeze && before[static_cast<std::size_t>(axes[k]) - 1] != 1)) {
        refuse("different axes of extent 1 behind the batch", {axes[k]});
      }
    }
    std::vector<index_t> after = before;
    if (squeeze) {
      for (auto each = axes.rbegin(); each != axes.rend(); ++each) {
        after.erase(after.begin() + *each - 1);
      }
    } else {
      for (const index_t each : axes) {
        after.insert(after.begin() + each - 1, 1);
      }
    }
    if (after.empty() || after.size() > 3) {
      refuse("a result of 2 to 4 axes", {after.size() + 1});
    }
    const nn::value_shape to{after[0], after.size() > 1 ? after[1] : index_t{1},
                             after.size() > 2 ? after[2] : index_t{1}};
    const nn::value from = plain(value().value);
    give(net_.shape(from) == to ? from : add(nn::reshape{to.channels, to.height, to.width}, from),
         static_cast<int>(after.size()) + 1);
  }

  /// The channels (a, b) in the order (b, a).
  [[nodiscard]] nn::value channels_exchanged(nn::value from, index_t a) {
    const nn::value_shape in = net_.shape(from);
    const nn::value parts =
        add(nn::reshape{.channels = a, .height = in.channels / a, .width = in.height * in.width}, from);
    return add(nn::reshape{in.channels, in.height, in.width}, add(nn::permute{{axis::h, axis::c, axis::w}}, parts));
  }
  void depth_to_space() {
    require_rank(4);
    const index_t factor = integer("blocksize", 0);
    const std::string mode = text("mode", "DCR");
    nn::value from = value().value;
    if (factor < 1 || factor > most_factor || shape().channels % (factor * factor) != 0) {
      refuse("channels that the square of blocksize divides", {shape().channels, " channels, blocksize ", factor});
    }
    if (mode == "DCR") {
      from = channels_exchanged(from, factor * factor);
    } else if (mode != "CRD") {
      refuse("mode CRD or DCR", mode);
    }
    give(add(nn::pixel_shuffle{.factor = factor}, from), 4);
  }

  void split() {
    const imported from = value();
    const index_t which = axis_of(integer("axis", 0), from.rank);
    if (which == 0) {
      refuse("an axis of the images", "the batch");
    }
    const index_t extent = extents_of(from)[static_cast<std::size_t>(which) - 1];
    const auto count = static_cast<index_t>(op_->outputs.size());
    std::vector<index_t> sizes = has_input(1) ? integers(1, "split") : attribute_integers("split", {});
    if (integer("num_outputs", count) != count) {
      refuse({integer("num_outputs", count), " outputs"}, {count});
    }
    if (sizes.empty()) {  // the last part may be smaller
      const index_t part = count < 1 ? extent : (extent + count - 1) / count;
      for (index_t begin = 0; begin < extent && part > 0; begin += part) {
        sizes.push_back(std::min(part, extent - begin));
      }
    }
    if (static_cast<index_t>(sizes.size()) != count) {
      refuse({count, " sizes"}, {sizes.size()});
    }
    const nn::value all = plain(from.value);
    index_t begin = 0;
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      if (sizes[k] < 1 || sizes[k] > extent - begin) {
        refuse({"sizes of ", extent, " elements"}, {sizes[k]});
      }
      nn::slice options;
      (which == 1 ? options.channels : which == 2 ? options.rows : options.columns) = {begin, begin + sizes[k]};
      begin += sizes[k];
      if (used_.contains(op_->outputs[k])) {
        values_.insert_or_assign(op_->outputs[k], imported{add(options, all), from.rank});
      }
    }
    if (begin != extent) {
      refuse({"sizes of ", extent, " elements"}, {begin});
    }
  }

  void expand() {
    const imported from = value();
    const std::vector<index_t> to = needed(1, "shape").integers;
    const auto rank = static_cast<std::size_t>(from.rank);
    if (to.size() > rank) {
      refuse({"a shape of at most ", rank, " axes"}, {to.size()});
    }
    std::vector<index_t> extents = extents_of(from);
    for (std::size_t k = 0; k < to.size(); ++k) {
      const std::size_t at = rank - to.size() + k;
      if (at == 0) {
        if (to[k] != 1 && to[k] != any_batch && to[k] != model_.inputs.front().dims[0]) {
          refuse("the batch as it is", {to[k]});
        }
        continue;
      }
      if (to[k] < 1 || to[k] > most_pixels) {
        refuse({"extents from 1 to ", most_pixels}, {to[k]});
      }
      extents[at - 1] = extents[at - 1] == 1 ? to[k] : extents[at - 1];
      if (to[k] != 1 && to[k] != extents[at - 1]) {
        refuse({"an extent of 1 or ", extents[at - 1]}, {to[k]});
      }
    }
    give(broadcast(from.value, {extents[0], extents.size() > 1 ? extents[1] : index_t{1},
                                extents.size() > 2 ? extents[2] : index_t{1}}),
         from.rank);
  }

  void concatenation() {
    const int rank = kept().rank;
    const index_t which = axis_of(integer("axis", 1), rank);
    if (which == 0) {
      refuse("an axis of the images", "the batch");
    }
    // Channels are what a layer puts together; exchanging two axes twice leaves them as they are.
    const std::array<axis, 3> exchanged = which == 1   ? imported{}.axes
                                          : which == 2 ? std::array{axis::h, axis::c, axis::w}
                                                       : std::array{axis::w, axis::h, axis::c};
    std::vector<nn::value> inputs;
    for (std::size_t k = 0; k < op_->inputs.size(); ++k) {
      imported part = which == 1 ? value(k) : permuted(kept(k), exchanged);
      inputs.push_back(plain(laid_out(part)));
    }
    const nn::value made = inputs.size() == 1 ? inputs[0] : add(layer_name(), nn::concat{}, inputs);
    give(permuted({made, rank}, exchanged));
  }

  void reshape() {
    imported* const from = &kept();
    if (from->extents.empty()) {
      (void)laid_out(*from);
    }
    std::vector<index_t> to = needed(1, "shape").integers;
    const nn::value_shape in = net_.shape(from->value);
    if (to.size() < 2) {
      refuse("a shape with the batch and at least one more axis", {to.size(), " axes"});
    }
    // Extents without the batch; 0 keeps that of the input.
    std::vector<index_t> old{in.size()};
    if (!from->extents.empty()) {
      old = from->extents;
    } else if (from->rank > 2) {
      old = {in.channels, in.height};
      if (from->rank == 4) {
        old.push_back(in.width);
      }
    }
    const bool keeps = integer("allowzero", 0) == 0;
    const bool fixed_batch = to[0] > 0;
    if ((to[0] < -1 && to[0] != any_batch) || (to[0] == 0 && !keeps)) {
      refuse("the batch as the first axis", {to[0]});
    }
    if (fixed_batch && (model_.inputs.front().dims.empty() || model_.inputs.front().dims[0] != to[0])) {
      refuse("the batch as the first axis", {to[0]});
    }
    std::vector<index_t> extents(to.begin() + 1, to.end());
    index_t known = 1;
    index_t* open = nullptr;
    for (std::size_t k = 0; k < extents.size(); ++k) {
      if (extents[k] == 0 && keeps && k < old.size()) {
        extents[k] = old[k];
      }
      if (extents[k] == -1 && open == nullptr && to[0] != -1) {
        open = &extents[k];
        continue;
      }
      if (extents[k] < 1 || extents[k] > in.size() || known > in.size()) {
        refuse({"extents of ", in.size(), " elements"}, {extents[k]});
      }
      known *= extents[k];
    }
    if (open != nullptr && in.size() % known == 0) {
      *open = in.size() / known;
      known *= *open;
    }
    if (known != in.size()) {
      refuse({in.size(), " elements behind the batch"}, {known});
    }
    if (extents.size() == 1) {
      give(from->rank == 2 || (in.height == 1 && in.width == 1 && !in.flattened) ? from->value
                                                                                 : add(nn::flatten{}, from->value),
           2);
      return;
    }
    if (extents.size() > 3) {
      give({from->value, static_cast<int>(to.size()), imported{}.axes, extents});
      return;
    }
    if (!from->extents.empty()) {  // the end of a shuffle
      const std::vector<index_t>& parts = from->extents;
      if (!from->shuffled || parts.size() != 5 || extents.size() != 3 || parts[2] != parts[4] ||
          extents != std::vector<index_t>{parts[0] * parts[2] * parts[4], parts[1], parts[3]}) {
        refuse("the end of a shuffle of pixels", "another shape");
      }
      give(add(nn::pixel_unshuffle{.factor = parts[2]}, from->value), 4);
      return;
    }
    const nn::reshape options{
        .channels = extents[0], .height = extents[1], .width = extents.size() == 3 ? extents[2] : index_t{1}};
    const bool same = !in.flattened && in == nn::value_shape{options.channels, options.height, options.width};
    give(same ? from->value : add(options, from->value), static_cast<int>(to.size()));
  }

  void transpose() {
    const std::vector<index_t> order = attribute_integers("perm", {});
    const imported* const from = &kept();
    if (!from->extents.empty()) {  // (C, H, r, W, r) to (C, r, r, H, W)
      if (from->shuffled || order != std::vector<index_t>{0, 1, 3, 5, 2, 4}) {
        refuse("a shuffle of pixels", "another permutation of more than 4 axes");
      }
      give({from->value, 6, imported{}.axes, from->extents, true});
      return;
    }
    const int rank = from->rank;
    std::array<axis, 3> axes{axis::c, axis::h, axis::w};
    unsigned seen = 0;
    for (std::size_t k = 0; k < order.size() && order.size() == static_cast<std::size_t>(rank); ++k) {
      if (order[k] < 0 || order[k] >= rank) {
        break;
      }
      seen |= 1U << static_cast<unsigned>(order[k]);
      if (k > 0) {
        axes[k - 1] = static_cast<axis>(order[k]);
      }
    }
    if (seen != (1U << static_cast<unsigned>(rank)) - 1 || order[0] != 0) {
      refuse("a permutation that leaves the batch in its place", "another");
    }
    if (rank == 2) {
      give(*from);
      return;
    }
    give(permuted(*from, axes));
  }

  void slice() {
    const std::vector<index_t> begin = integers(1, "starts");
    const std::vector<index_t> end = integers(2, "ends");
    std::vector<index_t> axes = has_input(3) ? integers(3, "axes") : attribute_integers("axes", {});
    if (axes.empty()) {
      for (std::size_t k = 0; k < begin.size(); ++k) {
        axes.push_back(static_cast<index_t>(k));
      }
    }
    const std::vector<index_t> steps = has_input(4) ? integers(4, "steps") : std::vector<index_t>(begin.size(), 1);
    if (begin.size() != end.size() || axes.size() != begin.size() || steps.size() != begin.size()) {
      refuse("as many starts as ends and axes", {begin.size(), ", ", end.size(), " and ", axes.size()});
    }
    const nn::value_shape& in = shape();
    nn::slice options;
    std::array<index_t, 3> every{1, 1, 1};
    for (std::size_t k = 0; k < axes.size(); ++k) {
      const index_t which = axis_of(axes[k], value().rank);
      const index_t extent = which == 1   ? (value().rank == 2 ? in.size() : in.channels)
                             : which == 2 ? in.height
                                          : in.width;
      const auto place = [&](index_t i) { return std::clamp<index_t>(i < 0 ? i + extent : i, 0, extent); };
      const nn::index_range range{place(begin[k]), place(end[k])};
      if (which == 0 || range.begin >= range.end) {
        refuse("a part of each image", which == 0 ? "a part of the batch" : "an empty one");
      }
      if (steps[k] < 1) {
        refuse("steps of at least 1", {steps[k]});
      }
      (which == 1 ? options.channels : which == 2 ? options.rows : options.columns) = range;
      every[static_cast<std::size_t>(which) - 1] = std::min(steps[k], range.end - range.begin);
    }
    const int rank = value().rank;
    nn::value made = add(options, plain(value().value));
    // Every second pixel is the maximum under a kernel of one pixel.
    if (every[0] > 1) {
      const nn::permute exchange{{axis::h, axis::c, axis::w}};
      made = add(exchange, made);
      made = add(nn::max_pool2d{.kernel = {1, 1}, .stride = {every[0], 1}}, made);
      made = add(exchange, made);
    }
    if (every[1] > 1 || every[2] > 1) {
      made = add(nn::max_pool2d{.kernel = {1, 1}, .stride = {every[1], every[2]}}, made);
    }
    give(made, rank);
  }

  void pad() {
    require_image();
    const int rank = value().rank;
    const std::vector<index_t> given = integers(1, "pads");
    std::vector<index_t> which = has_input(3) ? integers(3, "axes") : std::vector<index_t>{};
    if (!has_input(3)) {
      for (int k = 0; k < rank; ++k) {
        which.push_back(k);
      }
    }
    if (given.size() != 2 * which.size()) {
      refuse({2 * which.size(), " pads"}, {given.size()});
    }
    std::array<index_t, 4> before{};
    std::array<index_t, 4> after{};
    bool crops = false;
    for (std::size_t k = 0; k < which.size(); ++k) {
      const auto at = static_cast<std::size_t>(axis_of(which[k], rank));
      before[at] = given[k];
      after[at] = given[k + which.size()];
      crops = crops || before[at] < 0 || after[at] < 0;
      if (std::min(before[at], after[at]) < -most_pixels || std::max(before[at], after[at]) > most_pixels) {
        refuse({"pads of at most ", most_pixels}, "more");
      }
    }
    if (before[0] != 0 || after[0] != 0) {
      refuse("no pads of the batch", {before[0], " and ", after[0]});
    }
    const std::string mode = text("mode", "constant");
    if (has_input(2) && !scalar(needed(2, "value"))) {
      refuse("a number as the value", {needed(2, "value").size(), " numbers"});
    }
    const double number = has_input(2) ? *scalar(needed(2, "value")) : real("value", 0);
    nn::value made = plain(value().value);
    require_size(shape().channels + before[1] + after[1], shape().height + before[2] + after[2],
                 shape().width + before[3] + after[3]);
    if (crops) {
      if (mode != "constant") {
        refuse("mode constant with pads below 0", mode);
      }
      const nn::value_shape in = net_.shape(made);
      const std::array<index_t, 4> extents{0, in.channels, in.height, in.width};
      std::array<nn::index_range, 4> ranges;
      for (std::size_t k = 1; k < 4; ++k) {
        ranges[k] = {std::max<index_t>(0, -before[k]), extents[k] - std::max<index_t>(0, -after[k])};
        if (ranges[k].begin >= ranges[k].end) {
          refuse("pads that leave a part of each image", "none");
        }
        before[k] = std::max<index_t>(0, before[k]);
        after[k] = std::max<index_t>(0, after[k]);
      }
      made = add(nn::slice{.channels = ranges[1], .rows = ranges[2], .columns = ranges[3]}, made);
    }
    if (before[1] != 0 || after[1] != 0) {
      if (mode != "constant" || number != 0) {
        refuse("channels of zeros", "others");
      }
      made = add(nn::pad_channels{.before = before[1], .after = after[1]}, made);
    }
    if (before[2] != 0 || before[3] != 0 || after[2] != 0 || after[3] != 0) {
      nn::pad2d options{.padding = nn::padding::explicit_padding(before[2], after[2], before[3], after[3]),
                        .value = number};
      if (mode == "reflect") {
        options.mode = nn::padding_mode::reflect;
      } else if (mode == "edge") {
        options.mode = nn::padding_mode::replicate;
      } else if (mode == "wrap") {
        options.mode = nn::padding_mode::circular;
      } else if (mode != "constant") {
        refuse("mode constant, reflect, edge or wrap", mode);
      }
      made = add(options, made);
    }
    give(made, rank);
  }

  /// One axis of a Resize: output o is at the position (o + 1/2) / scale - 1/2, or another one, between the pixels.
  struct resized_axis {
    index_t in = 1;
    index_t out = 1;
    double scale = 1;
    [[nodiscard]] bool exact() const { return static_cast<double>(in) * scale == static_cast<double>(out); }
  };

  void resize() {
    require_image();
    const std::string mode = text("mode", "nearest");
    const bool old = op_->op_type == "Upsample" || model_.opset < 11;
    const std::string positions = text("coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
    const std::string rounds = text("nearest_mode", old ? "floor" : "round_prefer_floor");
    ignore({"extrapolation_value"});               // of tf_crop_and_resize
    ignore({"cubic_coeff_a", "exclude_outside"});  // of the modes that read them
    const std::array<resized_axis, 2> axes = resized_axes(old);
    const resized_axis& rows = axes[0];
    const resized_axis& columns = axes[1];
    if (integer("antialias", 0) != 0 && mode != "nearest" && (rows.scale < 1 || columns.scale < 1)) {
      refuse("antialias = 0 for a smaller image", {1});
    }
    const nn::value_shape in = shape();
    require_size(in.channels, rows.out, columns.out);
    const int rank = value().rank;
    const bool exact = rows.exact() && columns.exact();
    const bool whole = exact && rows.out % rows.in == 0 && columns.out % columns.in == 0;
    nn::upsample2d options{.size = {rows.out, columns.out}};
    if (mode == "nearest") {
      // With whole factors both kinds of rounding read the same pixels.
      if (exact && ((positions == "asymmetric" && rounds == "floor") ||
                    (whole && positions == "half_pixel" && rounds.starts_with("round")))) {
        give(add(options, plain(value().value)), rank);
        return;
      }
    } else if (mode == "linear" && integer("exclude_outside", 0) == 0) {
      options.mode = nn::interpolation::bilinear;
      options.align_corners = positions == "align_corners";
      const bool half = positions == "half_pixel" ||
                        (positions == "pytorch_half_pixel" && rows.out > 1 && (columns.out > 1 || columns.in == 1));
      if (exact && (options.align_corners || half)) {
        give(add(options, plain(value().value)), rank);
        return;
      }
    } else if (mode != "linear" && mode != "cubic") {
      refuse("mode nearest, linear or cubic", mode);
    }
    nn::value made = plain(value().value);
    if (rows.out != in.height || rows.scale != 1) {
      const nn::permute exchange{{axis::h, axis::c, axis::w}};
      made = add(exchange, interpolated(add(exchange, made), rows, mode, positions, rounds));
    }
    if (columns.out != in.width || columns.scale != 1) {
      const nn::permute exchange{{axis::w, axis::h, axis::c}};
      made = add(exchange, interpolated(add(exchange, made), columns, mode, positions, rounds));
    }
    give(made, rank);
  }

  /// Rows and columns of a Resize from its scales or sizes.
  [[nodiscard]] std::array<resized_axis, 2> resized_axes(bool old) {
    const nn::value_shape& in = shape();
    const auto rank = static_cast<std::size_t>(value().rank);
    std::vector<index_t> which = attribute_integers("axes", {});
    if (which.empty()) {
      for (std::size_t k = 0; k < rank; ++k) {
        which.push_back(static_cast<index_t>(k));
      }
    }
    std::array<resized_axis, 2> result{resized_axis{in.height, in.height, 1}, resized_axis{in.width, in.width, 1}};
    const bool by_size = !old && has_input(3) && needed(3, "sizes").size() > 0;
    const onnx_constant none;
    const onnx_attribute* const listed = attribute("scales");  // of Upsample before version 9
    const onnx_constant& scales = by_size ? none : listed != nullptr ? listed->tensor : needed(old ? 1 : 2, "scales");
    const std::vector<float>& factors = scales.numbers;
    const std::vector<index_t>& sizes = by_size ? needed(3, "sizes").integers : which;
    const std::string policy = text("keep_aspect_ratio_policy", "stretch");
    if (by_size && policy != "stretch") {
      refuse("keep_aspect_ratio_policy stretch", policy);
    }
    if (which.size() != (by_size ? sizes.size() : factors.size())) {
      refuse({"a size or scale for each of ", which.size(), " axes"}, {by_size ? sizes.size() : factors.size()});
    }
    for (std::size_t k = 0; k < which.size(); ++k) {
      const index_t at = axis_of(which[k], value().rank);
      if (at < 2) {
        const bool kept = by_size ? (at == 0 || sizes[k] == in.channels) : factors[k] == 1;
        if (!kept) {
          refuse("the sizes of images and channels as they are", "others");
        }
        if (by_size && at == 0 && sizes[k] != any_batch && sizes[k] != model_.inputs.front().dims[0]) {
          refuse("the batch as the first size", {sizes[k]});
        }
        continue;
      }
      resized_axis& axis = result[static_cast<std::size_t>(at) - 2];
      if (by_size) {
        if (sizes[k] < 1 || sizes[k] > most_pixels) {
          refuse({"sizes from 1 to ", most_pixels}, {sizes[k]});
        }
        axis.out = sizes[k];
        axis.scale = static_cast<double>(axis.out) / static_cast<double>(axis.in);
        continue;
      }
      axis.scale = static_cast<double>(factors[k]);
      const double out = static_cast<double>(axis.in) * axis.scale;
      if (!(out >= 1 && out <= static_cast<double>(most_pixels))) {
        refuse({"scales that leave from 1 to ", most_pixels, " pixels"}, {axis.scale});
      }
      axis.out = static_cast<index_t>(out);
    }
    return result;
  }

  /// Channels that are weighted sums of channels: a convolution of one tap, which is no part of training.
  [[nodiscard]] nn::value interpolated(nn::value from, const resized_axis& axis, const std::string& mode,
                                       const std::string& positions, const std::string& rounds) {
    if (axis.in * axis.out > most_weights) {
      refuse({"a size for which input and output pixels of an axis have a product of at most ", most_weights},
             {axis.in, " and ", axis.out});
    }
    if (positions == "align_corners" && !axis.exact()) {
      refuse("sizes, or scales that make whole pixels, with align_corners", {axis.scale});
    }
    std::vector<float> weights(static_cast<std::size_t>(axis.in * axis.out), 0.0F);
    for (index_t o = 0; o < axis.out; ++o) {
      const double position = position_of(o, axis, positions);
      const std::span<float> row =
          std::span{weights}.subspan(static_cast<std::size_t>(o * axis.in), static_cast<std::size_t>(axis.in));
      if (mode == "nearest") {
        row[static_cast<std::size_t>(std::clamp<index_t>(rounded(position, rounds), 0, axis.in - 1))] = 1;
      } else {
        add_taps(row, position, mode == "cubic");
      }
    }
    const std::string name = layer_name();
    const std::size_t count = weights.size();
    keep(name, "weight", std::move(weights), count);
    const nn::value made =
        add(name, nn::conv2d{.out_channels = axis.out, .kernel = {1, 1}, .bias = false}, std::array{from});
    net_.freeze(name);
    return made;
  }

  [[nodiscard]] double position_of(index_t o, const resized_axis& axis, const std::string& positions) const {
    const auto at = static_cast<double>(o);
    const auto in = static_cast<double>(axis.in);
    const auto out = static_cast<double>(axis.out);
    if (positions == "asymmetric") {
      return at / axis.scale;
    }
    if (positions == "align_corners") {
      return axis.out == 1 ? 0 : at * (in - 1) / (out - 1);
    }
    if (positions == "pytorch_half_pixel") {
      return axis.out == 1 ? -0.5 : (at + 0.5) / axis.scale - 0.5;
    }
    if (positions == "half_pixel_symmetric") {
      return in / 2 * (1 - out / (in * axis.scale)) + (at + 0.5) / axis.scale - 0.5;
    }
    if (positions != "half_pixel") {
      refuse("coordinates half_pixel, half_pixel_symmetric, pytorch_half_pixel, align_corners or asymmetric",
             positions);
    }
    return (at + 0.5) / axis.scale - 0.5;
  }
  [[nodiscard]] index_t rounded(double position, const std::string& rule) const {
    if (rule == "floor") {
      return static_cast<index_t>(std::floor(position));
    }
    if (rule == "ceil") {
      return static_cast<index_t>(std::ceil(position));
    }
    if (rule == "round_prefer_ceil") {
      return static_cast<index_t>(std::floor(position + 0.5));
    }
    if (rule != "round_prefer_floor") {
      refuse("nearest_mode floor, ceil, round_prefer_floor or round_prefer_ceil", rule);
    }
    return static_cast<index_t>(std::ceil(position - 0.5));
  }
  /// Adds the weights of the pixels around a position to a row of all pixels. Pixels outside are those of the border,
  /// or have no weight with exclude_outside.
  void add_taps(std::span<float> row, double position, bool cubic) const {
    const double below = std::floor(position);
    const double t = position - below;
    std::array<double, 4> taps{0, 1 - t, t, 0};
    if (cubic) {  // Keys 1981
      const double a = real("cubic_coeff_a", -0.75);
      const auto nearer = [a](double x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
      const auto farther = [a](double x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
      taps = {farther(1 + t), nearer(t), nearer(1 - t), farther(2 - t)};
    }
    const bool excludes = integer("exclude_outside", 0) != 0;
    const auto in = static_cast<index_t>(row.size());
    double sum = 0;
    std::array<double, 4> used = taps;
    for (int k = 0; k < 4; ++k) {
      const index_t at = static_cast<index_t>(below) - 1 + k;
      double& each = used[static_cast<std::size_t>(k)];
      each = excludes && (at < 0 || at >= in) ? 0 : each;
      sum += each;
    }
    for (int k = 0; k < 4; ++k) {
      const index_t at = std::clamp<index_t>(static_cast<index_t>(below) - 1 + k, 0, in - 1);
      const double each = used[static_cast<std::size_t>(k)];
      row[static_cast<std::size_t>(at)] += static_cast<float>(excludes ? each / sum : each);
    }
  }

  static constexpr index_t most_factor = index_t{1} << 16;   // of DepthToSpace
  static constexpr index_t most_weights = index_t{1} << 22;  // of a resized axis, for the pixels it reads
};

}  // namespace gradus::io::detail
