// SPDX-License-Identifier: BSL-1.0
//
// Moves bytes: short runs, and transpositions in vector registers.
#pragma once

#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint16_t, std::uint32_t, std::uint64_t
#include <cstring>      // std::memcpy
#include <type_traits>  // std::conditional_t

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"

namespace gradus::kernels::detail {

/// Copies a fixed number of bytes in registers.
template <std::size_t Bytes>
GRADUS_ALWAYS_INLINE void move_fixed(std::byte* to, const std::byte* from) noexcept {
  std::memcpy(to, from, Bytes);
}

/// Copies bytes that do not overlap. Short runs cost no call.
GRADUS_ALWAYS_INLINE void move_bytes(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (bytes > 256) {
    std::memcpy(to, from, bytes);
  } else if (bytes >= 16) {
    // The last vector overlaps the one before it.
    for (std::size_t i = 0; i + 16 < bytes; i += 16) {
      move_fixed<16>(to + i, from + i);
    }
    move_fixed<16>(to + bytes - 16, from + bytes - 16);
  } else if (bytes >= 8) {
    move_fixed<8>(to, from);
    move_fixed<8>(to + bytes - 8, from + bytes - 8);
  } else if (bytes >= 4) {
    move_fixed<4>(to, from);
    move_fixed<4>(to + bytes - 4, from + bytes - 4);
  } else if (bytes >= 2) {
    move_fixed<2>(to, from);  // elements have 2 bytes or more
  }
}

/// A vector of elements of `Size` bytes, as integers: a copy keeps every bit.
template <int Size>
struct moved_vector {
  using word =
      std::conditional_t<Size == 2, std::uint16_t, std::conditional_t<Size == 4, std::uint32_t, std::uint64_t>>;
  typedef word type __attribute__((vector_size(16)));
  static constexpr int lanes = 16 / Size;
};

/// a[0], b[0], a[1], b[1], ... of the lower halves of two vectors, and of their upper halves.
template <int Size>
GRADUS_ALWAYS_INLINE void interleave(typename moved_vector<Size>::type a, typename moved_vector<Size>::type b,
                                     typename moved_vector<Size>::type& low,
                                     typename moved_vector<Size>::type& high) noexcept {
  if constexpr (Size == 2) {
    low = GRADUS_SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    high = GRADUS_SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  } else if constexpr (Size == 4) {
    low = GRADUS_SHUFFLE(a, b, 0, 4, 1, 5);
    high = GRADUS_SHUFFLE(a, b, 2, 6, 3, 7);
  } else {
    low = GRADUS_SHUFFLE(a, b, 0, 2);
    high = GRADUS_SHUFFLE(a, b, 1, 3);
  }
}

/// Transposes a tile: element s of the source row at from + from_of[d] goes to element d of the row at to + to_of[s].
/// Offsets are in elements of `Size` bytes.
/// @tparam Columns  elements of a source row, a full vector or half of one
/// @tparam Rows     source rows, as many as a vector has elements or half as many
template <int Size, int Columns, int Rows>
GRADUS_ALWAYS_INLINE void transpose_tile(const std::byte* from, const index_t* from_of, std::byte* to,
                                         const index_t* to_of) noexcept {
  constexpr int lanes = moved_vector<Size>::lanes;
  constexpr std::size_t count{lanes};
  typename moved_vector<Size>::type rows[count];
  typename moved_vector<Size>::type next[count];
#pragma GCC unroll 8
  for (int d = 0; d < lanes; ++d) {
    rows[d] = typename moved_vector<Size>::type{};
    if (d < Rows) {
      std::memcpy(&rows[d], from + from_of[d] * Size, static_cast<std::size_t>(Columns * Size));
    }
  }
#pragma GCC unroll 3
  for (int level = 1; level < lanes; level *= 2) {
#pragma GCC unroll 4
    for (int k = 0; k < lanes / 2; ++k) {
      interleave<Size>(rows[k], rows[k + lanes / 2], next[2 * k], next[2 * k + 1]);
    }
#pragma GCC unroll 8
    for (int k = 0; k < lanes; ++k) {
      rows[k] = next[k];
    }
  }
#pragma GCC unroll 8
  for (int s = 0; s < Columns; ++s) {
    std::memcpy(to + to_of[s] * Size, &rows[s], static_cast<std::size_t>(Rows * Size));
  }
}

/// Transposes the columns [0, columns) of `Rows` source rows.
template <int Size, int Rows>
GRADUS_ALWAYS_INLINE void transpose_rows(index_t columns, const std::byte* from, const index_t* from_of, std::byte* to,
                                         const index_t* to_of) noexcept {
  constexpr int lanes = moved_vector<Size>::lanes;
  index_t s = 0;
  for (; s + lanes <= columns; s += lanes) {
    transpose_tile<Size, lanes, Rows>(from + s * Size, from_of, to, to_of + s);
  }
  if constexpr (lanes > 2) {
    if (s + lanes / 2 <= columns) {
      transpose_tile<Size, lanes / 2, Rows>(from + s * Size, from_of, to, to_of + s);
      s += lanes / 2;
    }
  }
  for (; s < columns; ++s) {
    for (int d = 0; d < Rows; ++d) {
      move_fixed<Size>(to + (to_of[s] + d) * Size, from + (from_of[d] + s) * Size);
    }
  }
}

/// Element s of the source row at from + from_of[d] goes to element d of the row at to + to_of[s], for s < columns and
/// d < rows. Offsets are in elements of `Size` bytes.
template <int Size>
void transpose_elements(index_t columns, index_t rows, const std::byte* from, const index_t* from_of, std::byte* to,
                        const index_t* to_of) noexcept {
  constexpr int lanes = moved_vector<Size>::lanes;
  index_t d = 0;
  for (; d + lanes <= rows; d += lanes) {
    transpose_rows<Size, lanes>(columns, from, from_of + d, to + d * Size, to_of);
  }
  if constexpr (lanes > 2) {
    if (d + lanes / 2 <= rows) {
      transpose_rows<Size, lanes / 2>(columns, from, from_of + d, to + d * Size, to_of);
      d += lanes / 2;
    }
  }
  for (; d < rows; ++d) {
    for (index_t s = 0; s < columns; ++s) {
      move_fixed<Size>(to + (to_of[s] + d) * Size, from + (from_of[d] + s) * Size);
    }
  }
}

}  // namespace gradus::kernels::detail
