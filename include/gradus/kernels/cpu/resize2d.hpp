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
#include "gradus/kernels/cpu/detail/elementwise/packet.hpp"
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

/// Computes rows [begin, end) of all planes of y, each pixel from four of x: first between rows, then between columns.
template <class Element>
void resize_bilinear(const resize2d_geometry& g, index_t begin, index_t end, const Element* x, Element* y) noexcept {
  using real = computed<Element>;
  const resize_axes axes{g};
  std::array<resize_tap<real>, static_cast<std::size_t>(resize_columns)> taps;
  std::array<real, static_cast<std::size_t>(resize_columns)> between;  // a row between two rows of x
  for (index_t first = 0; first < g.out_width; first += resize_columns) {
    const index_t columns = std::min(resize_columns, g.out_width - first);
    for (index_t k = 0; k < columns; ++k) {
      taps[static_cast<std::size_t>(k)] = axes.columns.tap<real>(first + k);
    }
    const index_t left = taps[0].low;
    const index_t width = taps[static_cast<std::size_t>(columns - 1)].high + 1 - left;
    for (index_t row = begin; row < end; ++row) {
      const index_t plane = row / g.out_height;
      const resize_tap<real> vertical = axes.rows.tap<real>(row % g.out_height);
      const Element* const upper = x + (plane * g.in_height + vertical.low) * g.in_width * g.run;
      const Element* const lower = x + (plane * g.in_height + vertical.high) * g.in_width * g.run;
      Element* const to = y + (row * g.out_width + first) * g.run;
      const real down = vertical.weight;
      const real up = real{1} - down;
      if (g.run > 1) {
        for (index_t k = 0; k < columns; ++k) {
          const resize_tap<real>& tap = taps[static_cast<std::size_t>(k)];
          const Element* const a = upper + tap.low * g.run;
          const Element* const b = upper + tap.high * g.run;
          const Element* const c = lower + tap.low * g.run;
          const Element* const d = lower + tap.high * g.run;
          Element* const pixel = to + k * g.run;
          const real right = tap.weight;
          const real stay = real{1} - right;
          for_each_packet<Element>(0, g.run, [=]<class Packet>(Packet, index_t i) {
            Packet::store(pixel + i, (Packet::load(a + i) * up + Packet::load(c + i) * down) * stay +
                                         (Packet::load(b + i) * up + Packet::load(d + i) * down) * right);
          });
        }
      } else if (width <= resize_columns) {
        real* const blended = between.data();
        for_each_packet<Element>(0, width, [=]<class Packet>(Packet, index_t i) {
          Packet::store(blended + i, Packet::load(upper + left + i) * up + Packet::load(lower + left + i) * down);
        });
        for (index_t k = 0; k < columns; ++k) {
          const resize_tap<real>& tap = taps[static_cast<std::size_t>(k)];
          to[k] = static_cast<Element>(blended[tap.low - left] * (real{1} - tap.weight) +
                                       blended[tap.high - left] * tap.weight);
        }
      } else {  // a smaller image: most pixels of x are not read
        for (index_t k = 0; k < columns; ++k) {
          const resize_tap<real>& tap = taps[static_cast<std::size_t>(k)];
          const auto blend = [&](index_t i) {
            return static_cast<real>(upper[i]) * up + static_cast<real>(lower[i]) * down;
          };
          to[k] = static_cast<Element>(blend(tap.low) * (real{1} - tap.weight) + blend(tap.high) * tap.weight);
        }
      }
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

/// dx[i] = mask * (value + (accumulate ? dx[i] : 0))
template <class Packet, class Element>
GRADUS_ALWAYS_INLINE void store_gradient(Packet /*width*/, typename Packet::type value, Element* dx, index_t i,
                                         const backward_epilogue<Element>& epilogue) noexcept {
  if (epilogue.accumulate) {
    value += Packet::load(dx + i);
  }
  if (epilogue.relu_output != nullptr) {
    value = Packet::where_positive(Packet::load(epilogue.relu_output + i), value);
  }
  Packet::store(dx + i, value);
}

/// The gradient of one pixel of x: the sum of dy over its readers in rows [top, bottom) and columns [left, right).
/// down(o) and along(o) are their weights.
template <class Element, class Down, class Along>
void gather_pixel(const resize2d_geometry& g, index_t top, index_t bottom, index_t left, index_t right,
                  const Down& down, const Along& along, const Element* dy, Element* dx, index_t at,
                  const backward_epilogue<Element>& epilogue) noexcept {
  const auto gather = [&]<class Packet, int Count>(Packet packet, std::integral_constant<int, Count>, index_t c) {
    constexpr std::size_t count{Count};
    typename Packet::type sums[count]{};
    for (index_t h = top; h < bottom; ++h) {
      const auto of_row = down(h);
      const Element* const row = dy + h * g.out_width * g.run + c;
      for (index_t w = left; w < right; ++w) {
        const auto weight = of_row * along(w);
        for (index_t k = 0; k < Count; ++k) {
          sums[k] += Packet::load(row + w * g.run + k * Packet::lanes) * weight;
        }
      }
    }
    for (index_t k = 0; k < Count; ++k) {
      store_gradient(packet, sums[k], dx, at + c + k * Packet::lanes, epilogue);
    }
  };
  using full = full_packet<Element>;
  using single = packet<Element, 1>;
  index_t c = 0;
  for (; c + 4 * full::lanes <= g.run; c += 4 * full::lanes) {
    gather(full{}, std::integral_constant<int, 4>{}, c);
  }
  for (; c + full::lanes <= g.run; c += full::lanes) {
    gather(full{}, std::integral_constant<int, 1>{}, c);
  }
  for (; c < g.run; ++c) {
    gather(single{}, std::integral_constant<int, 1>{}, c);
  }
}

/// The gradients of rows [begin, end) of all planes of x, for the columns of a table. With single elements as pixels,
/// `sums` (capacity resize_columns * 2) takes the sums of rows.
template <class Element>
void gather_rows(const resize2d_geometry& g, const resize_axis<index_t>& rows,
                 const resize_readers<computed<Element>>& columns, index_t first_column, index_t begin, index_t end,
                 const Element* dy, Element* dx, computed<Element>* sums,
                 const backward_epilogue<Element>& epilogue) noexcept {
  using real = computed<Element>;
  const index_t left = columns.first(0);
  const index_t last = columns.count() - 1;
  const index_t width = columns.first(last) + columns.readers(last) - left;
  std::array<real, 32> kept;  // weights of rows
  for (index_t row = begin; row < end; ++row) {
    const index_t h = row % g.in_height;
    const index_t top = rows.first_reader(h);
    const index_t bottom = rows.end_of_readers(h);
    const bool few = bottom - top <= static_cast<index_t>(kept.size());
    for (index_t o = top; few && o < bottom; ++o) {
      kept[static_cast<std::size_t>(o - top)] = rows.weight<real>(o, h);
    }
    const auto down = [&](index_t o) {
      return few ? kept[static_cast<std::size_t>(o - top)] : rows.weight<real>(o, h);
    };
    const Element* const plane = dy + row / g.in_height * g.out_height * g.out_width * g.run;
    const index_t at = (row * g.in_width + first_column) * g.run;
    if (g.run == 1) {
      std::fill_n(sums, width, real{0});
      for (index_t o = top; o < bottom; ++o) {
        const real weight = down(o);
        const Element* const from = plane + o * g.out_width + left;
        for_each_packet<Element>(0, width, [=]<class Packet>(Packet, index_t i) {
          Packet::store(sums + i, Packet::load(sums + i) + Packet::load(from + i) * weight);
        });
      }
      for (index_t k = 0; k <= last; ++k) {
        const real* const from = sums + columns.first(k) - left;
        const real* const weights = columns.weights(k);
        real sum = 0;
        for (index_t o = 0; o < columns.readers(k); ++o) {
          sum += from[o] * weights[o];
        }
        using single = packet<Element, 1>;
        store_gradient(single{}, single::broadcast(sum), dx, at + k, epilogue);
      }
      continue;
    }
    for (index_t k = 0; k <= last; ++k) {
      const index_t first = columns.first(k);
      const real* const weights = columns.weights(k);
      gather_pixel(
          g, top, bottom, first, first + columns.readers(k), down, [&](index_t o) { return weights[o - first]; }, plane,
          dx, at + k * g.run, epilogue);
    }
  }
}

}  // namespace detail

/// See has_resize2d_forward.
template <network_element Element>
void resize2d_forward(cpu& device, const resize2d_geometry& geometry, const Element* x, Element* y) {
  const index_t grain = detail::resize_grain(geometry.out_width * geometry.run);
  device.parallel_for(geometry.planes * geometry.out_height, grain, [&](index_t begin, index_t end) {
    if (geometry.mode == interpolation::nearest) {
      detail::resize_nearest<sizeof(Element)>(geometry, begin, end, reinterpret_cast<const std::byte*>(x),
                                              reinterpret_cast<std::byte*>(y));
    } else {
      detail::resize_bilinear(geometry, begin, end, x, y);
    }
  });
}

/// See has_resize2d_backward.
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
    std::array<real, static_cast<std::size_t>(2 * detail::resize_columns)> sums;
    for (index_t first = 0; first < g.in_width;) {
      columns.clear();
      while (first + columns.count() < g.in_width && columns.append(axes.columns, first + columns.count())) {
      }
      if (columns.count() > 0) {
        detail::gather_rows(g, axes.rows, columns, first, begin, end, dy, dx, sums.data(), epilogue);
        first += columns.count();
        continue;
      }
      for (index_t row = begin; row < end; ++row) {  // a column with more readers than the table has entries
        const index_t h = row % g.in_height;
        detail::gather_pixel(
            g, axes.rows.first_reader(h), axes.rows.end_of_readers(h), axes.columns.first_reader(first),
            axes.columns.end_of_readers(first), [&](index_t o) { return axes.rows.template weight<real>(o, h); },
            [&](index_t o) { return axes.columns.template weight<real>(o, first); },
            dy + row / g.in_height * g.out_height * g.out_width * g.run, dx, (row * g.in_width + first) * g.run,
            epilogue);
      }
      ++first;
    }
  });
}

}  // namespace gradus::kernels
