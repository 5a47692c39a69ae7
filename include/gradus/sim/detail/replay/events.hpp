// SPDX-License-Identifier: BSL-1.0
//
// The events of a simulation in the order of their times.
#pragma once

#include <algorithm>  // std::min
#include <cstddef>    // std::ptrdiff_t, std::size_t
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
  std::uint32_t lane = 0;  ///< of the queue
};

/// Events of a lane come in the order of their times, as messages leave a port: only the first of a lane is in the
/// heap, which is therefore small. An event that is sooner than the last one of its lane is put into the heap at once.
/// The heap has four children a node, which are next to each other in memory.
class event_queue {
 public:
  static constexpr std::uint32_t no_lane = ~std::uint32_t{0};

  explicit event_queue(std::size_t lanes = 0) : lanes_(lanes) {}

  /// @param lane  below the number of lanes, or no_lane
  void push(std::uint32_t lane, double time, std::uint32_t kind, std::uint32_t rank, std::uint32_t run = 0,
            std::uint32_t item = 0) {
    event added{time, pushed_++, kind, rank, run, item, no_lane};
    if (lane != no_lane) {
      lane_state& own = lanes_[lane];
      if (!own.in_heap) {
        own.in_heap = true;
        own.last = time;
        added.lane = lane;
      } else if (time >= own.last) {
        own.last = time;
        added.lane = lane;
        own.waiting.push_back(added);
        return;
      }
    }
    heap_.push_back(added);
    sift_up(added);
  }

  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }

  /// @pre not empty()
  event pop() {
    const event first = heap_.front();
    if (first.lane != no_lane) {
      lane_state& own = lanes_[first.lane];
      if (own.next < own.waiting.size()) {
        sift_down(own.waiting[own.next++]);
        if (2 * own.next >= own.waiting.size()) {  // a lane may never be empty
          own.waiting.erase(own.waiting.begin(), own.waiting.begin() + static_cast<std::ptrdiff_t>(own.next));
          own.next = 0;
        }
        return first;
      }
      own.in_heap = false;
    }
    const event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) {
      sift_down(last);
    }
    return first;
  }

  /// Events that were pushed since the beginning.
  [[nodiscard]] std::uint64_t pushed() const noexcept { return pushed_; }

 private:
  static constexpr std::size_t children = 4;

  struct lane_state {
    std::vector<event> waiting;
    std::size_t next = 0;  // of them
    double last = 0;
    bool in_heap = false;  // an event of this lane
  };

  static bool later(const event& a, const event& b) noexcept {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }

  /// From the last position.
  void sift_up(const event& added) noexcept {
    std::size_t at = heap_.size() - 1;
    while (at > 0 && later(heap_[(at - 1) / children], added)) {
      heap_[at] = heap_[(at - 1) / children];
      at = (at - 1) / children;
    }
    heap_[at] = added;
  }

  /// From the first position.
  void sift_down(const event& added) noexcept {
    std::size_t at = 0;
    for (std::size_t child = 1; child < heap_.size(); child = children * at + 1) {
      const std::size_t end = std::min(child + children, heap_.size());
      std::size_t soonest = child;
      for (std::size_t other = child + 1; other < end; ++other) {
        soonest = later(heap_[soonest], heap_[other]) ? other : soonest;
      }
      if (!later(added, heap_[soonest])) {
        break;
      }
      heap_[at] = heap_[soonest];
      at = soonest;
    }
    heap_[at] = added;
  }

  std::vector<event> heap_;
  std::vector<lane_state> lanes_;
  std::uint64_t pushed_ = 0;
};

}  // namespace gradus::sim::detail
