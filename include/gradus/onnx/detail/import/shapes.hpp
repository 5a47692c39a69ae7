// SPDX-License-Identifier: BSL-1.0
//
// ONNX operators that move elements.
#pragma once

#include <algorithm>  // std::clamp, std::max, std::min
#include <array>      // std::array
#include <cstddef>    // std::size_t
#include <string>     // std::string
#include <vector>     // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/onnx/detail/import/gather.hpp"
#include "gradus/onnx/detail/import/imported_layers.hpp"
#include "gradus/onnx/detail/model/model_reader.hpp"

namespace gradus::io::detail {

/// Makes layers of operators that only move elements and pad.
class onnx_shape_operators : public onnx_gather_operators {
 public:
  using onnx_gather_operators::onnx_gather_operators;

 protected:
  /// Operators that move elements. False if the operator is none.
  [[nodiscard]] bool translate_shapes() {
    const std::string& type = op_->op_type;
    if (translate_gathers()) {
      return true;
    }
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
  /// Squeeze of axes of extent 1, and the reverse.
  void reshape_axes(bool squeeze) {
    const nn::value from = value().value;
    give_extents(from, reshaped_extents(extents_of(value()), squeeze));
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
      refuse({"a size for each of ", count, " outputs"}, listed(sizes));
    }
    const nn::value all = plain(from.value);
    index_t begin = 0;
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      if (sizes[k] < 1 || sizes[k] > extent - begin) {
        refuse({"sizes of at least 1 with the sum ", extent}, listed(sizes));
      }
      nn::slice options;
      (which == 1 ? options.channels : which == 2 ? options.rows : options.columns) = {begin, begin + sizes[k]};
      begin += sizes[k];
      if (used_.contains(op_->outputs[k])) {
        values_.insert_or_assign(op_->outputs[k], imported{add(options, all), from.rank});
      }
    }
    if (begin != extent) {
      refuse({"sizes of at least 1 with the sum ", extent}, listed(sizes));
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
          refuse("a shape that leaves the batch as it is", listed(to));
        }
        continue;
      }
      if (to[k] < 1 || to[k] > most_pixels) {
        refuse({"extents from 1 to ", most_pixels}, {to[k]});
      }
      extents[at - 1] = extents[at - 1] == 1 ? to[k] : extents[at - 1];
      if (to[k] != 1 && to[k] != extents[at - 1]) {
        refuse({"a shape to which ", listed(extents_of(from)), " behind the batch can be repeated"}, listed(to));
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
    if ((to[0] < -1 && to[0] != any_batch) || (to[0] == 0 && !keeps) ||
        (fixed_batch && (model_.inputs.front().dims.empty() || model_.inputs.front().dims[0] != to[0]))) {
      refuse("a shape with the batch as the first axis", listed(to));
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
      if (extents[k] < 1 || extents[k] > in.size() / known) {
        refuse({"a shape of ", in.size(), " elements behind the batch"}, listed(to));
      }
      known *= extents[k];
    }
    if (open != nullptr && in.size() % known == 0) {
      *open = in.size() / known;
      known *= *open;
    }
    if (known != in.size()) {
      refuse({"a shape of ", in.size(), " elements behind the batch"}, listed(to));
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
    give_extents(from->value, extents);
  }

  void transpose() {
    const std::vector<index_t> order = attribute_integers("perm", {});
    const imported* const from = &kept();
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
      refuse({"a permutation of ", rank, " axes that leaves the batch in its place"}, listed(order));
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
      const auto clamped = [&](index_t i) { return std::clamp<index_t>(i < 0 ? i + extent : i, 0, extent); };
      const nn::index_range range{clamped(begin[k]), clamped(end[k])};
      if (steps[k] < 1) {
        refuse("steps of at least 1", {steps[k]});
      }
      if (which == 0 || range.begin >= range.end) {
        refuse("a part of each image", which == 0 ? "a part of the batch" : "an empty one");
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
        refuse({"pads of at most ", most_pixels}, listed(given));
      }
    }
    if (before[0] != 0 || after[0] != 0) {
      refuse("no pads of the batch", {before[0], " before and ", after[0], " behind it"});
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

  static constexpr index_t most_factor = index_t{1} << 16;  // of DepthToSpace
};

}  // namespace gradus::io::detail
