// SPDX-License-Identifier: BSL-1.0
//
// Copies of elements whose type is not known.
#pragma once

#include <cstddef>  // std::byte, std::size_t
#include <cstring>  // std::memcpy

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"

namespace gradus::kernels::detail {

/// Copies elements of a size.
template <std::size_t Bytes>
void copy_elements_of(index_t count, const std::byte* from, index_t from_step, std::byte* to,
                      index_t to_step) noexcept {
  constexpr auto bytes = static_cast<index_t>(Bytes);
  for (index_t j = 0; j < count; ++j) {
    std::memcpy(to + j * to_step * bytes, from + j * from_step * bytes, Bytes);
  }
}

/// Copies elements that are `from_step` apart to positions that are `to_step` apart. Steps in elements; a step of 0
/// repeats one element.
/// @param bytes  of an element: 2, 4 or 8
inline void copy_elements(index_t count, index_t bytes, const std::byte* from, index_t from_step, std::byte* to,
                          index_t to_step) noexcept {
  if (bytes == 2) {
    copy_elements_of<2>(count, from, from_step, to, to_step);
  } else if (bytes == 4) {
    copy_elements_of<4>(count, from, from_step, to, to_step);
  } else {
    copy_elements_of<8>(count, from, from_step, to, to_step);
  }
}

}  // namespace gradus::kernels::detail
