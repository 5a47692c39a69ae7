// SPDX-License-Identifier: BSL-1.0
//
// The number of operations that a rank has begun on an MPI channel, and those of ranks that left the channel.
#pragma once

#include <mpi.h>

#include <algorithm>  // std::min
#include <atomic>     // std::atomic
#include <chrono>     // std::chrono
#include <cstddef>    // std::size_t
#include <cstdint>    // std::int32_t, std::uint32_t, std::uint64_t
#include <memory>     // std::make_unique, std::unique_ptr
#include <mutex>      // std::mutex, std::scoped_lock
#include <optional>   // std::nullopt, std::optional
#include <string>     // std::string
#include <utility>    // std::move

#include "gradus/comm/call.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm::detail {

/// The number of messages of a channel between two ranks, as counted by one of them. Tags are counted in groups,
/// because a program may use any number of tags.
struct message_counts {
  static constexpr std::size_t groups = 16;

  std::uint32_t sent[groups];      // begun; modulo 2^32
  std::uint32_t received[groups];  // complete; modulo 2^32

  [[nodiscard]] static std::size_t group_of_tag(int tag) noexcept { return static_cast<std::size_t>(tag) % groups; }
};

/// The notice that a rank sends to each of the others when it leaves a channel. Sent as bytes.
struct departure_notice {
  std::uint64_t channel;
  std::uint64_t collectives;  // number of collectives in which it took part
  std::int32_t rank;          // rank in the channel
  std::int32_t unwinding;     // 1 if it left because of an exception
  message_counts messages;    // between the sender and the receiver of the notice
};

/// The state of one rank in a channel. One thread at a time begins operations; any thread may receive notices of
/// departures.
class mpi_membership {
 public:
  /// @param channel  a number that only the ranks of this channel use, and for no other channel
  mpi_membership(std::uint64_t channel, int rank, int size) noexcept : channel_{channel}, rank_{rank}, size_{size} {}

  mpi_membership(const mpi_membership&) = delete;
  mpi_membership& operator=(const mpi_membership&) = delete;

  [[nodiscard]] std::uint64_t channel() const noexcept { return channel_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// The number of the channel that this rank's latest collective, a duplicate, creates.
  [[nodiscard]] std::uint64_t channel_of_duplicate() const noexcept {
    std::uint64_t mixed = channel_ + 0x9e3779b97f4a7c15U * (collectives_ + 1);  // SplitMix64
    mixed = (mixed ^ mixed >> 30U) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ mixed >> 27U) * 0x94d049bb133111ebU;
    return mixed ^ mixed >> 31U;
  }

  /// Counts an operation that this rank begins. Returns its number, from 1, among the collectives, or among the
  /// messages to its peer with tags of the same group.
  std::uint64_t begin(const call_description& what) {
    const bool sends = what.kind == call_kind::send;
    if (!sends && what.kind != call_kind::receive) {
      return ++collectives_;
    }
    if (messages_.empty()) {
      messages_ = dynamic_array<message_counts>(static_cast<std::size_t>(size_));
    }
    return sends ? ++messages_of(what.peer).sent[message_counts::group_of_tag(what.tag)] : 0;
  }
  void received(const call_description& what) noexcept {
    ++messages_of(what.peer).received[message_counts::group_of_tag(what.tag)];
  }

  /// Leaves the collective `number`, and all later ones, unfinished.
  void give_up(std::uint64_t number) noexcept { taken_part_ = std::min(taken_part_, number - 1); }

  /// The notice to `peer` when this rank leaves.
  [[nodiscard]] departure_notice departure(int peer, bool unwinding) const noexcept {
    return {channel_, std::min(collectives_, taken_part_), rank_, unwinding ? 1 : 0,
            messages_.empty() ? message_counts{} : messages_[static_cast<std::size_t>(peer)]};
  }

  /// Stores the notice of a rank that has left.
  void hear(const departure_notice& notice, int world_rank) {
    const std::scoped_lock lock{mutex_};
    if (left_.empty()) {
      left_ = dynamic_array<std::unique_ptr<departed>>(static_cast<std::size_t>(size_));
    }
    auto& each = left_[static_cast<std::size_t>(notice.rank)];
    each = std::make_unique<departed>(departed{notice, world_rank, clock::now()});
    if (first_ == nullptr || notice.collectives < first_->notice.collectives) {
      first_ = each.get();
    }
    some_left_.store(true, std::memory_order_release);
  }

  [[nodiscard]] bool some_left() const noexcept { return some_left_.load(std::memory_order_acquire); }

  struct absence {
    int world_rank;
    std::string reason;
  };
  /// Why an incomplete operation can no longer complete: the rank that has left without taking part in it. Empty if it
  /// can.
  /// @param number  the result of begin()
  /// @param who     this rank in words
  [[nodiscard]] std::optional<absence> absence_from(const call_description& what, std::uint64_t number,
                                                    const std::string& who) const {
    const std::scoped_lock lock{mutex_};
    const bool message = what.kind == call_kind::send || what.kind == call_kind::receive;
    const departed* const other = message ? left_[static_cast<std::size_t>(what.peer)].get() : first_;
    if (other == nullptr) {
      return std::nullopt;
    }
    const departure_notice& last = other->notice;
    bool patient = last.unwinding != 0;  // the exception's message may follow
    if (!message) {
      if (last.collectives >= number) {
        return std::nullopt;
      }
    } else {
      const std::size_t group = message_counts::group_of_tag(what.tag);
      if (what.kind == call_kind::receive) {
        // A message that was sent before its sender left may still be under way.
        if (messages_[static_cast<std::size_t>(what.peer)].received[group] != last.messages.sent[group]) {
          return std::nullopt;
        }
      } else {
        const auto behind = static_cast<std::uint32_t>(number) - last.messages.received[group];
        if (behind == 0 || behind > 1U << 31U) {
          return std::nullopt;
        }
        patient = true;  // MPI may be about to detect that a message has arrived
      }
    }
    if (patient && clock::now() < other->heard + reason_grace) {
      return std::nullopt;
    }
    const char* const why = last.unwinding != 0 ? " because of an exception" : " (its communicator was destroyed)";
    std::string reason{"it has left the group"};
    if (message) {
      append_text(reason, {why, ", but ", who, " calls ", what.describe()});
    } else {
      append_text(reason, {" after ", last.collectives, " collectives", why, ", but ", who,
                           " waits for it in collective ", number, ": ", what.describe()});
    }
    return absence{other->world_rank, std::move(reason)};
  }

  /// MPI's communicator of the channel while this rank is in it; MPI_COMM_NULL before and after.
  MPI_Comm communicator = MPI_COMM_NULL;

 private:
  struct departed {
    departure_notice notice;
    int world_rank;
    clock::time_point heard;
  };

  [[nodiscard]] message_counts& messages_of(int peer) noexcept { return messages_[static_cast<std::size_t>(peer)]; }

  std::uint64_t channel_;
  int rank_;
  int size_;
  std::uint64_t collectives_ = 0;                 // number of collectives begun
  std::uint64_t taken_part_ = ~std::uint64_t{0};  // limit of the collectives in which it takes part
  dynamic_array<message_counts> messages_;        // by peer; empty before the first message
  std::atomic<bool> some_left_{false};
  mutable std::mutex mutex_;                       // protects the members below
  dynamic_array<std::unique_ptr<departed>> left_;  // by rank; empty before the first departure
  const departed* first_ = nullptr;                // the one that took part in the fewest collectives
};

}  // namespace gradus::comm::detail
