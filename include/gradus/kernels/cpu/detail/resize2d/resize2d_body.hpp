// SPDX-License-Identifier: BSL-1.0
//
// The loops of bilinear resizing and of gradients, for one instruction set.

// No `#pragma once`: for_each_target.hpp says what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::kernels::detail::GRADUS_TARGET {

/// Computes rows [begin, end) of all planes of y, each pixel from four of x: first between rows, then between columns.
template <class Element>
void resize_bilinear(target /*of*/, const resize2d_geometry& g, index_t begin, index_t end, const Element* x,
                     Element* y) noexcept {
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
          for_each_packet<Element>(0, g.run, [=](packet<Element> p, index_t i) {
            p.store(pixel + i, (p.load(a + i) * up + p.load(c + i) * down) * stay +
                                   (p.load(b + i) * up + p.load(d + i) * down) * right);
          });
        }
      } else if (width <= resize_columns) {
        real* const blended = between.data();
        // Whole vectors: numbers of a part of one could not be read soon.
        for_each_packet<Element>(0, width, [=](packet<Element> p, index_t i) {
          packet<Element>{}.store(blended + i, p.load(upper + left + i) * up + p.load(lower + left + i) * down);
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

/// The gradient of one pixel of x: the sum of dy over its readers in rows [top, bottom) and columns [left, right).
/// down(o) and along(o) are their weights.
template <class Element, class Down, class Along>
void gather_pixel(target /*of*/, const resize2d_geometry& g, index_t top, index_t bottom, index_t left, index_t right,
                  const Down& down, const Along& along, const Element* dy, Element* dx, index_t at,
                  const backward_epilogue<Element>& epilogue) noexcept {
  using packets = packet<Element>;
  constexpr index_t lanes = packets::lanes;
  for_each_block<Element>(g.run, [&]<int Block>(packets p, std::integral_constant<int, Block>, index_t c) {
    typename packets::type sums[std::size_t{Block}]{};
    for (index_t h = top; h < bottom; ++h) {
      const auto of_row = down(h);
      const Element* const row = dy + h * g.out_width * g.run + c;
      for (index_t w = left; w < right; ++w) {
        const auto weight = of_row * along(w);
#pragma GCC unroll 4
        for (int k = 0; k < Block; ++k) {
          sums[k] += p.load(row + w * g.run + k * lanes) * weight;
        }
      }
    }
#pragma GCC unroll 4
    for (int k = 0; k < Block; ++k) {
      store_gradient(p, dx, sums[k], epilogue, at + c + k * lanes);
    }
  });
}

/// The gradients of rows [begin, end) of all planes of x, for the columns of a table.
template <class Element>
void gather_rows(target of, const resize2d_geometry& g, const resize_axis<index_t>& rows,
                 const resize_readers<computed<Element>>& columns, index_t first_column, index_t begin, index_t end,
                 const Element* dy, Element* dx, const backward_epilogue<Element>& epilogue) noexcept {
  using real = computed<Element>;
  const index_t left = columns.first(0);
  const index_t last = columns.count() - 1;
  const index_t width = columns.first(last) + columns.readers(last) - left;
  std::array<real, 32> kept;                                               // weights of rows
  std::array<real, static_cast<std::size_t>(2 * resize_columns)> of_rows;  // their sums
  std::array<real, static_cast<std::size_t>(2 * resize_columns)> of_columns;
  real* const sums = of_rows.data();
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
      constexpr packet<Element> whole{};
      std::fill_n(sums, (width + whole.count - 1) / whole.count * whole.count, real{0});
      for (index_t o = top; o < bottom; ++o) {
        const real weight = down(o);
        const Element* const from = plane + o * g.out_width + left;
        for_each_packet<Element>(0, width, [=](packet<Element> p, index_t i) {
          whole.store(sums + i, whole.load(sums + i) + p.load(from + i) * weight);
        });
      }
      for (index_t k = 0; k <= last; ++k) {
        const real* const from = sums + columns.first(k) - left;
        const real* const weights = columns.weights(k);
        real sum = 0;
        for (index_t o = 0; o < columns.readers(k); ++o) {
          sum += from[o] * weights[o];
        }
        of_columns[static_cast<std::size_t>(k)] = sum;
      }
      for_each_packet<Element>(0, last + 1, [&](packet<Element> p, index_t k) {
        store_gradient(p, dx, p.load(of_columns.data() + k), epilogue, at + k);
      });
      continue;
    }
    for (index_t k = 0; k <= last; ++k) {
      const index_t first = columns.first(k);
      const real* const weights = columns.weights(k);
      gather_pixel(
          of, g, top, bottom, first, first + columns.readers(k), down, [&](index_t o) { return weights[o - first]; },
          plane, dx, at + k * g.run, epilogue);
    }
  }
}

}  // namespace gradus::kernels::detail::GRADUS_TARGET

#endif
