// SPDX-License-Identifier: BSL-1.0
//
// The loops of pooling: over the channels of a pixel, and over the rows of a plane.
// Module: kernels. Depends on: core.
#pragma once

#include <algorithm>  // std::fill, std::max, std::min
#include <array>      // std::array
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint8_t
#include <limits>     // std::numeric_limits

#include "gradus/core/index.hpp"                      // index_t
#include "gradus/kernels/conv2d.hpp"                  // backward_epilogue
#include "gradus/kernels/cpu/elementwise_packet.hpp"  // packet, for_each_packet
#include "gradus/kernels/pool2d.hpp"                  // pool2d_geometry

namespace gradus::kernels::detail {

/// The part of a window that lies inside the image, as offsets in the window.
struct pool_range {
  index_t start;  ///< the first row (column) of the window, may be negative
  index_t begin;  ///< the first offset inside the image
  index_t end;    ///< one past the last offset inside the image
};

[[nodiscard]] constexpr pool_range pool_window(index_t position, index_t stride, index_t pad, index_t kernel,
                                               index_t extent) noexcept {
  const index_t start = position * stride - pad;
  return {start, std::max(index_t{0}, -start), std::min(kernel, extent - start)};
}

[[nodiscard]] constexpr pool_range pool_rows(const pool2d_geometry& g, index_t p) noexcept {
  return pool_window(p, g.stride_height, g.pad_top, g.kernel_height, g.in_height);
}
[[nodiscard]] constexpr pool_range pool_columns(const pool2d_geometry& g, index_t q) noexcept {
  return pool_window(q, g.stride_width, g.pad_left, g.kernel_width, g.in_width);
}

/// The outputs whose windows hold one row (column): [begin, end).
struct pool_cover {
  index_t begin;
  index_t end;
};

[[nodiscard]] constexpr pool_cover pool_covering(index_t place, index_t stride, index_t pad, index_t kernel,
                                                 index_t outputs) noexcept {
  const index_t last = (place + pad) / stride;
  const index_t before = place + pad - kernel;  // a window that starts here ends just before `place`
  const index_t begin = before < 0 ? 0 : before / stride + 1;
  return {std::min(begin, outputs), std::min(outputs, last + 1)};
}

/// What average pooling divides by: the product of a number of rows and a number of columns.
template <class Element>
struct pool_divisors {
  static constexpr index_t capacity = 4096;  ///< outputs of a row

  [[nodiscard]] static bool fits(const pool2d_geometry& g) noexcept { return g.out_width + 4 <= capacity; }

  pool_divisors(const pool2d_geometry& g, bool padding) noexcept : count_padding{padding} {
    for (index_t q = 0; q < g.out_width; ++q) {
      const pool_range range = pool_columns(g, q);
      columns[static_cast<std::size_t>(q)] =
          static_cast<Element>(count_padding ? g.kernel_width : range.end - range.begin);
    }
    std::fill_n(columns.begin() + g.out_width, 4, Element{1});  // for packets that reach over the end
  }
  [[nodiscard]] Element rows(const pool2d_geometry& g, const pool_range& range) const noexcept {
    return static_cast<Element>(count_padding ? g.kernel_height : range.end - range.begin);
  }

  std::array<Element, static_cast<std::size_t>(capacity)> columns;
  bool count_padding;
};

/// One window is the whole image.
[[nodiscard]] constexpr bool pools_whole_image(const pool2d_geometry& g) noexcept {
  const pool_range rows = pool_rows(g, 0);
  const pool_range columns = pool_columns(g, 0);
  return g.out_height == 1 && g.out_width == 1 && rows.end - rows.begin == g.in_height &&
         columns.end - columns.begin == g.in_width;
}

/// Takes `value` where it is larger than the best so far, or the first that is not a number.
template <class Packet, bool WantChoice>
GRADUS_ALWAYS_INLINE void take_larger(typename Packet::type value, typename Packet::index_type entry,
                                      typename Packet::type& best, typename Packet::index_vector& chosen) noexcept {
  const auto take = (value > best) | ((value != value) & (best == best));
  best = take ? value : best;
  if constexpr (WantChoice) {
    chosen = take ? entry - typename Packet::index_vector{} : chosen;
  }
}

/// Stores a gradient with its epilogue; i counts from the element that epilogue.relu_output and dx begin at.
template <class Packet, class Element>
GRADUS_ALWAYS_INLINE void store_slope(Element* dx, typename Packet::type value,
                                      const backward_epilogue<Element>& epilogue, index_t i) noexcept {
  if (epilogue.accumulate) {
    value += Packet::load(dx + i);
  }
  if (epilogue.relu_output != nullptr) {
    value = Packet::where_positive(Packet::load(epilogue.relu_output + i), value);
  }
  Packet::store(dx + i, value);
}

// Channels last: an output pixel from the pixels of its window, an input pixel from the windows that hold it.

/// One image row p of outputs; x points at the image, y and choice at the row.
template <bool WantChoice, class Element>
void max_pixels(const pool2d_geometry& g, index_t p, const Element* x, Element* y, std::uint8_t* choice) noexcept {
  const pool_range rows = pool_rows(g, p);
  for (index_t q = 0; q < g.out_width; ++q, y += g.channels, choice += WantChoice ? g.channels : 0) {
    const pool_range columns = pool_columns(g, q);
    const Element* const window = x + (rows.start * g.in_width + columns.start) * g.channels;
    for_each_packet<Element>(0, g.channels, [&]<class Packet>(Packet, index_t c) {
      using index_type = typename Packet::index_type;
      typename Packet::type best = Packet::load(window + (rows.begin * g.in_width + columns.begin) * g.channels + c);
      typename Packet::index_vector chosen =
          static_cast<index_type>(rows.begin * g.kernel_width + columns.begin) - typename Packet::index_vector{};
      for (index_t r = rows.begin; r < rows.end; ++r) {
        for (index_t s = columns.begin; s < columns.end; ++s) {
          take_larger<Packet, WantChoice>(Packet::load(window + (r * g.in_width + s) * g.channels + c),
                                          static_cast<index_type>(r * g.kernel_width + s), best, chosen);
        }
      }
      Packet::store(y + c, best);
      if constexpr (WantChoice) {
        Packet::store_bytes(choice + c, chosen);
      }
    });
  }
}

/// One image row h of inputs; dy and choice point at the image, dx and epilogue.relu_output at the row.
template <class Element>
void max_slopes_pixels(const pool2d_geometry& g, index_t h, const Element* dy, const std::uint8_t* choice, Element* dx,
                       backward_epilogue<Element> epilogue) noexcept {
  const pool_cover p = pool_covering(h, g.stride_height, g.pad_top, g.kernel_height, g.out_height);
  for (index_t w = 0; w < g.in_width; ++w, dx += g.channels) {
    const pool_cover q = pool_covering(w, g.stride_width, g.pad_left, g.kernel_width, g.out_width);
    for_each_packet<Element>(0, g.channels, [&]<class Packet>(Packet, index_t c) {
      using index_type = typename Packet::index_type;
      typename Packet::type sum{};
      for (index_t i = p.begin; i < p.end; ++i) {
        const index_t r = h + g.pad_top - i * g.stride_height;
        for (index_t j = q.begin; j < q.end; ++j) {
          const index_t s = w + g.pad_left - j * g.stride_width;
          const index_t place = (i * g.out_width + j) * g.channels + c;
          const auto mine = Packet::load_bytes(choice + place) ==
                            static_cast<index_type>(r * g.kernel_width + s) - typename Packet::index_vector{};
          sum += mine ? Packet::load(dy + place) : typename Packet::type{};
        }
      }
      store_slope<Packet>(dx, sum, epilogue, c);
    });
    epilogue.relu_output += epilogue.relu_output == nullptr ? 0 : g.channels;
  }
}

template <class Element>
void average_pixels(const pool2d_geometry& g, index_t p, const Element* x, Element* y,
                    const pool_divisors<Element>& divisors) noexcept {
  const pool_range rows = pool_rows(g, p);
  for (index_t q = 0; q < g.out_width; ++q, y += g.channels) {
    const pool_range columns = pool_columns(g, q);
    const Element* const window = x + (rows.start * g.in_width + columns.start) * g.channels;
    const Element entries = divisors.rows(g, rows) * divisors.columns[static_cast<std::size_t>(q)];
    for_each_packet<Element>(0, g.channels, [&]<class Packet>(Packet, index_t c) {
      typename Packet::type sum{};
      for (index_t r = rows.begin; r < rows.end; ++r) {
        for (index_t s = columns.begin; s < columns.end; ++s) {
          sum += Packet::load(window + (r * g.in_width + s) * g.channels + c);
        }
      }
      Packet::store(y + c, sum / entries);
    });
  }
}

template <class Element>
void average_slopes_pixels(const pool2d_geometry& g, index_t h, const Element* dy, Element* dx,
                           const pool_divisors<Element>& divisors, backward_epilogue<Element> epilogue) noexcept {
  const pool_cover p = pool_covering(h, g.stride_height, g.pad_top, g.kernel_height, g.out_height);
  for (index_t w = 0; w < g.in_width; ++w, dx += g.channels) {
    const pool_cover q = pool_covering(w, g.stride_width, g.pad_left, g.kernel_width, g.out_width);
    for_each_packet<Element>(0, g.channels, [&]<class Packet>(Packet, index_t c) {
      typename Packet::type sum{};
      for (index_t i = p.begin; i < p.end; ++i) {
        const Element rows = divisors.rows(g, pool_rows(g, i));
        for (index_t j = q.begin; j < q.end; ++j) {
          const Element entries = rows * divisors.columns[static_cast<std::size_t>(j)];
          sum += Packet::load(dy + (i * g.out_width + j) * g.channels + c) / entries;
        }
      }
      store_slope<Packet>(dx, sum, epilogue, c);
    });
    epilogue.relu_output += epilogue.relu_output == nullptr ? 0 : g.channels;
  }
}

// Planes: a padded row is taken apart into `phases` rows, one for each remainder of the column by the stride. Then
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
  void split(const pool2d_geometry& g, const Element* row, Element outside, Element* to) const noexcept {
    for (index_t t = 0; t < count; ++t, to += pitch) {
      // Element j is column j * stride + t - pad_left of the image.
      const index_t shift = t - g.pad_left;
      const index_t begin = std::min(pitch, shift >= 0 ? index_t{0} : (-shift + stride - 1) / stride);
      const index_t end = std::min(pitch, g.in_width > shift ? (g.in_width - shift + stride - 1) / stride : index_t{0});
      std::fill(to, to + begin, outside);
      gather(row, shift, begin, end, to);
      std::fill(to + std::max(begin, end), to + pitch, outside);
    }
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
      std::copy(row + (shift + begin), row + (shift + end), to + begin);
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
  }

  std::array<Element, capacity> rows;
  std::array<Element, capacity> other;
  std::array<index_t, static_cast<std::size_t>(pool_phases<Element>::most_columns)> column;
};

/// One plane; needs phases.fits(g, g.kernel_height).
template <bool WantChoice, class Element>
void max_plane(const pool2d_geometry& g, const pool_phases<Element>& phases, pool_buffers<Element>& buffers,
               const Element* x, Element* y, std::uint8_t* choice) noexcept {
  using packet = full_packet<Element>;
  using index_type = typename packet::index_type;
  const index_t row_size = phases.count * phases.pitch;
  std::array<index_t, static_cast<std::size_t>(pool_phases<Element>::most_columns)> held;  // the row in each place
  std::fill_n(held.begin(), g.kernel_height, index_t{-1});
  for (index_t p = 0; p < g.out_height; ++p) {
    const pool_range rows = pool_rows(g, p);
    for (index_t r = rows.begin; r < rows.end; ++r) {
      const index_t h = rows.start + r;
      const index_t place = h % g.kernel_height;
      if (held[static_cast<std::size_t>(place)] != h) {
        held[static_cast<std::size_t>(place)] = h;
        phases.split(g, x + h * g.in_width, -std::numeric_limits<Element>::infinity(),
                     buffers.rows.data() + place * row_size);
      }
    }
    for (index_t q = 0; q < g.out_width; q += packet::lanes) {
      typename packet::type best = packet::broadcast(-std::numeric_limits<Element>::infinity());
      typename packet::index_vector chosen{};
      if constexpr (WantChoice) {
        // Where nothing is larger than minus infinity, the first entry inside the image.
        for (index_t i = 0; i < packet::lanes; ++i) {
          chosen[i] = static_cast<index_type>(rows.begin * g.kernel_width +
                                              std::max(index_t{0}, g.pad_left - (q + i) * g.stride_width));
        }
      }
      index_t place = (rows.start + rows.begin) % g.kernel_height;
      for (index_t r = rows.begin; r < rows.end; ++r) {
        const Element* const row = buffers.rows.data() + place * row_size + q;
        for (index_t s = 0; s < g.kernel_width; ++s) {
          take_larger<packet, WantChoice>(packet::load(row + buffers.column[static_cast<std::size_t>(s)]),
                                          static_cast<index_type>(r * g.kernel_width + s), best, chosen);
        }
        place = place + 1 == g.kernel_height ? 0 : place + 1;
      }
      packet::store(y + q, best, g.out_width - q);
      if constexpr (WantChoice) {
        packet::store_bytes(choice + q, chosen, g.out_width - q);
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
  Element* const sums = buffers.rows.data();
  for (index_t h = 0; h < g.in_height; ++h, dx += g.in_width) {
    std::fill(sums, sums + phases.count * phases.pitch, Element{0});
    const pool_cover p = pool_covering(h, g.stride_height, g.pad_top, g.kernel_height, g.out_height);
    for (index_t i = p.begin; i < p.end; ++i) {
      const index_t r = h + g.pad_top - i * g.stride_height;
      const Element* const slopes = dy + i * g.out_width;
      const std::uint8_t* const chosen = choice + i * g.out_width;
      for (index_t s = 0; s < g.kernel_width; ++s) {
        Element* const to = sums + buffers.column[static_cast<std::size_t>(s)];
        const auto entry = static_cast<index_type>(r * g.kernel_width + s);
        for_each_packet<Element>(0, g.out_width, [=]<class Packet>(Packet, index_t q) {
          const auto mine = Packet::load_bytes(chosen + q) == entry - typename Packet::index_vector{};
          const auto share = mine ? Packet::load(slopes + q) : typename Packet::type{};
          Packet::store(to + q, Packet::load(to + q) + share);
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
    phases.split(g, sum, Element{0}, buffers.rows.data());
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
  std::array<Element, static_cast<std::size_t>(pool_divisors<Element>::capacity)> shares;
  Element* const sums = buffers.rows.data();
  pool_cover before{-1, -1};  // the outputs that `sums` is of
  for (index_t h = 0; h < g.in_height; ++h, dx += g.in_width) {
    const pool_cover p = pool_covering(h, g.stride_height, g.pad_top, g.kernel_height, g.out_height);
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
