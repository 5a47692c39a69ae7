// SPDX-License-Identifier: BSL-1.0
//
// The events of a simulation in the order of their times.
#pragma once

#include <algorithm>  // std::pop_heap, std::push_heap
#include <cstdint>    // std::uint32_t, std::uint64_t
#include <vector>     // std::vector

#include "gradus/core/config.hpp"

namespace gradus::sim::detail {

/// Something that happens at a time. What the numbers mean is up to who pushed it.
struct event {
  double time = 0;
  std::uint64_t order = 0;  ///< of events of one time the one that was pushed first comes first
  std::uint32_t kind = 0;
  std::uint32_t rank = 0;
  std::uint32_t run = 0;
  std::uint32_t item = 0;
};

class event_queue {
 public:
  void push(double time, std::uint32_t kind, std::uint32_t rank, std::uint32_t run = 0, std::uint32_t item = 0) {
    heap_.push_back({time, pushed_++, kind, rank, run, item});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }

  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }

  /// @pre not empty()
  event pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const event first = heap_.back();
    heap_.pop_back();
    return first;
  }

  /// Events that were pushed since the beginning.
  [[nodiscard]] std::uint64_t pushed() const noexcept { return pushed_; }

  void clear() noexcept {
    heap_.clear();
    pushed_ = 0;
  }

 private:
  static bool later(const event& a, const event& b) noexcept {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }

  std::vector<event> heap_;
  std::uint64_t pushed_ = 0;
};

}  // namespace gradus::sim::detail
