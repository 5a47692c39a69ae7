// SPDX-License-Identifier: BSL-1.0
//
// Moves bytes: short runs, and transpositions in vector registers.
#pragma once

#include <algorithm>    // std::min
#include <bit>          // std::bit_cast
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t
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
  using word = std::conditional_t<Size <= 2, std::conditional_t<Size == 1, std::uint8_t, std::uint16_t>,
                                  std::conditional_t<Size == 4, std::uint32_t, std::uint64_t>>;
  typedef word type __attribute__((vector_size(16)));
  static constexpr int lanes = 16 / Size;
};

/// a[0], b[0], a[1], b[1], ... of the lower halves of two vectors, and of their upper halves.
template <int Size>
GRADUS_ALWAYS_INLINE void interleave(typename moved_vector<Size>::type a, typename moved_vector<Size>::type b,
                                     typename moved_vector<Size>::type& low,
                                     typename moved_vector<Size>::type& high) noexcept {
  if constexpr (Size == 1) {
    low = GRADUS_SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    high = GRADUS_SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  } else if constexpr (Size == 2) {
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

/// Loads a vector, or the lower half of one. Half a vector goes through a register, not through memory.
template <int Size, int Count>
GRADUS_ALWAYS_INLINE typename moved_vector<Size>::type load_moved(const std::byte* from) noexcept {
  typename moved_vector<Size>::type result;
  if constexpr (Count == moved_vector<Size>::lanes) {
    std::memcpy(&result, from, sizeof(result));
  } else {
    std::uint64_t half = 0;
    std::memcpy(&half, from, sizeof(half));
    result = std::bit_cast<typename moved_vector<Size>::type>(moved_vector<8>::type{half, 0});
  }
  return result;
}

/// Stores a vector, or the lower half of one.
template <int Size, int Count>
GRADUS_ALWAYS_INLINE void store_moved(std::byte* to, typename moved_vector<Size>::type value) noexcept {
  if constexpr (Count == moved_vector<Size>::lanes) {
    std::memcpy(to, &value, sizeof(value));
  } else {
    const std::uint64_t half = std::bit_cast<moved_vector<8>::type>(value)[0];
    std::memcpy(to, &half, sizeof(half));
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
#pragma GCC unroll 16
  for (int d = 0; d < lanes; ++d) {
    if (d < Rows) {
      rows[d] = load_moved<Size, Columns>(from + from_of[d] * Size);
    } else {
      rows[d] = typename moved_vector<Size>::type{};
    }
  }
#pragma GCC unroll 4
  for (int level = 1; level < lanes; level *= 2) {
#pragma GCC unroll 8
    for (int k = 0; k < lanes / 2; ++k) {
      interleave<Size>(rows[k], rows[k + lanes / 2], next[2 * k], next[2 * k + 1]);
    }
#pragma GCC unroll 16
    for (int k = 0; k < lanes; ++k) {
      rows[k] = next[k];
    }
  }
#pragma GCC unroll 16
  for (int s = 0; s < Columns; ++s) {
    store_moved<Size, Rows>(to + to_of[s] * Size, rows[s]);
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

/// Elements of a block in each direction, half a cache line or more. All of its rows may be in one set of a cache,
/// where their distance is a power of two.
inline constexpr index_t transposed_block = 16;

/// Element s of the source row at from + from_of[d] goes to element d of the row at to + to_of[s], for s < columns and
/// d < rows. Offsets are in elements of `Size` bytes.
template <int Size>
void transpose_elements(index_t columns, index_t rows, const std::byte* from, const index_t* from_of, std::byte* to,
                        const index_t* to_of) noexcept {
  constexpr int lanes = moved_vector<Size>::lanes;
  for (index_t first = 0; first < rows; first += transposed_block) {
    const index_t last = std::min(rows, first + transposed_block);
    for (index_t s = 0; s < columns; s += transposed_block) {
      const index_t count = std::min(transposed_block, columns - s);
      const std::byte* const source = from + s * Size;
      const index_t* const target_of = to_of + s;
      index_t d = first;
      for (; d + lanes <= last; d += lanes) {
        transpose_rows<Size, lanes>(count, source, from_of + d, to + d * Size, target_of);
      }
      if constexpr (lanes > 2) {
        if (d + lanes / 2 <= last) {
          transpose_rows<Size, lanes / 2>(count, source, from_of + d, to + d * Size, target_of);
          d += lanes / 2;
        }
      }
      for (; d < last; ++d) {
        for (index_t k = 0; k < count; ++k) {
          move_fixed<Size>(to + (target_of[k] + d) * Size, source + (from_of[d] + k) * Size);
        }
      }
    }
  }
}

}  // namespace gradus::kernels::detail
