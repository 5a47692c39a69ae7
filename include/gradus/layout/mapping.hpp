// SPDX-License-Identifier: BSL-1.0
//
// Memory order of axes, strides of dense tensors, and the offset of an element.
#pragma once

#include <array>     // std::array
#include <concepts>  // std::same_as
#include <cstddef>   // std::size_t

#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/layout/layouts.hpp"

namespace gradus {

/// A layout that can order the axes of a tensor of `Rank` axes: row_major for any rank, a layout_policy for rank 4.
template <class Layout, int Rank>
concept tensor_layout = std::same_as<Layout, row_major> ||(Rank == 4 && layout_policy<Layout>);

/// Reports at compile time why L cannot order a tensor of Rank axes. Returns true if it compiles.
template <class Layout, int Rank>
consteval bool explain_tensor_layout() {
  if constexpr (!std::same_as<Layout, row_major>) {
    static_assert(Rank == 4 || !layout_policy<Layout>,
                  "gradus: an image layout orders tensors of rank 4: use gradus::row_major for other ranks");
    static_assert(explain_layout_policy<Layout>());
  }
  return true;
}

/// The logical axes in memory order, slowest first: {0, 2, 3, 1} for nhwc.
template <class Layout, int Rank>
requires tensor_layout<Layout, Rank>
inline constexpr std::array<int, static_cast<std::size_t>(Rank)> memory_order = [] {
  std::array<int, static_cast<std::size_t>(Rank)> order{};
  for (int position = 0; position < Rank; ++position) {
    if constexpr (std::same_as<Layout, row_major>) {
      order[static_cast<std::size_t>(position)] = position;
    } else {
      order[static_cast<std::size_t>(position)] = static_cast<int>(Layout::order[static_cast<std::size_t>(position)]);
    }
  }
  return order;
}();

/// The strides of a dense tensor by logical axis, in elements.
template <class Layout, int Rank>
requires tensor_layout<Layout, Rank>
[[nodiscard]] constexpr std::array<index_t, static_cast<std::size_t>(Rank)> dense_strides(
    const extents<Rank>& shape) noexcept {
  std::array<index_t, static_cast<std::size_t>(Rank)> strides{};
  index_t stride = 1;
  for (int position = Rank - 1; position >= 0; --position) {
    const int logical = memory_order<Layout, Rank>[static_cast<std::size_t>(position)];
    strides[static_cast<std::size_t>(logical)] = stride;
    stride *= shape[logical];
  }
  return strides;
}

/// Maps coordinates (n, c, h, w) of a dense batch to an element's offset. Coordinates are given in the order n, c, h, w
/// for every memory order. Strides and offsets are in elements.
template <class Layout>
class dense_mapping {
  static_assert(explain_layout_policy<Layout>());

 public:
  /// @throws shape_error if an extent is negative
  constexpr explicit dense_mapping(image_extents shape) : extents_{shape}, strides_{dense_strides<Layout, 4>(shape)} {}

  /// The offset of an element.
  /// @pre  0 <= n < N, 0 <= c < C, 0 <= h < H, 0 <= w < W
  /// @post 0 <= result < required_span_size(); different coordinates have different offsets
  [[nodiscard]] constexpr index_t operator()(index_t n, index_t c, index_t h, index_t w) const noexcept {
    return n * strides_[0] + c * strides_[1] + h * strides_[2] + w * strides_[3];
  }

  /// The number of elements that the batch occupies: N * C * H * W.
  [[nodiscard]] constexpr index_t required_span_size() const { return extents_.size(); }

  /// The extents of the batch: N, C, H, W.
  [[nodiscard]] constexpr const image_extents& extents() const noexcept { return extents_; }

  /// The distance of neighbors along an axis, in elements.
  [[nodiscard]] constexpr index_t stride(axis a) const noexcept { return strides_[static_cast<std::size_t>(a)]; }

 private:
  image_extents extents_;             // N, C, H, W
  std::array<index_t, 4> strides_{};  // of n, c, h, w, in elements
};

}  // namespace gradus
