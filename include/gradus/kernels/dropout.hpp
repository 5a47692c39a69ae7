// SPDX-License-Identifier: BSL-1.0
//
// The contract of dropout kernels. The mask depends on positions in the data set, not on the machine.
#pragma once

#include <cmath>    // std::ldexp, std::floor
#include <cstdint>  // std::uint32_t, std::uint64_t

#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"

namespace gradus::kernels {

/// Dropout drops an element whose 32-bit random word is below this threshold: rate * 2^32, rounded down.
/// @pre 0 <= rate < 1
[[nodiscard]] inline std::uint32_t dropout_threshold(double rate) noexcept {
  return static_cast<std::uint32_t>(std::ldexp(rate, 32));
}

/// True if dropout keeps an element. `index` is its index in the example in the order (c, h, w), for every layout. Four
/// adjacent indices share one block of the random stream. At most 2^32 examples of 2^34 elements.
[[nodiscard]] constexpr bool dropout_keeps(const random_stream& stream, std::uint64_t step, std::uint64_t example,
                                           index_t index, std::uint32_t threshold) noexcept {
  const auto place = static_cast<std::uint64_t>(index);
  return stream.block((example << 32U) + place / 4, step)[place % 4] >= threshold;
}

// Every device D in the library overloads, for network elements E and layouts L (views are image_view<E, L, D>):
//
//   // y = mask * x / (1 - rate)
//   void dropout_forward(D&, x, y, double rate, const random_stream&, std::uint64_t step, std::uint64_t first_example,
//                        std::uint8_t* mask);
//   // dx = scale * mask * dy, or dx += that if `accumulate`
//   void dropout_backward(D&, index_t count, const E* dy, const std::uint8_t* mask, double scale, E* dx,
//                         bool accumulate);
//
// mask (null: not needed in forward) receives 1 where dropout_keeps and 0 elsewhere, in the memory order of y. Image n
// of x is example first_example + n. A NaN stays NaN even where it is dropped. y may be x, and dx may be dy.

}  // namespace gradus::kernels
