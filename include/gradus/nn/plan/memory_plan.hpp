// SPDX-License-Identifier: BSL-1.0
//
// Offsets of buffers with known lifetimes in one arena.
#pragma once

#include <algorithm>  // std::max, std::move_backward, std::sort, std::upper_bound
#include <cstddef>    // std::size_t
#include <limits>     // std::numeric_limits
#include <span>       // std::span

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"

namespace gradus::nn {

/// The largest memory of a plan, in bytes.
inline constexpr std::size_t most_bytes = std::size_t{1} << 60U;

namespace detail {

/// a + b, the bytes of a plan.
/// @throws configuration_error if they are more than most_bytes
[[nodiscard]] std::size_t sum_of_bytes(std::size_t a, std::size_t b);

/// As many bytes for each of some copies.
/// @throws configuration_error if they are more than most_bytes
[[nodiscard]] std::size_t bytes_of_copies(std::size_t copies, std::size_t bytes);

}  // namespace detail

/// A buffer that is in use from time `first` to time `last`, both included.
struct buffer_lifetime {
  std::size_t bytes = 0;  ///< size
  std::size_t first = 0;  ///< time of the first use
  std::size_t last = 0;   ///< time of the last use
};

/// The offsets of buffers in an arena, in bytes.
struct memory_plan {
  static constexpr std::size_t alignment = 64;  ///< divisor of every offset, in bytes

  dynamic_array<std::size_t> offsets;  ///< one for each buffer, multiples of `alignment`
  std::size_t bytes = 0;               ///< size of the arena

  /// Bytes, rounded up to a multiple of `alignment`. @throws configuration_error if they are more than most_bytes
  [[nodiscard]] static std::size_t aligned(std::size_t bytes) {
    return detail::sum_of_bytes(bytes, alignment - 1) / alignment * alignment;
  }
};

/// A part of an arena with a copy for each of several micro-batches.
struct memory_region {
  std::size_t begin = 0;   ///< bytes from the beginning of the arena
  std::size_t bytes = 0;   ///< of one copy
  std::size_t copies = 1;  ///< micro-batch m has copy m mod copies
};

namespace detail {

/// Places buffers one after another, each into the smallest gap between placed buffers with overlapping lifetimes.
/// @param order  indices of all buffers, the first to be placed first
/// Cost: quadratic in the number of buffers.
[[nodiscard]] memory_plan place_in_order(std::span<const buffer_lifetime> buffers, std::span<const std::size_t> order);

/// The indices of the buffers, the largest first; equal ones in their order.
[[nodiscard]] dynamic_array<std::size_t> largest_first(std::span<const buffer_lifetime> buffers);

}  // namespace detail

/// Chooses offsets so that buffers that are in use at the same time do not overlap.
///
/// Greedy by size (Pisarchyk, Lee: "Efficient memory management for deep neural net inference", 2020, section 5.2):
/// places the largest buffer first, each into the smallest gap between placed buffers with overlapping lifetimes.
/// @post buffers with overlapping lifetimes do not overlap; offsets are multiples of memory_plan::alignment
/// @throws configuration_error when the arena is larger than most_bytes
/// Cost: quadratic in the number of buffers.
[[nodiscard]] inline memory_plan plan_memory(std::span<const buffer_lifetime> buffers) {
  const dynamic_array<std::size_t> order = detail::largest_first(buffers);
  return detail::place_in_order(buffers, {order.data(), order.size()});
}

}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_INLINE std::size_t sum_of_bytes(std::size_t a, std::size_t b) {
  if (a > most_bytes || b > most_bytes - a) {
    raise<configuration_error>("memory plan", {"at most ", most_bytes, " bytes"}, {a, " and ", b},
                               "compile for a smaller max_batch_size");
  }
  return a + b;
}

GRADUS_INLINE std::size_t bytes_of_copies(std::size_t copies, std::size_t bytes) {
  if (bytes != 0 && copies > most_bytes / bytes) {
    raise<configuration_error>("memory plan", {"at most ", most_bytes, " bytes"}, {copies, " times ", bytes},
                               "compile for a smaller max_batch_size");
  }
  return copies * bytes;
}

GRADUS_INLINE memory_plan place_in_order(std::span<const buffer_lifetime> buffers, std::span<const std::size_t> order) {
  struct placed_buffer {
    std::size_t begin = 0;  // in the arena
    std::size_t end = 0;
    std::size_t first = 0;  // of its lifetime
    std::size_t last = 0;
  };
  memory_plan plan;
  plan.offsets = dynamic_array<std::size_t>(buffers.size());
  dynamic_array<placed_buffer> placed;  // sorted by `begin`
  placed.reserve(buffers.size());
  for (const std::size_t buffer : order) {
    const buffer_lifetime& want = buffers[buffer];
    const std::size_t bytes = memory_plan::aligned(want.bytes);
    std::size_t best = std::numeric_limits<std::size_t>::max();
    std::size_t best_gap = best;
    std::size_t end = 0;  // end of the space that is in use so far
    for (const placed_buffer& have : placed) {
      if (have.last < want.first || want.last < have.first) {
        continue;
      }
      if (have.begin > end && have.begin - end >= bytes && have.begin - end < best_gap) {
        best = end;
        best_gap = have.begin - end;
      }
      end = have.end > end ? have.end : end;
    }
    const std::size_t offset = best == std::numeric_limits<std::size_t>::max() ? end : best;
    plan.offsets[buffer] = offset;
    plan.bytes = std::max(plan.bytes, detail::sum_of_bytes(offset, bytes));
    const placed_buffer made{offset, offset + bytes, want.first, want.last};
    placed.push_back(made);
    placed_buffer* const position = std::upper_bound(
        placed.begin(), placed.end() - 1, offset, [](std::size_t at, const placed_buffer& p) { return at < p.begin; });
    std::move_backward(position, placed.end() - 1, placed.end());
    *position = made;
  }
  return plan;
}

GRADUS_INLINE dynamic_array<std::size_t> largest_first(std::span<const buffer_lifetime> buffers) {
  dynamic_array<std::size_t> order(buffers.size());
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    order[b] = b;
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return buffers[a].bytes != buffers[b].bytes ? buffers[a].bytes > buffers[b].bytes : a < b;
  });
  return order;
}

}  // namespace gradus::nn::detail
#endif
