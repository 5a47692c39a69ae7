// SPDX-License-Identifier: BSL-1.0
//
// ONNX operators on values of more than 4 axes: shuffles of channels and pixels, and sums over neighboring channels.
#pragma once

#include <algorithm>  // std::find, std::rotate, std::sort
#include <cstddef>    // std::ptrdiff_t, std::size_t
#include <string>     // std::string
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/onnx/detail/import/imported_layers.hpp"
#include "gradus/onnx/detail/import/resize.hpp"
#include "gradus/onnx/detail/model/model_reader.hpp"

namespace gradus::io::detail {

/// Makes layers of values of more than 4 axes: their elements are those of an image, in the same order.
class onnx_axes_operators : public onnx_resize_operators {
 public:
  using onnx_resize_operators::onnx_resize_operators;

 protected:
  /// Operators on a value of more than 4 axes. False if the value has fewer.
  [[nodiscard]] bool translate_axes() {
    const std::string& type = op_->op_type;
    const imported* const found = has_input(0) ? find(op_->inputs[0]) : nullptr;
    if (found == nullptr || found->extents.empty()) {
      return false;
    }
    const imported from = *found;
    if (type == "Transpose") {
      transpose_axes(from, attribute_integers("perm", {}));
    } else if (type == "Squeeze" || type == "Unsqueeze") {
      give_extents(from.value, reshaped_extents(from.extents, type == "Squeeze"));
    } else if (type == "Pad") {
      pad_axes(from);
    } else if (type == "AveragePool") {
      average_axes(from);
    } else {
      return false;
    }
    return true;
  }

  /// A value whose elements have these extents behind the batch, in their order.
  void give_extents(nn::value v, std::vector<index_t> extents) {
    const auto rank = static_cast<int>(extents.size()) + 1;
    if (extents.size() > 3) {
      give({v, rank, imported{}.axes, std::move(extents)});
      return;
    }
    const nn::value_shape to{extents[0], extents.size() > 1 ? extents[1] : index_t{1},
                             extents.size() > 2 ? extents[2] : index_t{1}};
    give(with_extents(v, to), rank);
  }
  [[nodiscard]] nn::value with_extents(nn::value v, const nn::value_shape& to) {
    const nn::value_shape& in = net_.shape(v);
    return !in.flattened && in == to ? v : add(nn::reshape{to.channels, to.height, to.width}, v);
  }

  /// Extents without axes of extent 1, or with more of them.
  [[nodiscard]] std::vector<index_t> reshaped_extents(std::vector<index_t> extents, bool squeeze) {
    std::vector<index_t> axes = integers(1, "axes");
    if (axes.empty() || axes.size() > 64) {
      refuse("axes", axes.empty() ? "none" : "more than 64");
    }
    const auto rank = static_cast<int>(extents.size() + 1 + (squeeze ? 0 : axes.size()));
    for (index_t& each : axes) {
      each = axis_of(each, rank);
    }
    std::sort(axes.begin(), axes.end());
    for (std::size_t k = 0; k < axes.size(); ++k) {
      if (axes[k] == 0 || (k > 0 && axes[k] == axes[k - 1]) ||
          (squeeze && extents[static_cast<std::size_t>(axes[k]) - 1] != 1)) {
        refuse(squeeze ? "different axes of extent 1 behind the batch" : "different axes behind the batch",
               {"the axes ", listed(axes), " of a tensor with ", listed(extents), " behind the batch"});
      }
    }
    if (squeeze) {
      for (auto each = axes.rbegin(); each != axes.rend(); ++each) {
        extents.erase(extents.begin() + *each - 1);
      }
    } else {
      for (const index_t each : axes) {
        extents.insert(extents.begin() + each - 1, 1);
      }
    }
    if (extents.empty()) {
      refuse("a result with axes behind the batch", "none");
    }
    return extents;
  }

 private:
  /// Exchanges axes. Neighbors that stay together are one axis, those of extent 1 are none.
  void transpose_axes(const imported& from, const std::vector<index_t>& order) {
    const std::size_t rank = from.extents.size() + 1;
    std::vector<bool> seen(rank, false);
    for (const index_t each : order) {
      if (each >= 0 && each < static_cast<index_t>(rank)) {
        seen[static_cast<std::size_t>(each)] = true;
      }
    }
    if (order.size() != rank || order[0] != 0 || std::find(seen.begin(), seen.end(), false) != seen.end()) {
      refuse({"a permutation of ", rank, " axes that leaves the batch in its place"}, listed(order));
    }
    std::vector<index_t> made;
    std::vector<std::size_t> axes;  // longer than 1, as the result has them
    for (std::size_t k = 1; k < rank; ++k) {
      const std::size_t at = static_cast<std::size_t>(order[k]) - 1;
      made.push_back(from.extents[at]);
      if (from.extents[at] != 1) {
        axes.push_back(at);
      }
    }
    nn::value result = from.value;
    if (const nn::value_shape& in = net_.shape(from.value); pixels_leave(from, order, in)) {
      result = add(nn::pixel_unshuffle{.factor = from.extents[2]}, result);
    } else if (pixels_enter(from, order, in)) {
      result = add(nn::pixel_shuffle{.factor = from.extents[1]}, result);
    } else {
      // From the last axis on, each moves to the front of those that are already in order.
      std::vector<std::size_t> now = axes;
      std::sort(now.begin(), now.end());
      std::size_t in_order = axes.size();  // axes from here on follow each other, perhaps with others between them
      while (in_order > 1 && axes[in_order - 2] < axes[in_order - 1]) {
        --in_order;
      }
      in_order = in_order == 0 ? 0 : in_order - 1;
      while (in_order > 0) {
        // A run of axes that are neighbors now moves as one.
        std::size_t first = in_order - 1;
        const auto position = [&](std::size_t k) { return std::find(now.begin(), now.end(), axes[k]) - now.begin(); };
        while (first > 0 && position(first - 1) + 1 == position(first)) {
          --first;
        }
        const auto begin = now.begin() + position(first);
        const auto end = begin + static_cast<std::ptrdiff_t>(in_order - first);
        nn::value_shape parts{1, 1, 1};
        for (auto each = now.begin(); each != now.end(); ++each) {
          (each < begin ? parts.channels : each < end ? parts.height : parts.width) *= from.extents[*each];
        }
        result = add(nn::permute{{axis::h, axis::c, axis::w}}, with_extents(result, parts));
        std::rotate(now.begin(), begin, end);
        in_order = first;
      }
    }
    give_extents(result, std::move(made));
  }
  /// (C, H, r, W, r) to (C, r, r, H, W) of an image, which a layer computes.
  [[nodiscard]] static bool pixels_leave(const imported& from, const std::vector<index_t>& order,
                                         const nn::value_shape& in) {
    const std::vector<index_t>& e = from.extents;
    return order == std::vector<index_t>{0, 1, 3, 5, 2, 4} && e[2] == e[4] && !in.flattened &&
           in == nn::value_shape{e[0], e[1] * e[2], e[3] * e[4]};
  }
  /// (C, r, r, H, W) to (C, H, r, W, r).
  [[nodiscard]] static bool pixels_enter(const imported& from, const std::vector<index_t>& order,
                                         const nn::value_shape& in) {
    const std::vector<index_t>& e = from.extents;
    return order == std::vector<index_t>{0, 1, 4, 2, 5, 3} && e[1] == e[2] && !in.flattened &&
           in == nn::value_shape{e[0] * e[1] * e[2], e[3], e[4]};
  }

  /// The image of a value (1, C, H, W).
  [[nodiscard]] nn::value image_behind_one(const imported& from) {
    const std::vector<index_t>& e = from.extents;
    if (e.size() != 4 || e[0] != 1) {
      refuse("a value of at most 4 axes, or (N, 1, C, H, W)", {"a tensor with ", listed(e), " behind the batch"});
    }
    return with_extents(from.value, {e[1], e[2], e[3]});
  }

  /// Zeros before and after the channels of (1, C, H, W).
  void pad_axes(const imported& from) {
    const nn::value image = image_behind_one(from);
    const std::vector<index_t> pads = integers(1, "pads");
    const std::string mode = text("mode", "constant");
    const double number = has_input(2) ? scalar(needed(2, "value")).value_or(1) : real("value", 0);
    if (mode != "constant" || number != 0 || has_input(3) || pads.size() != 10) {
      refuse("zeros before and after each axis", mode == "constant" ? "others" : mode);
    }
    for (std::size_t k = 0; k < 10; ++k) {
      if (k % 5 != 2 ? pads[k] != 0 : pads[k] < 0 || pads[k] > most_pixels) {
        refuse("pads of the third axis, of at least 0", listed(pads));
      }
    }
    std::vector<index_t> extents = from.extents;
    extents[1] += pads[2] + pads[7];
    require_size(extents[1], extents[2], extents[3]);
    const bool pads_any = pads[2] != 0 || pads[7] != 0;
    give_extents(pads_any ? add(nn::pad_channels{.before = pads[2], .after = pads[7]}, image) : image,
                 std::move(extents));
  }

  /// The mean of neighboring channels of (1, C, H, W): what PyTorch's LocalResponseNorm reads.
  void average_axes(const imported& from) {
    const nn::value image = image_behind_one(from);
    const std::vector<index_t> kernel = attribute_integers("kernel_shape", {0, 1, 1});
    const std::vector<index_t> ones{1, 1, 1};
    const std::vector<index_t> zeros{0, 0, 0, 0, 0, 0};
    const std::string rule = text("auto_pad", "NOTSET");
    if (kernel[0] < 1 || kernel[0] > from.extents[1] || kernel[1] != 1 || kernel[2] != 1 ||
        attribute_integers("strides", ones) != ones || attribute_integers("dilations", ones) != ones ||
        attribute_integers("pads", zeros) != zeros || (rule != "NOTSET" && rule != "VALID")) {
      refuse("an average along the third axis, of stride 1 and without padding", "another");
    }
    ignore({"ceil_mode", "count_include_pad"});  // of other strides, and of padding
    const nn::permute exchange{{axis::h, axis::c, axis::w}};
    nn::value made = add(exchange, image);
    made = add(nn::average_pool2d{.kernel = {kernel[0], 1}, .stride = {1, 1}}, made);
    std::vector<index_t> extents = from.extents;
    extents[1] += 1 - kernel[0];
    give_extents(add(exchange, made), std::move(extents));
  }
};

}  // namespace gradus::io::detail
