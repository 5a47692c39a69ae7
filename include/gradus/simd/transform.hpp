// SPDX-License-Identifier: BSL-1.0
//
// One element-wise loop over several arrays, for a formula that names no instruction set.
#pragma once

#include <cstddef>  // std::size_t
#include <utility>  // std::index_sequence, std::make_index_sequence

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/simd/packets.hpp"

namespace gradus::simd {

/// Arrays of the same length.
template <class Element, std::size_t Count>
struct arrays {
  Element* data[Count == 0 ? std::size_t{1} : Count];  ///< the first elements of the arrays

  /// The arrays from element `offset` on.
  [[nodiscard]] constexpr arrays from(index_t offset) const noexcept {
    arrays result{};
    for (std::size_t i = 0; i < Count; ++i) {
      result.data[i] = data[i] + offset;
    }
    return result;
  }
};

}  // namespace gradus::simd

#define GRADUS_TARGET_BODY "gradus/simd/transform_body.hpp"
#include "gradus/simd/for_each_target.hpp"

namespace gradus::simd {

/// Runs step(written..., read...) for `count` elements of the arrays, a vector at a time, in order. `step` takes
/// references to the numbers that are written, then the numbers that are read; a number is a type with + - * /, which
/// converts from an element, and with smaller(a, b), larger(a, b) and square_root(a). Elements after the last full
/// vector are computed in a vector that is filled with zeros: the result of an element does not depend on its position,
/// and has the same bits with every instruction set. `step` is always_inline.
template <class Element, std::size_t Outputs, std::size_t Inputs, class Step>
void transform(index_t count, const Step& step, const arrays<Element, Outputs>& written,
               const arrays<const Element, Inputs>& read) {
  on_target([&](auto which) { transform_on(which, count, step, written, read); });
}

/// Sums of the squares of numbers in double precision. The order of their additions is the same with every instruction
/// set, if all vectors but the last are full.
class squares {
 public:
  /// Adds the squares of the numbers of a vector.
  template <class Numbers>
  GRADUS_ALWAYS_INLINE void add(const Numbers& x) noexcept {
    add_squares(x, sums_ + next_);
    next_ = (next_ + Numbers::lanes) % chains;
  }
  /// The sum.
  [[nodiscard]] double total() const noexcept {
    double sum = 0;
    for (const double each : sums_) {
      sum += each;
    }
    return sum;
  }

 private:
  static constexpr index_t chains = 16;
  alignas(64) double sums_[std::size_t{chains}] = {};
  index_t next_ = 0;
};

/// The sum of the squares of `count` elements, in double precision, with the same bits with every instruction set.
template <class Element>
[[nodiscard]] double sum_of_squares(index_t count, const Element* x) {
  double sum = 0;
  on_target([&](auto which) { sum = sum_of_squares_on(which, count, x); });
  return sum;
}

}  // namespace gradus::simd
