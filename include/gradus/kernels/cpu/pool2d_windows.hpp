// SPDX-License-Identifier: BSL-1.0
//
// The windows of pooling, and what is done with the entries of one.
// Module: kernels. Depends on: core.
#pragma once

#include <algorithm>    // std::fill_n, std::max, std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <type_traits>  // std::remove_cvref_t

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

/// The outputs whose windows hold a row (column), for rows that only go up: no divisions.
class pool_walk {
 public:
  pool_walk(index_t stride, index_t pad, index_t kernel, index_t outputs) noexcept
      : stride_{stride}, end_of_first_{kernel - pad}, start_of_last_{-pad}, outputs_{outputs} {}

  /// @pre place is one more than in the call before, and 0 in the first
  pool_cover operator()(index_t place) noexcept {
    while (cover_.begin < outputs_ && end_of_first_ <= place) {
      ++cover_.begin;
      end_of_first_ += stride_;
    }
    while (cover_.end < outputs_ && start_of_last_ <= place) {
      ++cover_.end;
      start_of_last_ += stride_;
    }
    return cover_;
  }

 private:
  index_t stride_;
  index_t end_of_first_;   // one behind the window of output cover_.begin
  index_t start_of_last_;  // of the window of output cover_.end
  index_t outputs_;
  pool_cover cover_{0, 0};
};

/// One window is the whole image.
[[nodiscard]] constexpr bool pools_whole_image(const pool2d_geometry& g) noexcept {
  const pool_range rows = pool_rows(g, 0);
  const pool_range columns = pool_columns(g, 0);
  return g.out_height == 1 && g.out_width == 1 && rows.end - rows.begin == g.in_height &&
         columns.end - columns.begin == g.in_width;
}

/// The largest entry of a window so far, and which it is. A NaN is only noticed: it is rare, and finding the first one
/// costs every window.
template <class Packet, bool WantChoice>
struct running_max {
  using type = typename Packet::type;
  using element = std::remove_cvref_t<decltype(type{}[0])>;

  /// @param entry  which entry it is, in every lane: a number of the element type, and more than in the call before
  GRADUS_ALWAYS_INLINE void take(type value, type entry) noexcept {
    nan |= value != value;
    if constexpr (WantChoice) {
      // The last entry that was larger is the largest number of all that were.
      const type mine = Packet::masked(value > best, entry);
      chosen = mine > chosen ? mine : chosen;
    }
    best = value > best ? value : best;
  }
  [[nodiscard]] GRADUS_ALWAYS_INLINE typename Packet::index_vector choice() const noexcept {
    return __builtin_convertvector(chosen, typename Packet::index_vector);
  }

  type best{};
  type chosen{};
  typename Packet::index_vector nan{};
};

/// The first largest of the entries begin, ..., where value(r, s) gives them and a NaN counts as largest.
template <class Element>
struct careful_max {
  template <class Value>
  careful_max(const pool2d_geometry& g, const pool_range& rows, const pool_range& columns, const Value& value) noexcept
      : best{value(rows.begin, columns.begin)}, chosen{rows.begin * g.kernel_width + columns.begin} {
    for (index_t r = rows.begin; r < rows.end; ++r) {
      for (index_t s = columns.begin; s < columns.end; ++s) {
        const Element next = value(r, s);
        if (next > best || (next != next && best == best)) {
          best = next;
          chosen = r * g.kernel_width + s;
        }
      }
    }
  }

  Element best;
  index_t chosen;
};

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

}  // namespace gradus::kernels::detail
