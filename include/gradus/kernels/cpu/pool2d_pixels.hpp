// SPDX-License-Identifier: BSL-1.0
//
// Pooling of images whose channels are adjacent: the loops over the channels of a pixel.
// Module: kernels. Depends on: core.
#pragma once

#include <algorithm>  // std::fill_n, std::min
#include <array>      // std::array
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint8_t

#include "gradus/core/index.hpp"                      // index_t
#include "gradus/kernels/conv2d.hpp"                  // backward_epilogue
#include "gradus/kernels/cpu/elementwise_packet.hpp"  // packet, for_each_packet
#include "gradus/kernels/cpu/pool2d_windows.hpp"      // pool_range, pool_divisors, running_max
#include "gradus/kernels/pool2d.hpp"                  // pool2d_geometry

namespace gradus::kernels::detail {

// An output pixel is made from the pixels of its window, an input pixel from the windows that hold it.

/// One image row p of outputs; x points at the image, y and choice at the row.
template <bool WantChoice, class Element>
void max_pixels(const pool2d_geometry& g, index_t p, const Element* x, Element* y, std::uint8_t* choice) noexcept {
  const pool_range rows = pool_rows(g, p);
  for (index_t q = 0; q < g.out_width; ++q, y += g.channels, choice += WantChoice ? g.channels : 0) {
    const pool_range columns = pool_columns(g, q);
    const Element* const window = x + (rows.start + rows.begin) * g.in_width * g.channels;
    const auto first_entry = static_cast<Element>(rows.begin * g.kernel_width + columns.begin);
    const auto skipped_entries = static_cast<Element>(g.kernel_width - (columns.end - columns.begin));
    const index_t row_stride = g.in_width * g.channels;
    for_each_packet<Element>(0, g.channels, [&]<class Packet>(Packet, index_t c) {
      running_max<Packet, WantChoice> largest;
      const Element* row = window + (columns.start + columns.begin) * g.channels + c;
      auto entry = Packet::broadcast(first_entry);
      largest.best = Packet::load(row);
      largest.chosen = entry;
      for (index_t r = rows.begin; r < rows.end; ++r, row += row_stride, entry += skipped_entries) {
        const Element* from = row;
        for (index_t s = columns.begin; s < columns.end; ++s, from += g.channels, entry += Element{1}) {
          largest.take(Packet::load(from), entry);
        }
      }
      Packet::store(y + c, largest.best);
      if constexpr (WantChoice) {
        Packet::store_bytes(choice + c, largest.choice());
      }
      if (Packet::any(largest.nan)) [[unlikely]] {
        for (index_t lane = 0; lane < Packet::lanes; ++lane) {
          const careful_max<Element> careful{
              g, rows, columns, [&](index_t r, index_t s) {
                return x[((rows.start + r) * g.in_width + columns.start + s) * g.channels + c + lane];
              }};
          y[c + lane] = careful.best;
          if constexpr (WantChoice) {
            choice[c + lane] = static_cast<std::uint8_t>(careful.chosen);
          }
        }
      }
    });
  }
}

inline constexpr index_t pool_channels = 64;  ///< that are worked on together where windows overlap

/// Writes the gradients of one image row of inputs; dx and epilogue.relu_output point at the row. For every pixel and
/// window that holds it, window(output row, output column, entry) is asked for a function of (packet, channel) that
/// gives the window's share.
template <class Element, class Window>
void slopes_pixels(const pool2d_geometry& g, index_t h, Element* dx, backward_epilogue<Element> epilogue,
                   const Window& window) noexcept {
  const pool_cover p = pool_covering(h, g.stride_height, g.pad_top, g.kernel_height, g.out_height);
  pool_walk columns{g.stride_width, g.pad_left, g.kernel_width, g.out_width};
  const auto entry = [&](index_t i, index_t w, index_t j) {
    return (h + g.pad_top - i * g.stride_height) * g.kernel_width + w + g.pad_left - j * g.stride_width;
  };
  std::array<Element, static_cast<std::size_t>(pool_channels)> sums;
  for (index_t w = 0; w < g.in_width; ++w) {
    const pool_cover q = columns(w);
    if (p.end - p.begin == 1 && q.end - q.begin == 1) {
      const auto share = window(p.begin, q.begin, entry(p.begin, w, q.begin));
      for_each_packet<Element>(0, g.channels, [&]<class Packet>(Packet packet, index_t c) {
        store_slope<Packet>(dx, share(packet, c), epilogue, c);
      });
      dx += g.channels;
      epilogue.relu_output += epilogue.relu_output == nullptr ? 0 : g.channels;
      continue;
    }
    for (index_t c = 0; c < g.channels; c += pool_channels) {
      const index_t count = std::min(pool_channels, g.channels - c);
      std::fill_n(sums.begin(), count, Element{0});
      for (index_t i = p.begin; i < p.end; ++i) {
        for (index_t j = q.begin; j < q.end; ++j) {
          const auto share = window(i, j, entry(i, w, j));
          for_each_packet<Element>(0, count, [&]<class Packet>(Packet packet, index_t k) {
            Packet::store(sums.data() + k, Packet::load(sums.data() + k) + share(packet, c + k));
          });
        }
      }
      for_each_packet<Element>(0, count, [&]<class Packet>(Packet, index_t k) {
        store_slope<Packet>(dx, Packet::load(sums.data() + k), epilogue, k);
      });
      dx += count;
      epilogue.relu_output += epilogue.relu_output == nullptr ? 0 : count;
    }
  }
}

/// One image row h of inputs; dy and choice point at the image, dx and epilogue.relu_output at the row.
template <class Element>
void max_slopes_pixels(const pool2d_geometry& g, index_t h, const Element* dy, const std::uint8_t* choice, Element* dx,
                       const backward_epilogue<Element>& epilogue) noexcept {
  slopes_pixels(g, h, dx, epilogue, [&](index_t p, index_t q, index_t entry) {
    const Element* const slopes = dy + (p * g.out_width + q) * g.channels;
    const std::uint8_t* const chosen = choice + (p * g.out_width + q) * g.channels;
    return [=]<class Packet>(Packet, index_t c) {
      using index_vector = typename Packet::index_vector;
      const auto mine =
          Packet::load_bytes(chosen + c) == static_cast<typename Packet::index_type>(entry) - index_vector{};
      return Packet::masked(mine, Packet::load(slopes + c));
    };
  });
}

template <class Element>
void average_pixels(const pool2d_geometry& g, index_t p, const Element* x, Element* y,
                    const pool_divisors<Element>& divisors) noexcept {
  const pool_range rows = pool_rows(g, p);
  for (index_t q = 0; q < g.out_width; ++q, y += g.channels) {
    const pool_range columns = pool_columns(g, q);
    const Element* const window =
        x + ((rows.start + rows.begin) * g.in_width + columns.start + columns.begin) * g.channels;
    const Element entries = divisors.rows(g, rows) * divisors.columns[static_cast<std::size_t>(q)];
    for_each_packet<Element>(0, g.channels, [&]<class Packet>(Packet, index_t c) {
      typename Packet::type sum{};
      const Element* row = window + c;
      for (index_t r = rows.begin; r < rows.end; ++r, row += g.in_width * g.channels) {
        const Element* from = row;
        for (index_t s = columns.begin; s < columns.end; ++s, from += g.channels) {
          sum += Packet::load(from);
        }
      }
      Packet::store(y + c, sum / entries);
    });
  }
}

template <class Element>
void average_slopes_pixels(const pool2d_geometry& g, index_t h, const Element* dy, Element* dx,
                           const pool_divisors<Element>& divisors,
                           const backward_epilogue<Element>& epilogue) noexcept {
  slopes_pixels(g, h, dx, epilogue, [&](index_t p, index_t q, index_t) {
    const Element* const slopes = dy + (p * g.out_width + q) * g.channels;
    const Element share =
        Element{1} / (divisors.rows(g, pool_rows(g, p)) * divisors.columns[static_cast<std::size_t>(q)]);
    return [=]<class Packet>(Packet, index_t c) { return Packet::load(slopes + c) * share; };
  });
}

}  // namespace gradus::kernels::detail
