// SPDX-License-Identifier: BSL-1.0
//
// Resizing of images on the CPU.
#pragma once

#include <algorithm>    // std::copy_n, std::fill_n, std::max, std::min
#include <array>        // std::array
#include <cstddef>      // std::byte, std::size_t
#include <type_traits>  // std::integral_constant

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/copy/move.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"
#include "gradus/kernels/resize2d.hpp"

namespace gradus::kernels {

namespace detail {

/// Columns, or weights of columns, that a task keeps on its stack.
inline constexpr index_t resize_columns = 512;

/// Rows of one task: about 16384 elements.
[[nodiscard]] constexpr index_t resize_grain(index_t row) noexcept {
  return std::max(index_t{1}, 16384 / std::max(index_t{1}, row));
}

/// The rows and columns of a resizing.
struct resize_axes {
  explicit constexpr resize_axes(const resize2d_geometry& g) noexcept
      : rows{g.in_height, g.out_height, g.mode, g.align_corners},
        columns{g.in_width, g.out_width, g.mode, g.align_corners} {}

  resize_axis<index_t> rows;
  resize_axis<index_t> columns;
};

/// Copies the nearest pixels into the rows [begin, end) of all planes of y.
template <int Size>
void resize_nearest(const resize2d_geometry& g, index_t begin, index_t end, const std::byte* x, std::byte* y) noexcept {
  const resize_axes axes{g};
  const auto pixel = static_cast<std::size_t>(g.run * Size);
  const auto out_row = static_cast<std::size_t>(g.out_width) * pixel;
  std::array<index_t, static_cast<std::size_t>(resize_columns)> offsets;
  for (index_t first = 0; first < g.out_width; first += resize_columns) {
    const index_t columns = std::min(resize_columns, g.out_width - first);
    for (index_t k = 0; k < columns; ++k) {
      offsets[static_cast<std::size_t>(k)] = axes.columns.tap<float>(first + k).low * g.run * Size;
    }
    for (index_t row = begin; row < end;) {
      const index_t h = row % g.out_height;
      const index_t read = axes.rows.tap<float>(h).low;
      // The rows of y that are equal, in this task, are written together.
      const index_t equal = std::min(end - row, axes.rows.end_of_readers(read) - h);
      const std::byte* const from =
          x + static_cast<std::size_t>((row / g.out_height * g.in_height + read) * g.in_width) * pixel;
      std::byte* const to = y + static_cast<std::size_t>(row) * out_row + static_cast<std::size_t>(first) * pixel;
      if (g.run == 1) {
        for (index_t k = 0; k < columns; ++k) {
          move_fixed<Size>(to + k * Size, from + offsets[static_cast<std::size_t>(k)]);
        }
        for (index_t j = 1; j < equal; ++j) {
          std::copy_n(to, static_cast<std::size_t>(columns) * pixel, to + static_cast<std::size_t>(j) * out_row);
        }
      } else {
        for (index_t k = 0; k < columns; ++k) {
          const std::byte* const source = from + offsets[static_cast<std::size_t>(k)];
          std::byte* target = to + static_cast<std::size_t>(k) * pixel;
          for (index_t j = 0; j < equal; ++j, target += out_row) {
            move_bytes(target, source, pixel);
          }
        }
      }
      row += equal;
    }
  }
}

/// The outputs that read some neighboring pixels of x, in one direction, with their weights.
template <class Real>
class resize_readers {
 public:
  /// The readers of pixel i. @return false if there are too many for the table
  [[nodiscard]] bool append(const resize_axis<index_t>& axis, index_t i) noexcept {
    const index_t begin = axis.first_reader(i);
    const index_t end = axis.end_of_readers(i);
    if (count_ == capacity || used_ + end - begin > capacity) {
      return false;
    }
    firsts_[static_cast<std::size_t>(count_)] = begin;
    offsets_[static_cast<std::size_t>(count_)] = used_;
    for (index_t o = begin; o < end; ++o) {
      weights_[static_cast<std::size_t>(used_++)] = axis.template weight<Real>(o, i);
    }
    offsets_[static_cast<std::size_t>(++count_)] = used_;
    return true;
  }
  void clear() noexcept { count_ = used_ = 0; }

  /// The number of pixels.
  [[nodiscard]] index_t count() const noexcept { return count_; }
  /// The first output that reads pixel k of the table.
  [[nodiscard]] index_t first(index_t k) const noexcept { return firsts_[static_cast<std::size_t>(k)]; }
  /// The number of outputs that read pixel k.
  [[nodiscard]] index_t readers(index_t k) const noexcept {
    return offsets_[static_cast<std::size_t>(k) + 1] - offsets_[static_cast<std::size_t>(k)];
  }
  /// Their weights.
  [[nodiscard]] const Real* weights(index_t k) const noexcept {
    return weights_.data() + offsets_[static_cast<std::size_t>(k)];
  }

 private:
  static constexpr index_t capacity = 2 * resize_columns;
  index_t count_ = 0;
  index_t used_ = 0;
  std::array<index_t, static_cast<std::size_t>(capacity)> firsts_;
  std::array<index_t, static_cast<std::size_t>(capacity) + 1> offsets_;
  std::array<Real, static_cast<std::size_t>(capacity)> weights_;
};

}  // namespace detail

}  // namespace gradus::kernels

#define GRADUS_TARGET_BODY "gradus/kernels/cpu/detail/resize2d/resize2d_body.hpp"
#include "gradus/simd/for_each_target.hpp"

namespace gradus::kernels {

/// Implements has_resize2d_forward on the CPU.
template <network_element Element>
void resize2d_forward(cpu& device, const resize2d_geometry& geometry, const Element* x, Element* y) {
  const index_t grain = detail::resize_grain(geometry.out_width * geometry.run);
  device.parallel_for(geometry.planes * geometry.out_height, grain, [&](index_t begin, index_t end) {
    if (geometry.mode == interpolation::nearest) {
      detail::resize_nearest<sizeof(Element)>(geometry, begin, end, reinterpret_cast<const std::byte*>(x),
                                              reinterpret_cast<std::byte*>(y));
    } else {
      detail::on_target([&](auto target) { resize_bilinear(target, geometry, begin, end, x, y); });
    }
  });
}

/// Implements has_resize2d_backward on the CPU.
template <network_element Element>
void resize2d_backward(cpu& device, const resize2d_geometry& geometry, const Element* dy, Element* dx,
                       const backward_epilogue<Element>& epilogue) {
  using real = detail::computed<Element>;
  const resize2d_geometry& g = geometry;
  const index_t out_of_in = (g.out_height * g.out_width) / (g.in_height * g.in_width) + 1;  // outputs that are read
  const index_t grain = detail::resize_grain(g.in_width * g.run * out_of_in);
  device.parallel_for(g.planes * g.in_height, grain, [&](index_t begin, index_t end) {
    const detail::resize_axes axes{g};
    detail::resize_readers<real> columns;
    for (index_t first = 0; first < g.in_width;) {
      columns.clear();
      while (first + columns.count() < g.in_width && columns.append(axes.columns, first + columns.count())) {
      }
      if (columns.count() > 0) {
        detail::on_target(
            [&](auto target) { gather_rows(target, g, axes.rows, columns, first, begin, end, dy, dx, epilogue); });
        first += columns.count();
        continue;
      }
      for (index_t row = begin; row < end; ++row) {  // a column with more readers than the table has entries
        const index_t h = row % g.in_height;
        detail::on_target([&](auto target) {
          gather_pixel(
              target, g, axes.rows.first_reader(h), axes.rows.end_of_readers(h), axes.columns.first_reader(first),
              axes.columns.end_of_readers(first), [&](index_t o) { return axes.rows.template weight<real>(o, h); },
              [&](index_t o) { return axes.columns.template weight<real>(o, first); },
              dy + row / g.in_height * g.out_height * g.out_width * g.run, dx, (row * g.in_width + first) * g.run,
              epilogue);
        });
      }
      ++first;
    }
  });
}

}  // namespace gradus::kernels
