// SPDX-License-Identifier: BSL-1.0
//
// The ONNX operator Resize, and Upsample before it.
#pragma once

#include <algorithm>  // std::clamp
#include <array>      // std::array
#include <cmath>      // std::ceil, std::floor
#include <cstddef>    // std::size_t
#include <span>       // std::span
#include <string>     // std::string
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/onnx/detail/import/imported_layers.hpp"
#include "gradus/onnx/detail/import/weights.hpp"
#include "gradus/onnx/detail/model/model_reader.hpp"

namespace gradus::io::detail {

/// Makes layers of Resize: nn::upsample2d where it computes the same, else a frozen convolution for each axis.
class onnx_resize_operators : public onnx_weight_operators {
 public:
  using onnx_weight_operators::onnx_weight_operators;

 protected:
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

 private:
  /// One axis of a Resize: output o is at the position (o + 1/2) / scale - 1/2, or another one, between the pixels.
  struct resized_axis {
    index_t in = 1;
    index_t out = 1;
    double scale = 1;
    [[nodiscard]] bool exact() const { return static_cast<double>(in) * scale == static_cast<double>(out); }
  };

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

  static constexpr index_t most_weights = index_t{1} << 22;  // of a resized axis, for the pixels it reads
};

}  // namespace gradus::io::detail
