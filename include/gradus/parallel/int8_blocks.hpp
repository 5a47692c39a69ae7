// SPDX-License-Identifier: BSL-1.0
//
// Gradients that travel in 8 bits: blocks of small integers with a scale each, and feedback of what rounding loses.
#pragma once

#include <algorithm>    // std::fill_n, std::max, std::max_element
#include <bit>          // std::bit_cast
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::int8_t, std::int32_t, std::int64_t
#include <cstring>      // std::memcpy
#include <limits>       // std::numeric_limits
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <type_traits>  // std::conditional_t, std::is_same_v

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/parallel/compressed_all_reduce.hpp"
#include "gradus/parallel/detail/all_reduce/encoded_gradients.hpp"

namespace gradus::parallel {

/// Numbers as integers of 8 bits in blocks of 256, each with a scale of its own: a quarter of the bytes of float. For
/// the values v of a block and m, the largest of their magnitudes:
///
///   scale = float(m / 127),   code = v * (127 / m) rounded to the nearest, halves away from zero,   v ~ scale * code
///
///   block                                   | arrives as
///   m from 1.5e-36 to 1.7e38                | multiples of the scale; the error is at most m / 254
///   all below 1.5e-36, 0 and denormals too  | zeros
///   a value is NaN, infinite or above 1.7e38 | NaN, all 256
///
/// As a wire of compressed_all_reduce:
///
///   train::trainer trainer{net, optim::sgd{}, world, parallel::compressed_all_reduce<parallel::int8_blocks>{}};
///
/// Every rank sums one chunk of each bucket. The others send it theirs, encoded; it adds them to its own in the order
/// of the ranks, encodes the sum, and sends it to all. So 2 (p - 1) / p bytes of an element travel from each of p
/// ranks, and all ranks decode the same bytes: they have the same bits. The communicator only carries messages; which
/// all-reduce algorithm it has does not matter.
///
/// Error feedback: what rounding takes from an element stays on the rank that rounded, as a residual, and is added to
/// the gradient of the next step before that is rounded. After any number of steps, the sums that have been delivered
/// and the residuals of all ranks are together the sum of all gradients. Where the loss is scaled, residuals are kept
/// without the scale. A block with a number that is not finite leaves its residuals as they are, and the sum is NaN on
/// all ranks, so that loss scaling skips the step. Residuals take memory for one more copy of the gradients. They
/// belong to checkpoints; on another number of ranks each has a share of their sum.
///
/// Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of Speech
/// DNNs", 2014, has both roundings and their feedback; Karimireddy et al., "Error Feedback Fixes SignSGD and other
/// Gradient Compression Schemes", 2019, proves that it converges as without rounding. Blocks with scales: Dettmers,
/// "8-Bit Approximations for Parallelism in Deep Learning", 2016.
struct int8_blocks {
  /// The name in messages.
  static constexpr std::string_view name = "int8";
  /// Numbers of a block.
  static constexpr index_t block = 256;
  /// A block with smaller values only arrives as zeros: its scale would be a denormal number.
  static constexpr float least = 127 * std::numeric_limits<float>::min();
  /// A larger magnitude counts as infinite.
  static constexpr float most = 0x1p127F;

  /// The bytes of `count` encoded numbers, in whole blocks but for the last.
  [[nodiscard]] static constexpr index_t bytes(index_t count) noexcept {
    return count + (count + block - 1) / block * static_cast<index_t>(sizeof(float));
  }

  /// Encodes the numbers of one block: its scale, then a byte for each.
  /// @param to  bytes(values.size()) bytes
  /// @return  whether all are finite and not above `most`
  /// @pre 0 < values.size() <= block
  template <real_element Element>
  static bool encode(std::span<const Element> values, std::byte* to) noexcept {
    float scale = 0;
    const Element largest = largest_magnitude(values);
    const bool finite = largest >= 0;
    auto* const codes = reinterpret_cast<std::int8_t*>(to + sizeof(float));
    if (finite && largest >= static_cast<Element>(least)) {
      scale = static_cast<float>(largest / 127);
      round(values, Element{127} / largest, codes);
    } else {
      scale = finite ? 0 : std::numeric_limits<float>::quiet_NaN();
      std::fill_n(codes, values.size(), std::int8_t{0});
    }
    std::memcpy(to, &scale, sizeof(float));
    return finite;
  }

  /// The numbers of one encoded block: the same bits on all ranks.
  template <real_element Element>
  static void decode(const std::byte* from, std::span<Element> values) noexcept {
    float scale = 0;
    std::memcpy(&scale, from, sizeof(float));
    const auto* const codes = reinterpret_cast<const std::int8_t*>(from + sizeof(float));
    const auto factor = static_cast<Element>(scale);
    Element* const to = values.data();
    for (std::size_t i = 0; i < values.size(); ++i) {
      to[i] = factor * static_cast<Element>(codes[i]);
    }
  }

 private:
  // Vectors of the compiler, of 16 bytes: loops over elements are not vectorized at -O2.
  template <class Element>
  using integer = std::conditional_t<std::is_same_v<Element, float>, std::int32_t, std::int64_t>;
  template <class Element>
  static constexpr std::size_t lanes = 16 / sizeof(Element);
  template <class Element>
  struct vectors {
    typedef Element of_numbers __attribute__((vector_size(16)));
    typedef integer<Element> of_integers __attribute__((vector_size(16)));
  };
  template <class Element>
  using numbers = typename vectors<Element>::of_numbers;
  template <class Element>
  using integers = typename vectors<Element>::of_integers;

  /// -1 unless all are finite and not above `most`. The bits without the sign are ordered as the magnitudes are, and
  /// those of infinity and NaN are above the others: so it holds with -ffast-math too.
  template <class Element>
  static Element largest_magnitude(std::span<const Element> values) noexcept {
    constexpr auto magnitude = std::numeric_limits<integer<Element>>::max();
    const Element* const from = values.data();
    const std::size_t in_vectors = values.size() / lanes<Element> * lanes<Element>;
    integers<Element> found{};
    for (std::size_t i = 0; i < in_vectors; i += lanes<Element>) {
      integers<Element> bits;
      std::memcpy(&bits, from + i, sizeof(bits));
      bits &= magnitude;
      const integers<Element> larger = bits > found;
      found = (bits & larger) | (found & ~larger);
    }
    integer<Element> of_lanes[lanes<Element>];
    std::memcpy(of_lanes, &found, sizeof(found));
    integer<Element> largest = *std::max_element(of_lanes, of_lanes + lanes<Element>);
    for (std::size_t i = in_vectors; i < values.size(); ++i) {
      largest = std::max(largest, std::bit_cast<integer<Element>>(from[i]) & magnitude);
    }
    const bool finite = largest <= std::bit_cast<integer<Element>>(static_cast<Element>(most));
    return finite ? std::bit_cast<Element>(largest) : Element{-1};
  }

  /// Integers are truncated, so a half is added to the magnitude before.
  template <class Element>
  static void round(std::span<const Element> values, Element factor, std::int8_t* codes) noexcept {
    constexpr auto sign = std::numeric_limits<integer<Element>>::min();
    constexpr auto half = std::bit_cast<integer<Element>>(Element{0.5});
    const Element* const from = values.data();
    const std::size_t in_vectors = values.size() / lanes<Element> * lanes<Element>;
    for (std::size_t i = 0; i < in_vectors; i += lanes<Element>) {
      numbers<Element> scaled;
      std::memcpy(&scaled, from + i, sizeof(scaled));
      scaled *= factor;
      const integers<Element> halves = (reinterpret_cast<integers<Element>>(scaled) & sign) | half;
      const auto whole =
          __builtin_convertvector(scaled + reinterpret_cast<numbers<Element>>(halves), integers<Element>);
      for (std::size_t k = 0; k < lanes<Element>; ++k) {
        codes[i + k] = static_cast<std::int8_t>(whole[k]);
      }
    }
    for (std::size_t i = in_vectors; i < values.size(); ++i) {
      const Element scaled = from[i] * factor;
      codes[i] = static_cast<std::int8_t>(scaled + (scaled < 0 ? Element{-0.5} : Element{0.5}));
    }
  }
};

namespace detail {

template <class Element>
struct compressed_state<Element, int8_blocks> {
  using type = encoded_all_reduce_state<Element, int8_blocks>;
};

}  // namespace detail

static_assert(gradient_strategy<compressed_all_reduce<int8_blocks>>);

}  // namespace gradus::parallel
