// SPDX-License-Identifier: BSL-1.0
//
// Random shapes, with the extents 0 and 1 often, and loops over coordinates of any rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "gradus/core/extents.hpp"
#include "gradus/core/random.hpp"

namespace tensor_tests {

/// Random numbers that differ at each call.
class draws {
 public:
  explicit draws(std::uint64_t seed) : stream_{seed, "draws"} {}
  gradus::index_t below(gradus::index_t bound) {
    return static_cast<gradus::index_t>(stream_.below(static_cast<std::uint64_t>(bound), next_++));
  }
  template <int Rank>
  gradus::extents<Rank> shape() {
    std::array<gradus::index_t, static_cast<std::size_t>(Rank)> values{};
    for (auto& value : values) {
      const gradus::index_t kind = below(10);
      value = kind == 0 ? 0 : kind < 3 ? 1 : 1 + below(6);
    }
    return gradus::extents<Rank>{values};
  }

 private:
  gradus::random_stream stream_;
  std::uint64_t next_ = 0;
};

template <int Rank>
using coordinates = std::array<gradus::index_t, static_cast<std::size_t>(Rank)>;

/// Calls visit(coordinates) for all coordinates, in row-major order.
template <int Rank, class Visitor>
void for_each_coordinates(const gradus::extents<Rank>& shape, const Visitor& visit) {
  for (gradus::index_t i = 0; i < shape.size(); ++i) {
    coordinates<Rank> at{};
    gradus::index_t rest = i;
    for (int axis = Rank - 1; axis >= 0; --axis) {
      at[static_cast<std::size_t>(axis)] = rest % shape[axis];
      rest /= shape[axis];
    }
    visit(at);
  }
}

/// The element at the coordinates.
template <class Tensor, std::size_t Rank>
auto element_at(const Tensor& x, const std::array<gradus::index_t, Rank>& at) {
  return x.data()[x.view().offset(at)];
}

/// True if x has the shape and the element expected(coordinates) everywhere.
template <class X, int Rank, class Expected>
bool holds(const X& x, const gradus::extents<Rank>& shape, const Expected& expected) {
  static_assert(X::rank == Rank);
  bool right = x.extents() == shape;
  if (right) {
    for_each_coordinates(shape, [&](const auto& at) { right = right && element_at(x, at) == expected(at); });
  }
  return right;
}

}  // namespace tensor_tests
