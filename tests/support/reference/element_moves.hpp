// SPDX-License-Identifier: BSL-1.0
//
// Layers that move elements, or mix some of them with given weights, by their definitions.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>

#include "graph_spec.hpp"

namespace gradus_test {

/// One term of an element of the output: weight * an element of the input, or the weight itself.
struct move_of_element {
  index_t c = 0;  ///< of the output
  index_t h = 0;
  index_t w = 0;
  index_t from_c = 0;  ///< of the input
  index_t from_h = 0;
  index_t from_w = 0;
  double weight = 1;
  bool constant = false;  ///< no element of the input
};

template <class Options, class... Layers>
concept any_of = (std::same_as<Options, Layers> || ...);

template <class Options>
concept moves_elements = any_of<Options, nn::crop2d, nn::flatten, nn::pad2d, nn::pad_channels, nn::permute,
                                nn::pixel_shuffle, nn::reshape, nn::upsample2d>;

/// Whether all elements of the output are elements of the input, or constants: then nothing is rounded.
template <class Options>
[[nodiscard]] bool copies_elements(const Options& options) {
  if constexpr (std::same_as<Options, nn::upsample2d>) {
    return options.mode == nn::interpolation::nearest;
  } else {
    return moves_elements<Options>;
  }
}

namespace detail {

/// The rows or columns that one of an upsampled image reads: `first` and the one after it, which has the weight `next`.
struct upsampling {
  index_t first = 0;
  double next = 0;
};

[[nodiscard]] inline upsampling upsampling_of(const nn::upsample2d& options, index_t in, index_t out,
                                              index_t position) {
  if (options.mode == nn::interpolation::nearest) {
    return {position * in / out, 0};
  }
  const auto at = static_cast<double>(position);
  const auto from = static_cast<double>(in);
  const auto to = static_cast<double>(out);
  double source = std::max(0.0, (at + 0.5) * from / to - 0.5);
  if (options.align_corners) {
    source = out == 1 ? 0 : at * (from - 1) / (to - 1);
  }
  const auto first = std::min(static_cast<index_t>(source), in - 1);
  return {first, first == in - 1 ? 0 : source - static_cast<double>(first)};
}

template <class Body>
void for_each_source_of(const nn::upsample2d& options, const nn::value_shape& in, const nn::value_shape& out,
                        move_of_element move, const Body& body) {
  const upsampling rows = upsampling_of(options, in.height, out.height, move.h);
  const upsampling columns = upsampling_of(options, in.width, out.width, move.w);
  for (const index_t r : {0, 1}) {
    for (const index_t s : {0, 1}) {
      move.weight = (r == 0 ? 1 - rows.next : rows.next) * (s == 0 ? 1 - columns.next : columns.next);
      move.from_c = move.c;
      move.from_h = rows.first + r;
      move.from_w = columns.first + s;
      if (move.weight != 0) {
        body(move);
      }
    }
  }
}

template <class Body>
void for_each_source_of(const nn::pad2d& options, const nn::value_shape& in, const nn::value_shape& /*out*/,
                        move_of_element move, const Body& body) {
  move.from_c = move.c;
  move.from_h = source_of(options.mode, move.h - options.padding.top(), in.height);
  move.from_w = source_of(options.mode, move.w - options.padding.left(), in.width);
  move.constant = move.from_h < 0 || move.from_w < 0;
  move.weight = move.constant ? options.value : 1;
  body(move);
}

template <class Body>
void for_each_source_of(const nn::pad_channels& options, const nn::value_shape& in, const nn::value_shape& /*out*/,
                        move_of_element move, const Body& body) {
  move.from_c = move.c - options.before;
  move.from_h = move.h;
  move.from_w = move.w;
  if (move.from_c >= 0 && move.from_c < in.channels) {
    body(move);
  }
}

/// A crop without a size has that of a second input, and is centered.
template <class Body>
void for_each_source_of(const nn::crop2d& options, const nn::value_shape& in, const nn::value_shape& out,
                        move_of_element move, const Body& body) {
  const bool centered = options.size == nn::size2d{0, 0};
  move.from_c = move.c;
  move.from_h = move.h + (centered ? (in.height - out.height) / 2 : options.top);
  move.from_w = move.w + (centered ? (in.width - out.width) / 2 : options.left);
  body(move);
}

template <class Body>
void for_each_source_of(const nn::pixel_shuffle& options, const nn::value_shape& /*in*/, const nn::value_shape& /*out*/,
                        move_of_element move, const Body& body) {
  const index_t r = options.factor;
  move.from_c = (move.c * r + move.h % r) * r + move.w % r;
  move.from_h = move.h / r;
  move.from_w = move.w / r;
  body(move);
}

template <class Body>
void for_each_source_of(const nn::permute& options, const nn::value_shape& /*in*/, const nn::value_shape& /*out*/,
                        move_of_element move, const Body& body) {
  const std::array<index_t, 3> to{move.c, move.h, move.w};
  std::array<index_t, 4> from{};
  for (std::size_t k = 0; k < 3; ++k) {
    from[static_cast<std::size_t>(options.axes[k])] = to[k];
  }
  move.from_c = from[1];
  move.from_h = from[2];
  move.from_w = from[3];
  body(move);
}

/// The same number in the order (c, h, w).
template <class Options, class Body>
requires any_of<Options, nn::flatten, nn::reshape>
void for_each_source_of(const Options& /*options*/, const nn::value_shape& in, const nn::value_shape& out,
                        move_of_element move, const Body& body) {
  const index_t number = (move.c * out.height + move.h) * out.width + move.w;
  move.from_c = number / (in.height * in.width);
  move.from_h = number / in.width % in.height;
  move.from_w = number % in.width;
  body(move);
}

}  // namespace detail

/// Calls body(move) for every term of every element of the output of an example.
template <class Options, class Body>
requires moves_elements<Options>
void for_each_source(const Options& options, const nn::value_shape& in, const nn::value_shape& out, const Body& body) {
  move_of_element move;
  for (move.c = 0; move.c < out.channels; ++move.c) {
    for (move.h = 0; move.h < out.height; ++move.h) {
      for (move.w = 0; move.w < out.width; ++move.w) {
        detail::for_each_source_of(options, in, out, move, body);
      }
    }
  }
}

}  // namespace gradus_test
