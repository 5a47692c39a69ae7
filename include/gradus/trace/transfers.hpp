// SPDX-License-Identifier: BSL-1.0
//
// Records the transfers of a communicator and of its duplicates.
#pragma once

#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::int32_t, std::int64_t, std::uint32_t, std::uint64_t, std::uint8_t
#include <memory>       // std::make_shared, std::make_unique, std::shared_ptr, std::unique_ptr
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <utility>      // std::move, std::swap

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/call.hpp"
#include "gradus/comm/recorded.hpp"
#include "gradus/comm/watch.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/reference.hpp"
#include "gradus/trace/clock_alignment.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/trace/rule_watch.hpp"
#include "gradus/trace/span.hpp"

namespace gradus::trace {

namespace detail {

/// Counts messages for each peer and tag: a hash table with open addressing that never shrinks.
class message_counts {
 public:
  /// Increments the count and returns the previous value.
  std::uint32_t next(bool sent, int peer, int tag) {
    // A peer and a tag have at most 31 bits.
    const std::uint64_t key = (std::uint64_t{sent} << 63U) |
                              (static_cast<std::uint64_t>(static_cast<std::uint32_t>(peer)) << 32U) |
                              static_cast<std::uint32_t>(tag);
    if (2 * (used_ + 1) > entries_.size()) {
      grow();
    }
    entry& found = find(entries_, key);
    if (!found.used) {
      found = {.key = key, .count = 0, .used = true};
      ++used_;
    }
    return found.count++;
  }

 private:
  struct entry {
    std::uint64_t key = 0;
    std::uint32_t count = 0;
    bool used = false;
  };

  static entry& find(dynamic_array<entry>& entries, std::uint64_t key) noexcept {
    const std::size_t mask = entries.size() - 1;
    std::size_t at = ((key * 0x9e3779b97f4a7c15U) >> 32U) & mask;
    while (entries[at].used && entries[at].key != key) {
      at = (at + 1) & mask;
    }
    return entries[at];
  }

  void grow() {
    dynamic_array<entry> larger(entries_.empty() ? 16 : 2 * entries_.size());
    for (const entry& each : entries_) {
      if (each.used) {
        find(larger, each.key) = each;
      }
    }
    std::swap(entries_, larger);
  }

  dynamic_array<entry> entries_;
  std::size_t used_ = 0;
};

}  // namespace detail

/// A recorder for comm::recorded that records operations as spans: each transfer from its begin until a thread sees
/// that it is complete, and each wait for one. Transfers of memory that the recorder has a name for get that name.
///
/// The k-th collective of a communicator is the k-th on every rank; messages are counted for each sender, receiver and
/// tag. So the parts of a transfer can be matched when the ranks' traces are collected, without extra messages during a
/// step.
class transfers {
 public:
  static constexpr bool watches_training = true;  ///< a trainer records its steps

  /// The counts of one communicator.
  struct channel {
    /// The counts of the duplicate with this number.
    explicit channel(int duplicate) noexcept : number{static_cast<std::uint32_t>(duplicate)} {}

    std::uint32_t number;               ///< index of the duplicate
    std::uint32_t collectives = 0;      ///< number of collectives so far
    detail::message_counts messages{};  ///< numbers of messages so far
  };

  /// An operation under way.
  struct entry {
    span transfer{};              ///< the span of the operation
    std::int64_t wait_began = 0;  ///< begin of the wait in ticks; 0: no thread waits
  };

  /// Records to `to`, which must outlive the communicator.
  explicit transfers(recorder& to) : recorder_{&to}, first_channel_{to.next_channels()} {}

  /// The recorder of the spans.
  [[nodiscard]] recorder& spans() const noexcept { return *recorder_; }

  /// Begins the span of an operation; see comm::recorded.
  entry begin(channel& on, const comm::call_description& what, std::span<const std::byte> memory) {
    using comm::call_kind;
    const bool message = what.kind == call_kind::send || what.kind == call_kind::receive;
    entry made;
    span& one = made.transfer;
    // Count also while recording is off, because the ranks may turn it on at different times.
    one.sequence = message ? on.messages.next(what.kind == call_kind::send, what.peer, what.tag) : on.collectives++;
    if (!recorder_->enabled()) {
      return made;
    }
    one.subject = recorder_->memory_name(memory.data(), memory.size());
    one.title = name::of(what.kind);
    one.bytes = static_cast<std::int64_t>(memory.size());
    one.step = recorder_->step();
    one.peer = message || what.kind == call_kind::broadcast ? static_cast<std::int32_t>(what.peer) : -1;
    one.tag = static_cast<std::int32_t>(what.tag);
    one.channel = first_channel_ + on.number;
    one.what = category::communicate;
    one.where = track::communicate;
    one.operation = static_cast<std::uint8_t>(what.kind);
    one.begin = recorder_->now();
    return made;
  }

  /// A thread begins to wait for the operation.
  void wait_begins(entry& of) const noexcept {
    if (of.transfer.is_transfer()) {
      of.wait_began = recorder_->now();
    }
  }

  /// Records the spans of the operation and of the wait for it.
  void end(entry& of) const {
    if (of.transfer.is_transfer()) {
      const std::int64_t now = recorder_->now();
      of.transfer.end = now;
      recorder_->push(of.transfer);
      if (of.wait_began != 0) {
        span wait{.begin = of.wait_began,
                  .end = now,
                  .title = "wait",
                  .subject = of.transfer.subject.empty() ? of.transfer.title : of.transfer.subject,
                  .step = of.transfer.step,
                  .what = category::wait};
        recorder_->push_here(wait);
      }
    }
  }

  /// The same as end.
  void fail(entry& of, std::string_view /*reason*/) const { end(of); }

  /// Records the update rule on the calling thread. See comm::rule_watch_of.
  [[nodiscard]] std::unique_ptr<comm::rule_watch> watch_rule() const {
    return std::make_unique<rule_watch>(*recorder_);
  }

  /// Records that the calling thread copies this memory, until the result is destroyed. See comm::watch_copy.
  [[nodiscard]] scope copying(std::span<const std::byte> memory) const {
    return {*recorder_, category::copy, "copy", recorder_->memory_name(memory.data(), memory.size()),
            static_cast<std::int64_t>(memory.size())};
  }

 private:
  recorder* recorder_;
  std::uint32_t first_channel_;
};

/// Makes a communicator whose transfers are recorded. All ranks call it, and compare their clocks over the
/// communicator. A recorder may trace several communicators of the same ranks, in the same order on all of them. It
/// must outlive them.
/// @throws communication_error if a rank fails or does not call it in time
template <class Communicator>
[[nodiscard]] comm::recorded<Communicator, transfers> traced(Communicator communicator, borrowed<recorder> to) {
  to.get().note_clock(measure_clock(communicator, &detail::steady_nanoseconds));
  return comm::recorded<Communicator, transfers>{std::move(communicator), std::make_shared<transfers>(to)};
}
/// The same for a communicator of a device's memory, such as comm::nccl: clocks are compared over `hosts`.
/// @param hosts  of the same ranks, for memory of the host; trace::collect and trace::write take it too
template <class Communicator>
[[nodiscard]] comm::recorded<Communicator, transfers> traced(Communicator communicator, recorder& to,
                                                             comm::any_communicator hosts) {
  to.note_clock(measure_clock(std::move(hosts), &detail::steady_nanoseconds));
  return comm::recorded<Communicator, transfers>{std::move(communicator), std::make_shared<transfers>(to)};
}

}  // namespace gradus::trace
