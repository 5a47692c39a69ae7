// SPDX-License-Identifier: BSL-1.0
//
// The spans of one thread, in a ring that keeps the newest.
#pragma once

#include <array>    // std::array
#include <atomic>   // std::atomic
#include <bit>      // std::bit_cast
#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint64_t
#include <vector>   // std::vector

#include "gradus/core/dynamic_array.hpp"
#include "gradus/trace/span.hpp"

namespace gradus::trace::detail {

/// One thread writes, any thread reads, and neither waits. The words of a slot are atomic, so a read during an
/// overwrite is not a data race. A reader leaves out spans that may have been overwritten meanwhile (a sequence lock
/// over the whole ring: H. Boehm, Can seqlocks get along with programming language memory models?, 2012).
class ring {
 public:
  /// @param capacity  number of spans to keep; a power of two
  explicit ring(std::size_t capacity) : slots_(capacity), mask_{capacity - 1} {}

  /// Adds a span; called by the writer.
  void push(const span& one) noexcept {
    const std::uint64_t number = complete_.load(std::memory_order_relaxed);
    begun_.store(number + 1, std::memory_order_relaxed);
    const auto words = std::bit_cast<slot_words>(one);
    slot& entry = slots_[number & mask_];
    for (std::size_t i = 0; i < words.size(); ++i) {
      entry.words[i].store(words[i], std::memory_order_release);  // not before begun_
    }
    complete_.store(number + 1, std::memory_order_release);
  }

  /// Appends the spans that are still present, oldest first; returns the number of spans that are lost.
  std::uint64_t read(std::vector<span>& into) const {
    const std::uint64_t end = complete_.load(std::memory_order_acquire);
    const std::uint64_t first = end < slots_.size() ? 0 : end - slots_.size();
    const std::size_t before = into.size();
    for (std::uint64_t number = first; number < end; ++number) {
      const slot& entry = slots_[number & mask_];
      slot_words words;
      for (std::size_t i = 0; i < words.size(); ++i) {
        words[i] = entry.words[i].load(std::memory_order_acquire);
      }
      into.push_back(std::bit_cast<span>(words));
    }
    const std::uint64_t begun = begun_.load(std::memory_order_relaxed);
    const std::uint64_t lost = begun < slots_.size() ? 0 : begun - slots_.size();
    if (lost > first) {
      const auto gone = static_cast<std::ptrdiff_t>((lost < end ? lost : end) - first);
      into.erase(into.begin() + static_cast<std::ptrdiff_t>(before),
                 into.begin() + static_cast<std::ptrdiff_t>(before) + gone);
    }
    return lost < end ? lost : end;
  }

 private:
  using slot_words = std::array<std::uint64_t, sizeof(span) / sizeof(std::uint64_t)>;
  struct alignas(64) slot {
    std::array<std::atomic<std::uint64_t>, sizeof(span) / sizeof(std::uint64_t)> words{};
  };

  // Initialized with zeros, so that recording touches no new page.
  dynamic_array<slot> slots_;
  std::size_t mask_;
  alignas(64) std::atomic<std::uint64_t> begun_{0};
  std::atomic<std::uint64_t> complete_{0};
};

}  // namespace gradus::trace::detail
