// SPDX-License-Identifier: BSL-1.0
//
// The type of every index, extent and count.
#pragma once

#include <cstddef>      // std::ptrdiff_t
#include <type_traits>  // std::type_identity_t

#include "gradus/core/config.hpp"

namespace gradus {

/// Indices, extents and counts of elements. Signed, so that differences are ordinary arithmetic.
using index_t = std::ptrdiff_t;

namespace detail {

/// The first of `count` elements that belongs to part i of `parts` nearly equal parts: part i is
/// [part_bound(i), part_bound(i + 1)). The rule by which ranks share arrays, files and collectives.
template <class Count>
[[nodiscard]] constexpr Count part_bound(Count count, std::type_identity_t<Count> parts,
                                         std::type_identity_t<Count> i) noexcept {
  return count / parts * i + count % parts * i / parts;
}

}  // namespace detail
}  // namespace gradus
