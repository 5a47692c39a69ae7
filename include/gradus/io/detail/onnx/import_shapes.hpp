// SPDX-License-Identifier: BSL-1.0
//
// ONNX operators that move elements.
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
      if (text("mode", "DCR") != "CRD") {
        refuse("mode CRD, the order of channels of PyTorch", "DCR");
      }
      give_layer(nn::pixel_shuffle{.factor = integer("blocksize", 0)});
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
      const index_t to = integer("to", 1);
      if (to != 1 && to != 10 && to != 11 && to != 16 && to != 9) {
        refuse("numbers, or conditions", {"element type ", to});
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
    const nn::value_shape& in = shape();
    if (axes != std::vector<index_t>{2, 3} || (squeeze && (in.height != 1 || in.width != 1))) {
      refuse("the axes 2 and 3 of one pixel", "others");
    }
    give(squeeze ? value().value : plain(value().value), squeeze ? 2 : 4);
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
    const bool fixed_batch = to[0] > 0;
    if (fixed_batch && (model_.inputs.front().dims.empty() || model_.inputs.front().dims[0] != to[0])) {
      refuse("the batch as the first axis", {to[0]});
    }
    std::vector<index_t> extents(to.begin() + 1, to.end());
    index_t known = 1;
    index_t* open = nullptr;
    for (std::size_t k = 0; k < extents.size(); ++k) {
      if (extents[k] == 0 && integer("allowzero", 0) == 0 && k < old.size()) {
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
    if (has_input(4)) {
      for (const index_t step : integers(4, "steps")) {
        if (step != 1) {
          refuse("steps of 1", {step});
        }
      }
    }
    if (begin.size() != end.size() || axes.size() != begin.size()) {
      refuse("as many starts as ends and axes", {begin.size(), ", ", end.size(), " and ", axes.size()});
    }
    const nn::value_shape& in = shape();
    nn::slice options;
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
      (which == 1 ? options.channels : which == 2 ? options.rows : options.columns) = range;
    }
    give(add(options, plain(value().value)), value().rank);
  }

  void pad() {
    require_rank(4);
    const std::vector<index_t> amounts = integers(1, "pads");
    if (amounts.size() != 8 || amounts[0] != 0 || amounts[4] != 0 || has_input(3)) {
      refuse("8 pads with none of the batch", {amounts.size()});
    }
    const std::string mode = text("mode", "constant");
    const double number = has_input(2) ? scalar(needed(2, "value")).value_or(0) : real("value", 0);
    nn::value made = value().value;
    if (amounts[1] != 0 || amounts[5] != 0) {
      if (mode != "constant" || number != 0) {
        refuse("channels of zeros", "others");
      }
      made = add(nn::pad_channels{.before = amounts[1], .after = amounts[5]}, made);
    }
    if (amounts[2] != 0 || amounts[3] != 0 || amounts[6] != 0 || amounts[7] != 0) {
      nn::pad2d options{.padding = nn::padding::explicit_padding(amounts[2], amounts[6], amounts[3], amounts[7]),
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
    give(made, 4);
  }

  void resize() {
    require_rank(4);
    const nn::value_shape& in = shape();
    nn::upsample2d options{.size = {in.height, in.width}};
    const std::size_t scales = op_->op_type == "Upsample" ? 1 : 2;
    if (has_input(3)) {
      const std::vector<index_t>& size = needed(3, "sizes").integers;
      if (size.size() != 4 || size[1] != in.channels) {
        refuse("the sizes of 4 axes with the channels of the input", "others");
      }
      options.size = {size[2], size[3]};
    } else {
      const std::vector<float>& factors = needed(scales, "scales").numbers;
      if (factors.size() != 4 || factors[0] != 1 || factors[1] != 1 || !(factors[2] > 0 && factors[2] < 1e6F) ||
          !(factors[3] > 0 && factors[3] < 1e6F)) {
        refuse("scales (1, 1, h, w)", "others");
      }
      options.size = {static_cast<index_t>(static_cast<double>(in.height) * static_cast<double>(factors[2])),
                      static_cast<index_t>(static_cast<double>(in.width) * static_cast<double>(factors[3]))};
    }
    const std::string mode = text("mode", "nearest");
    const std::string positions = text("coordinate_transformation_mode", scales == 1 ? "asymmetric" : "half_pixel");
    if (mode == "nearest") {
      const bool whole = options.size.height % in.height == 0 && options.size.width % in.width == 0;
      const std::string rounds = text("nearest_mode", scales == 1 ? "floor" : "round_prefer_floor");
      // With whole factors all of these read the same pixels.
      if (!(positions == "asymmetric" && rounds == "floor") && !(whole && positions == "half_pixel")) {
        refuse("asymmetric positions that are rounded down", {positions, ", ", rounds});
      }
    } else if (mode == "linear") {
      options.mode = nn::interpolation::bilinear;
      options.align_corners = positions == "align_corners";
      const bool half = positions == "half_pixel" ||
                        (positions == "pytorch_half_pixel" && options.size.height > 1 && options.size.width > 1);
      if (!options.align_corners && !half) {
        refuse("positions half_pixel or align_corners", positions);
      }
    } else {
      refuse("mode nearest or linear", mode);
    }
    give_layer(options);
  }
};

}  // namespace gradus::io::detail
