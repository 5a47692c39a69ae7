// SPDX-License-Identifier: BSL-1.0
//
// Pooling of images whose channels are planes: the loops over the rows of a plane.
// Module: kernels. Depends on: core.
#pragma once

#include <algorithm>    // std::copy, std::fill, std::max, std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <limits>       // std::numeric_limits
#include <type_traits>  // std::remove_cvref_t

#include "gradus/core/index.hpp"                      // index_t
#include "gradus/kernels/conv2d.hpp"                  // backward_epilogue
#include "gradus/kernels/cpu/elementwise_packet.hpp"  // packet, for_each_packet
#include "gradus/kernels/cpu/pool2d_windows.hpp"      // pool_range, pool_divisors, running_max
#include "gradus/kernels/pool2d.hpp"                  // pool2d_geometry

namespace gradus::kernels::detail {

// A padded row is taken apart into `phases` rows, one for each remainder of the column by the stride. Then
// column s of all the windows of a row of outputs is one run of adjacent elements: phase s % stride from s / stride on.

/// How rows of a plane are taken apart.
template <class Element>
struct pool_phases {
  static constexpr index_t capacity = 8192;  ///< elements of a buffer
  static constexpr index_t most_columns = 256;

  explicit pool_phases(const pool2d_geometry& g) noexcept
      : stride{g.out_width == 1 ? index_t{1} : g.stride_width},
        count{std::min(stride, g.kernel_width)},
        width{(g.out_width + full_packet<Element>::lanes - 1) / full_packet<Element>::lanes *
              full_packet<Element>::lanes},
        pitch{width + (g.kernel_width - 1) / stride} {}

  [[nodiscard]] bool fits(const pool2d_geometry& g, index_t rows) const noexcept {
    return g.kernel_width <= most_columns && rows <= most_columns && rows * count * pitch <= capacity &&
           std::max(pitch * stride, g.pad_left + g.in_width) <= capacity;
  }

  /// Where column s of the windows begins in a row that is taken apart.
  [[nodiscard]] index_t column(index_t s) const noexcept { return s % stride * pitch + s / stride; }

  /// Takes a row of the image apart; what lies outside the image is `outside`.
  void split(const pool2d_geometry& g, const pool_cover* inside_image, const Element* row, Element outside,
             Element* to) const noexcept {
    for (index_t t = 0; t < count; ++t, to += pitch) {
      const pool_cover range = inside_image[t];
      for (index_t j = 0; j < range.begin; ++j) {
        to[j] = outside;
      }
      gather(row, t - g.pad_left, range.begin, range.end, to);
      for (index_t j = std::max(range.begin, range.end); j < pitch; ++j) {
        to[j] = outside;
      }
    }
  }

  /// The elements of phase t that lie inside the image: element j is column j * stride + t - pad_left.
  [[nodiscard]] pool_cover inside(const pool2d_geometry& g, index_t t) const noexcept {
    const index_t shift = t - g.pad_left;
    return {std::min(pitch, shift >= 0 ? index_t{0} : (-shift + stride - 1) / stride),
            std::min(pitch, g.in_width > shift ? (g.in_width - shift + stride - 1) / stride : index_t{0})};
  }

  /// Adds or writes the rows put together again, and what no window holds as 0, with the epilogue of the gradient.
  void merge(const pool2d_geometry& g, const Element* from, Element* padded, Element* dx,
             const backward_epilogue<Element>& epilogue) const noexcept {
    const Element* row = from;
    if (stride > 1) {
      const index_t columns = std::min(pitch * stride, g.pad_left + g.in_width);
      if (count < stride) {
        std::fill(padded, padded + pitch * stride, Element{0});
      }
      if (stride == 2 && count == 2) {
        interleave(from, from + pitch, pitch, padded);
      } else {
        for (index_t t = 0; t < count; ++t) {
          for (index_t j = 0; j < pitch; ++j) {
            padded[j * stride + t] = from[t * pitch + j];
          }
        }
      }
      std::fill(padded + columns, padded + g.pad_left + g.in_width, Element{0});
      row = padded;
    } else if (pitch < g.pad_left + g.in_width) {
      std::copy(from, from + pitch, padded);
      std::fill(padded + pitch, padded + g.pad_left + g.in_width, Element{0});
      row = padded;
    }
    for_each_packet<Element>(0, g.in_width, [&]<class Packet>(Packet, index_t w) {
      store_slope<Packet>(dx, Packet::load(row + g.pad_left + w), epilogue, w);
    });
  }

  index_t stride;  ///< of columns; 1 where there is one window
  index_t count;   ///< phases that hold entries of windows
  index_t width;   ///< outputs of a row, rounded up to whole packets
  index_t pitch;   ///< elements of a phase

 private:
  /// to[j] = row[shift + j * stride] for begin <= j < end
  void gather(const Element* row, index_t shift, index_t begin, index_t end, Element* to) const noexcept {
    index_t j = begin;
    if (begin >= end) {
      return;
    }
    if (stride == 1) {
      for_each_packet<Element>(
          begin, end, [=]<class Packet>(Packet, index_t k) { Packet::store(to + k, Packet::load(row + (shift + k))); });
      return;
    }
    if constexpr (full_packet<Element>::lanes == 4) {
      if (stride == 2) {
        using packet = full_packet<Element>;
        for (; j + 5 <= end; j += 4) {  // reads one element behind the last that it needs
          const auto low = packet::load(row + (shift + 2 * j));
          const auto high = packet::load(row + (shift + 2 * j + 4));
          packet::store(to + j, __builtin_shufflevector(low, high, 0, 2, 4, 6));
        }
      }
    }
    for (; j < end; ++j) {
      to[j] = row[shift + j * stride];
    }
  }

  static void interleave(const Element* even, const Element* odd, index_t count, Element* to) noexcept {
    index_t j = 0;
    if constexpr (full_packet<Element>::lanes == 4) {
      using packet = full_packet<Element>;
      for (; j + 4 <= count; j += 4) {
        const auto a = packet::load(even + j);
        const auto b = packet::load(odd + j);
        packet::store(to + 2 * j, __builtin_shufflevector(a, b, 0, 4, 1, 5));
        packet::store(to + 2 * j + 4, __builtin_shufflevector(a, b, 2, 6, 3, 7));
      }
    }
    for (; j < count; ++j) {
      to[2 * j] = even[j];
      to[2 * j + 1] = odd[j];
    }
  }
};

/// Buffers of a task: on the stack, because a training step allocates nothing.
template <class Element>
struct pool_buffers {
  static constexpr auto capacity = static_cast<std::size_t>(pool_phases<Element>::capacity);

  pool_buffers(const pool2d_geometry& g, const pool_phases<Element>& phases) noexcept {
    for (index_t s = 0; s < g.kernel_width; ++s) {
      column[static_cast<std::size_t>(s)] = phases.column(s);
    }
    for (index_t t = 0; t < phases.count; ++t) {
      inside[static_cast<std::size_t>(t)] = phases.inside(g, t);
    }
  }

  std::array<Element, capacity> rows;
  std::array<Element, capacity> other;
  std::array<index_t, static_cast<std::size_t>(pool_phases<Element>::most_columns)> column;
  std::array<pool_cover, static_cast<std::size_t>(pool_phases<Element>::most_columns)> inside;
};

/// Windows of 2 x 2 that do not overlap: the usual pooling, and worth loops of its own.
[[nodiscard]] constexpr bool pools_halves(const pool2d_geometry& g) noexcept {
  return g.kernel_height == 2 && g.kernel_width == 2 && g.stride_height == 2 && g.stride_width == 2 && g.pad_top == 0 &&
         g.pad_left == 0 && 2 * g.out_height <= g.in_height && 2 * g.out_width <= g.in_width;
}

/// Two packets of neighbours as a packet of the even and a packet of the odd ones, and back.
template <class Packet>
struct pairs {
  using type = typename Packet::type;
  using element = std::remove_cvref_t<decltype(type{}[0])>;

  GRADUS_ALWAYS_INLINE static pairs load(const element* from) noexcept {
    if constexpr (Packet::lanes == 1) {
      return {Packet::load(from), Packet::load(from + 1)};
    } else {
      const auto low = Packet::load(from);
      const auto high = Packet::load(from + Packet::lanes);
      if constexpr (Packet::lanes == 2) {
        return {__builtin_shufflevector(low, high, 0, 2), __builtin_shufflevector(low, high, 1, 3)};
      } else {
        static_assert(Packet::lanes == 4);
        return {__builtin_shufflevector(low, high, 0, 2, 4, 6), __builtin_shufflevector(low, high, 1, 3, 5, 7)};
      }
    }
  }
  /// Stores as a gradient at element i of dx.
  GRADUS_ALWAYS_INLINE void store(element* dx, const backward_epilogue<element>& epilogue, index_t i) const noexcept {
    if constexpr (Packet::lanes == 1) {
      store_slope<Packet>(dx, even, epilogue, i);
      store_slope<Packet>(dx, odd, epilogue, i + 1);
    } else if constexpr (Packet::lanes == 2) {
      store_slope<Packet>(dx, __builtin_shufflevector(even, odd, 0, 2), epilogue, i);
      store_slope<Packet>(dx, __builtin_shufflevector(even, odd, 1, 3), epilogue, i + 2);
    } else {
      static_assert(Packet::lanes == 4);
      store_slope<Packet>(dx, __builtin_shufflevector(even, odd, 0, 4, 1, 5), epilogue, i);
      store_slope<Packet>(dx, __builtin_shufflevector(even, odd, 2, 6, 3, 7), epilogue, i + 4);
    }
  }

  type even;
  type odd;
};

/// One plane; needs pools_halves(g).
template <bool WantChoice, class Element>
void max_halves(const pool2d_geometry& g, const Element* x, Element* y, std::uint8_t* choice) noexcept {
  for (index_t p = 0; p < g.out_height; ++p, x += 2 * g.in_width, y += g.out_width) {
    for_each_packet<Element>(0, g.out_width, [&]<class Packet>(Packet, index_t q) {
      const auto top = pairs<Packet>::load(x + 2 * q);
      const auto bottom = pairs<Packet>::load(x + g.in_width + 2 * q);
      running_max<Packet, WantChoice> largest;
      largest.best = top.even;
      largest.nan = top.even != top.even;
      largest.take(top.odd, Packet::broadcast(Element{1}));
      largest.take(bottom.even, Packet::broadcast(Element{2}));
      largest.take(bottom.odd, Packet::broadcast(Element{3}));
      Packet::store(y + q, largest.best);
      if constexpr (WantChoice) {
        Packet::store_bytes(choice + q, largest.choice());
      }
      if (Packet::any(largest.nan)) [[unlikely]] {
        for (index_t i = q; i < q + Packet::lanes; ++i) {
          const careful_max<Element> careful{
              g, {0, 0, 2}, {0, 0, 2}, [&](index_t r, index_t s) { return x[r * g.in_width + 2 * i + s]; }};
          y[i] = careful.best;
          if constexpr (WantChoice) {
            choice[i] = static_cast<std::uint8_t>(careful.chosen);
          }
        }
      }
    });
    choice += WantChoice ? g.out_width : 0;
  }
}

/// One plane of gradients; needs pools_halves(g). pair(packet, p, q, r) gives the gradients of row r of the windows.
template <class Element, class Pair>
void slopes_halves(const pool2d_geometry& g, Element* dx, const backward_epilogue<Element>& epilogue,
                   const Pair& pair) noexcept {
  const auto nothing = [&](index_t begin, index_t end) {
    for_each_packet<Element>(begin, end, [&]<class Packet>(Packet, index_t i) {
      store_slope<Packet>(dx, typename Packet::type{}, epilogue, i);
    });
  };
  for (index_t p = 0; p < g.out_height; ++p) {
    for (index_t r = 0; r < 2; ++r) {
      const index_t row = (2 * p + r) * g.in_width;
      for_each_packet<Element>(0, g.out_width, [&]<class Packet>(Packet packet, index_t q) {
        pair(packet, p, q, r).store(dx, epilogue, row + 2 * q);
      });
      nothing(row + 2 * g.out_width, row + g.in_width);
    }
  }
  nothing(2 * g.out_height * g.in_width, g.in_height * g.in_width);
}

/// One plane; needs phases.fits(g, g.kernel_height).
template <bool WantChoice, class Element>
void max_plane(const pool2d_geometry& g, const pool_phases<Element>& phases, pool_buffers<Element>& buffers,
               const Element* x, Element* y, std::uint8_t* choice) noexcept {
  using packet = full_packet<Element>;
  if (pools_halves(g)) {
    max_halves<WantChoice>(g, x, y, choice);
    return;
  }
  constexpr Element lowest = -std::numeric_limits<Element>::infinity();
  const index_t row_size = phases.count * phases.pitch;
  index_t ready = 0;        // rows below it are taken apart; row h is at place h % kernel_height
  index_t ready_place = 0;  // of row `ready`
  index_t place = 0;        // of the first row of the window
  index_t place_row = 0;
  const auto next = [&](index_t at) { return at + 1 == g.kernel_height ? 0 : at + 1; };
  for (index_t p = 0; p < g.out_height; ++p) {
    const pool_range rows = pool_rows(g, p);
    for (; ready < rows.start + rows.end; ++ready, ready_place = next(ready_place)) {
      if (ready >= rows.start + rows.begin) {
        phases.split(g, buffers.inside.data(), x + ready * g.in_width, lowest,
                     buffers.rows.data() + ready_place * row_size);
      }
    }
    for (; place_row < rows.start + rows.begin; ++place_row) {
      place = next(place);
    }
    for (index_t q = 0; q < g.out_width; q += packet::lanes) {
      running_max<packet, WantChoice> largest;
      largest.best = packet::broadcast(lowest);
      if constexpr (WantChoice) {
        // Where nothing is larger than minus infinity, the first entry inside the image.
        largest.chosen = packet::broadcast(static_cast<Element>(rows.begin * g.kernel_width));
        if (q * g.stride_width < g.pad_left) {
          for (index_t i = 0; i < packet::lanes; ++i) {
            largest.chosen[i] += static_cast<Element>(std::max(index_t{0}, g.pad_left - (q + i) * g.stride_width));
          }
        }
      }
      index_t at = place;
      auto entry = packet::broadcast(static_cast<Element>(rows.begin * g.kernel_width));
      for (index_t r = rows.begin; r < rows.end; ++r, at = next(at)) {
        const Element* const row = buffers.rows.data() + at * row_size + q;
        for (index_t s = 0; s < g.kernel_width; ++s, entry += Element{1}) {
          largest.take(packet::load(row + buffers.column[static_cast<std::size_t>(s)]), entry);
        }
      }
      packet::store(y + q, largest.best, g.out_width - q);
      if constexpr (WantChoice) {
        packet::store_bytes(choice + q, largest.choice(), g.out_width - q);
      }
      if (packet::any(largest.nan)) [[unlikely]] {
        for (index_t i = q; i < std::min(g.out_width, q + packet::lanes); ++i) {
          const pool_range columns = pool_columns(g, i);
          const careful_max<Element> careful{g, rows, columns, [&](index_t r, index_t s) {
                                               return x[(rows.start + r) * g.in_width + columns.start + s];
                                             }};
          y[i] = careful.best;
          if constexpr (WantChoice) {
            choice[i] = static_cast<std::uint8_t>(careful.chosen);
          }
        }
      }
    }
    y += g.out_width;
    choice += WantChoice ? g.out_width : 0;
  }
}

/// One plane; needs phases.fits(g, 1).
template <class Element>
void max_slopes_plane(const pool2d_geometry& g, const pool_phases<Element>& phases, pool_buffers<Element>& buffers,
                      const Element* dy, const std::uint8_t* choice, Element* dx,
                      backward_epilogue<Element> epilogue) noexcept {
  using index_type = typename full_packet<Element>::index_type;
  if (pools_halves(g)) {
    slopes_halves(g, dx, epilogue, [&]<class Packet>(Packet, index_t p, index_t q, index_t r) {
      const auto chosen = Packet::load_bytes(choice + p * g.out_width + q);
      const auto slope = Packet::load(dy + p * g.out_width + q);
      const typename Packet::index_vector zero{};
      return pairs<Packet>{Packet::masked(chosen == static_cast<index_type>(2 * r) - zero, slope),
                           Packet::masked(chosen == static_cast<index_type>(2 * r + 1) - zero, slope)};
    });
    return;
  }
  Element* const sums = buffers.rows.data();
  pool_walk covering{g.stride_height, g.pad_top, g.kernel_height, g.out_height};
  for (index_t h = 0; h < g.in_height; ++h, dx += g.in_width) {
    std::fill(sums, sums + phases.count * phases.pitch, Element{0});
    const pool_cover p = covering(h);
    for (index_t i = p.begin; i < p.end; ++i) {
      const index_t r = h + g.pad_top - i * g.stride_height;
      const Element* const slopes = dy + i * g.out_width;
      const std::uint8_t* const chosen = choice + i * g.out_width;
      for (index_t s = 0; s < g.kernel_width; ++s) {
        Element* const to = sums + buffers.column[static_cast<std::size_t>(s)];
        const auto entry = static_cast<index_type>(r * g.kernel_width + s);
        for_each_packet<Element>(0, g.out_width, [=]<class Packet>(Packet, index_t q) {
          const auto mine = Packet::load_bytes(chosen + q) == entry - typename Packet::index_vector{};
          Packet::store(to + q, Packet::load(to + q) + Packet::masked(mine, Packet::load(slopes + q)));
        });
      }
    }
    phases.merge(g, sums, buffers.other.data(), dx, epilogue);
    epilogue.relu_output += epilogue.relu_output == nullptr ? 0 : g.in_width;
  }
}

/// One plane; needs phases.fits(g, 1).
template <class Element>
void average_plane(const pool2d_geometry& g, const pool_phases<Element>& phases, pool_buffers<Element>& buffers,
                   const Element* x, Element* y, const pool_divisors<Element>& divisors) noexcept {
  using packet = full_packet<Element>;
  if (pools_whole_image(g)) {
    typename packet::type sums{};
    const index_t count = g.in_height * g.in_width;
    index_t i = 0;
    for (; i + packet::lanes <= count; i += packet::lanes) {
      sums += packet::load(x + i);
    }
    Element sum = 0;
    for (; i < count; ++i) {
      sum += x[i];
    }
    for (index_t lane = 0; lane < packet::lanes; ++lane) {
      sum += sums[lane];
    }
    *y = sum / (divisors.rows(g, pool_rows(g, 0)) * divisors.columns[0]);
    return;
  }
  if (pools_halves(g)) {
    for (index_t p = 0; p < g.out_height; ++p, x += 2 * g.in_width, y += g.out_width) {
      for_each_packet<Element>(0, g.out_width, [&]<class Packet>(Packet, index_t q) {
        const auto top = pairs<Packet>::load(x + 2 * q);
        const auto bottom = pairs<Packet>::load(x + g.in_width + 2 * q);
        Packet::store(y + q, ((top.even + bottom.even) + (top.odd + bottom.odd)) / Element{4});
      });
    }
    return;
  }
  for (index_t p = 0; p < g.out_height; ++p, y += g.out_width) {
    const pool_range rows = pool_rows(g, p);
    Element* const sum = buffers.other.data();
    const Element* const first = x + (rows.start + rows.begin) * g.in_width;
    for_each_packet<Element>(0, g.in_width, [&]<class Packet>(Packet, index_t w) {
      auto total = Packet::load(first + w);
      for (index_t r = 1; r < rows.end - rows.begin; ++r) {
        total += Packet::load(first + r * g.in_width + w);
      }
      Packet::store(sum + w, total);
    });
    phases.split(g, buffers.inside.data(), sum, Element{0}, buffers.rows.data());
    for (index_t q = 0; q < g.out_width; q += packet::lanes) {
      typename packet::type total{};
      for (index_t s = 0; s < g.kernel_width; ++s) {
        total += packet::load(buffers.rows.data() + buffers.column[static_cast<std::size_t>(s)] + q);
      }
      total /= packet::load(divisors.columns.data() + q) * divisors.rows(g, rows);
      packet::store(y + q, total, g.out_width - q);
    }
  }
}

/// One plane; needs phases.fits(g, 1).
template <class Element>
void average_slopes_plane(const pool2d_geometry& g, const pool_phases<Element>& phases, pool_buffers<Element>& buffers,
                          const Element* dy, Element* dx, const pool_divisors<Element>& divisors,
                          backward_epilogue<Element> epilogue) noexcept {
  if (pools_whole_image(g)) {
    const Element share = *dy / (divisors.rows(g, pool_rows(g, 0)) * divisors.columns[0]);
    for_each_packet<Element>(0, g.in_height * g.in_width, [&]<class Packet>(Packet, index_t i) {
      store_slope<Packet>(dx, Packet::broadcast(share), epilogue, i);
    });
    return;
  }
  if (pools_halves(g)) {
    slopes_halves(g, dx, epilogue, [&]<class Packet>(Packet, index_t p, index_t q, index_t) {
      const auto share = Packet::load(dy + p * g.out_width + q) / Element{4};
      return pairs<Packet>{share, share};
    });
    return;
  }
  std::array<Element, static_cast<std::size_t>(pool_divisors<Element>::capacity)> shares;
  Element* const sums = buffers.rows.data();
  pool_cover before{-1, -1};  // the outputs that `sums` is of
  pool_walk covering{g.stride_height, g.pad_top, g.kernel_height, g.out_height};
  for (index_t h = 0; h < g.in_height; ++h, dx += g.in_width) {
    const pool_cover p = covering(h);
    if (p.begin != before.begin || p.end != before.end) {
      before = p;
      std::fill(sums, sums + phases.count * phases.pitch, Element{0});
      for_each_packet<Element>(0, g.out_width, [&]<class Packet>(Packet, index_t q) {
        typename Packet::type share{};
        for (index_t i = p.begin; i < p.end; ++i) {
          share += Packet::load(dy + i * g.out_width + q) /
                   (Packet::load(divisors.columns.data() + q) * divisors.rows(g, pool_rows(g, i)));
        }
        Packet::store(shares.data() + q, share);
      });
      for (index_t s = 0; s < g.kernel_width; ++s) {
        Element* const to = sums + buffers.column[static_cast<std::size_t>(s)];
        for_each_packet<Element>(0, g.out_width, [&]<class Packet>(Packet, index_t q) {
          Packet::store(to + q, Packet::load(to + q) + Packet::load(shares.data() + q));
        });
      }
    }
    phases.merge(g, sums, buffers.other.data(), dx, epilogue);
    epilogue.relu_output += epilogue.relu_output == nullptr ? 0 : g.in_width;
  }
}

}  // namespace gradus::kernels::detail
