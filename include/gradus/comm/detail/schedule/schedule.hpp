// SPDX-License-Identifier: BSL-1.0
//
// The message schedule of one collective on one rank, as data.
#pragma once

#include <algorithm>  // std::max, std::min
#include <cstddef>    // std::size_t
#include <span>       // std::span

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"

namespace gradus::comm::detail {

using gradus::detail::part_bound;

/// The elements [begin, end) of a collective's array.
struct element_range {
  index_t begin = 0;
  index_t end = 0;

  [[nodiscard]] constexpr index_t size() const noexcept { return end - begin; }
  [[nodiscard]] constexpr bool overlaps(const element_range& other) const noexcept {
    return begin < other.end && other.begin < end;
  }
  friend constexpr bool operator==(const element_range&, const element_range&) = default;
};

/// What a rank does with received elements.
enum class arrival : unsigned char {
  replace,        ///< own = received
  combine,        ///< own = own op received
  combine_after,  ///< own = received op own, if two ranks must compute the same bits from each other's elements
};

struct scheduled_send {
  int peer = 0;
  element_range range;
  index_t after = 0;  ///< begins after this many receives are processed
};

struct scheduled_receive {
  int peer = 0;
  element_range range;
  arrival what = arrival::replace;
  index_t after = 0;  ///< writes to the array after this many sends are complete
};

/// The sends and receives of one rank in one collective, in program order. Long messages are split, so that one part is
/// combined or passed on while the next travels. A send waits only for the receives that change its elements, and a
/// receive only for the sends that still read the elements that it changes. Two ranks split the same range into the
/// same messages, and messages from one rank to another arrive in the order in which they are sent. Empty ranges need
/// no message; a `signal` is a message without elements.
class schedule {
 public:
  /// Removes all messages.
  /// @param segment  largest number of elements of a message
  void clear(index_t segment) {
    segment_ = std::max<index_t>(segment, 1);
    longest_ = 0;
    sends_.clear();
    receives_.clear();
  }

  void send(int peer, const element_range& range);

  void receive(int peer, const element_range& range, arrival what);

  /// Adds a message without elements, sent after all receives so far are processed.
  void send_signal(int peer) {
    sends_.push_back({.peer = peer, .range = {}, .after = static_cast<index_t>(receives_.size())});
  }
  void receive_signal(int peer) { receives_.push_back({.peer = peer, .range = {}}); }

  [[nodiscard]] std::span<const scheduled_send> sends() const noexcept { return {sends_.data(), sends_.size()}; }
  [[nodiscard]] std::span<const scheduled_receive> receives() const noexcept {
    return {receives_.data(), receives_.size()};
  }
  /// Number of elements of the longest message that is received.
  [[nodiscard]] index_t longest_receive() const noexcept { return longest_; }

 private:
  template <class Function>
  void for_each_segment(const element_range& range, const Function& function) const {
    const index_t segments = (range.size() + segment_ - 1) / segment_;
    for (index_t i = 0; i < segments; ++i) {
      function({range.begin + part_bound(range.size(), segments, i),
                range.begin + part_bound(range.size(), segments, i + 1)});
    }
  }

  /// Sends begin in order, so none begins before the one in front of it.
  [[nodiscard]] index_t last_after() const noexcept { return sends_.empty() ? 0 : sends_.back().after; }

  index_t segment_ = 1;
  index_t longest_ = 0;
  dynamic_array<scheduled_send> sends_;
  dynamic_array<scheduled_receive> receives_;
};

/// The ranks that take part in a collective or a part of it, and the position of this rank.
struct rank_group {
  std::span<const int> ranks;
  int self = 0;  ///< the position of this rank

  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks.size()); }
  [[nodiscard]] int rank(int position) const noexcept { return ranks[static_cast<std::size_t>(position)]; }
};

}  // namespace gradus::comm::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm::detail {

GRADUS_INLINE void schedule::send(int peer, const element_range& range) {
  for_each_segment(range, [&, this](const element_range& part) {
    index_t after = static_cast<index_t>(receives_.size());
    while (after > 0 && !receives_[static_cast<std::size_t>(after - 1)].range.overlaps(part)) {
      --after;
    }
    sends_.push_back({.peer = peer, .range = part, .after = std::max(after, last_after())});
  });
}

GRADUS_INLINE void schedule::receive(int peer, const element_range& range, arrival what) {
  for_each_segment(range, [&, this](const element_range& part) {
    index_t after = static_cast<index_t>(sends_.size());
    while (after > 0 && !sends_[static_cast<std::size_t>(after - 1)].range.overlaps(part)) {
      --after;
    }
    longest_ = std::max(longest_, part.size());
    receives_.push_back({.peer = peer, .range = part, .what = what, .after = after});
  });
}

}  // namespace gradus::comm::detail
#endif
