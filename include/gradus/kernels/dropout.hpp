// SPDX-License-Identifier: BSL-1.0
//
// Dropout: what is dropped, as a function of the place in the data set and not of the machine.
#pragma once

#include <cmath>    // std::ldexp, std::floor
#include <cstdint>  // std::uint32_t, std::uint64_t

#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"

namespace gradus::kernels {

/// A 32-bit random word below it drops an element: rate * 2^32, rounded down.
/// @pre 0 <= rate < 1
[[nodiscard]] inline std::uint32_t dropout_threshold(double rate) noexcept {
  return static_cast<std::uint32_t>(std::ldexp(rate, 32));
}

/// Whether dropout keeps an element: `index` is its place inside the example in the order (c, h, w), whatever the
/// layout. Four neighbours share one block of the stream; at most 2^32 examples of 2^34 elements.
[[nodiscard]] constexpr bool dropout_keeps(const random_stream& stream, std::uint64_t step, std::uint64_t example,
                                           index_t index, std::uint32_t threshold) noexcept {
  const auto place = static_cast<std::uint64_t>(index);
  return stream.block((example << 32U) + place / 4, step)[place % 4] >= threshold;
}

// Every device D in the library overloads, for network elements E and layouts L (views are image_view<E, L, D>):
//
//   void dropout_forward(D&, x, y, double rate, const random_stream&, std::uint64_t step, std::uint64_t first_example,
//                        std::uint8_t* mask);                                  // y = mask * x / (1 - rate)
//   void dropout_backward(D&, index_t count, const E* dy, const std::uint8_t* mask, double scale, E* dx,
//                         bool accumulate);                                    // dx (+)= scale * mask * dy
//
// mask (null: not wanted in forward) holds 1 where dropout_keeps and 0 elsewhere, in the memory order of y. Image n of
// x is example first_example + n. A NaN stays visible also where it is dropped. y may be x, and dx may be dy.

}  // namespace gradus::kernels
