// SPDX-License-Identifier: BSL-1.0
//
// The message schedules of all ranks of a collective in one array, with the receive that each send belongs to.
#pragma once

#include <cstddef>        // std::size_t
#include <cstdint>        // std::int32_t, std::int64_t, std::uint32_t
#include <memory>         // std::shared_ptr
#include <optional>       // std::nullopt, std::optional
#include <span>           // std::span
#include <unordered_map>  // std::unordered_map
#include <utility>        // std::move, std::pair
#include <vector>         // std::vector

#include "gradus/comm/message_schedule.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/sim/cluster.hpp"
#include "gradus/sim/detail/replay/ports.hpp"

namespace gradus::sim::detail {

/// A send of a rank.
struct planned_send {
  float bytes = 0;
  std::int32_t to = 0;       ///< the simulated rank that receives
  std::int32_t after = 0;    ///< receives that are processed before
  std::int32_t receive = 0;  ///< its number among the receives of that rank
  route way = route::network;
};

/// A receive of a rank.
struct planned_receive {
  float bytes = 0;
  std::int32_t after = 0;  ///< sends that are complete before it is processed
  bool adds = false;
};

/// Which ranks are simulated. Where all ranks do the same, those of a few hosts stand for all: rank r and rank r + k n,
/// with n simulated ranks, then send and receive at the same times.
struct rank_folding {
  int simulated = 0;  ///< n: the whole job, or a divisor of it that fills hosts and switches

  [[nodiscard]] int of(int rank) const noexcept { return rank % simulated; }
};

/// The messages of a collective on the simulated ranks.
class message_plan {
 public:
  /// The schedules of comm for the ranks of a group.
  /// @param group          ranks of the whole job; with fewer simulated ranks than the job has, those below
  ///                       folding.simulated are replayed
  /// @param element_bytes  of the arrays
  /// @param roughly        dependencies may differ between ranks, as those of the segments of a long message do
  /// @return  nothing if the simulated ranks cannot stand for all
  /// @throws configuration_error if a message has no receiver: a defect of the schedule
  static std::optional<message_plan> make(const cluster& of, const comm::collective_shape& what,
                                          std::span<const int> group, index_t element_bytes,
                                          const rank_folding& folding, int ranks, bool roughly = false) {
    const bool folded = folding.simulated < ranks;
    message_plan plan{of, group, element_bytes, folding, ranks};
    std::vector<int> nodes;
    if (comm::is_hierarchical(what.algorithm)) {
      for (const int rank : group) {
        nodes.push_back(of.host_of(rank));
      }
    }
    std::vector<std::shared_ptr<const comm::message_schedule>> schedules;
    for (std::size_t position = 0; position < group.size(); ++position) {
      if (group[position] < folding.simulated) {
        schedules.push_back(comm::message_schedule_of(what, group, static_cast<int>(position), nodes));
        plan.add_rank(group[position], *schedules.back());
      }
    }
    plan.close();
    if (!folded) {
      if (!plan.match(schedules, pairing::exact)) {
        raise<configuration_error>("sim::message_plan", "a receive for each send", "a send without one");
      }
      return plan;
    }
    // The last ranks of the job must do what the simulated ones do.
    for (std::size_t position = 0; position < group.size(); ++position) {
      if (group[position] >= ranks - folding.simulated) {
        const auto other = comm::message_schedule_of(what, group, static_cast<int>(position), nodes);
        if (!plan.does_the_same(group[position], *other, roughly)) {
          return std::nullopt;
        }
      }
    }
    const bool matches = plan.match(schedules, pairing::rotation) || plan.match(schedules, pairing::exclusive_or);
    return matches && (!roughly || plan.ends()) ? std::optional{std::move(plan)} : std::nullopt;
  }

  /// The ranks that take part among the simulated ones.
  [[nodiscard]] std::span<const int> members() const noexcept { return members_; }
  [[nodiscard]] std::span<const planned_send> sends(int rank) const noexcept {
    return part_of(sends_, send_begin_, rank);
  }
  [[nodiscard]] std::span<const planned_receive> receives(int rank) const noexcept {
    return part_of(receives_, receive_begin_, rank);
  }
  /// The position of a rank's first send among those of all.
  [[nodiscard]] std::size_t first_send(int rank) const noexcept { return send_begin_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::size_t first_receive(int rank) const noexcept {
    return receive_begin_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::size_t all_sends() const noexcept { return sends_.size(); }
  [[nodiscard]] std::size_t all_receives() const noexcept { return receives_.size(); }
  /// Bytes that a rank sends.
  [[nodiscard]] double sent_bytes(int rank) const noexcept {
    double sum = 0;
    for (const planned_send& each : sends(rank)) {
      sum += static_cast<double>(each.bytes);
    }
    return sum;
  }

 private:
  /// How a send finds its receive where simulated ranks stand for others: a schedule may be the same after adding the
  /// same number to all ranks (rings), or after changing the same bits of all (halving and doubling).
  enum class pairing : unsigned char { exact, rotation, exclusive_or };

  message_plan(const cluster& of, std::span<const int> group, index_t element_bytes, const rank_folding& folding,
               int ranks)
      : of_{of},
        group_size_{group.size()},
        element_bytes_{static_cast<double>(element_bytes)},
        folding_{folding},
        ranks_{ranks} {
    send_begin_.assign(static_cast<std::size_t>(folding.simulated) + 1, 0);
    receive_begin_ = send_begin_;
  }

  template <class Item>
  [[nodiscard]] static std::span<const Item> part_of(const std::vector<Item>& all,
                                                     const std::vector<std::size_t>& begin, int rank) noexcept {
    const auto r = static_cast<std::size_t>(rank);
    return {all.data() + begin[r], begin[r + 1] - begin[r]};
  }

  void add_rank(int rank, const comm::message_schedule& from) {
    members_.push_back(rank);
    while (closed_ <= rank) {
      send_begin_[static_cast<std::size_t>(closed_)] = sends_.size();
      receive_begin_[static_cast<std::size_t>(closed_++)] = receives_.size();
    }
    for (const comm::scheduled_send& each : from.sends()) {
      sends_.push_back({.bytes = static_cast<float>(static_cast<double>(each.range.size()) * element_bytes_),
                        .to = folding_.of(each.peer),
                        .after = static_cast<std::int32_t>(each.after),
                        .receive = -1,
                        .way = port_table::route_of(of_, rank, each.peer)});
    }
    for (const comm::scheduled_receive& each : from.receives()) {
      receives_.push_back({.bytes = static_cast<float>(static_cast<double>(each.range.size()) * element_bytes_),
                           .after = static_cast<std::int32_t>(each.after),
                           .adds = each.what != comm::message_arrival::replace});
    }
  }

  void close() {
    for (; closed_ <= folding_.simulated; ++closed_) {
      send_begin_[static_cast<std::size_t>(closed_)] = sends_.size();
      receive_begin_[static_cast<std::size_t>(closed_)] = receives_.size();
    }
  }

  /// The pair of ranks as the key of a queue of messages: what `a` sends to `b`, seen from the simulated rank of b.
  [[nodiscard]] std::int64_t key(int from, int to, pairing how) const noexcept {
    const std::int64_t all = ranks_;
    const std::int64_t difference = how == pairing::exclusive_or ? (from ^ to)
                                    : how == pairing::rotation   ? ((to - from) % ranks_ + ranks_) % ranks_
                                                                 : from;
    return static_cast<std::int64_t>(folding_.of(to)) * (2 * all) + difference;
  }

  /// Messages between two ranks arrive in the order in which they are sent, so the n-th send belongs to the n-th
  /// receive.
  bool match(const std::vector<std::shared_ptr<const comm::message_schedule>>& schedules, pairing how) {
    std::unordered_map<std::int64_t, std::pair<std::vector<std::int32_t>, std::size_t>> waiting;
    for (std::size_t m = 0; m < members_.size(); ++m) {
      std::int32_t number = 0;
      for (const comm::scheduled_receive& each : schedules[m]->receives()) {
        waiting[key(each.peer, members_[m], how)].first.push_back(number++);
      }
    }
    for (std::size_t m = 0; m < members_.size(); ++m) {
      std::size_t at = first_send(members_[m]);
      for (const comm::scheduled_send& each : schedules[m]->sends()) {
        planned_send& own = sends_[at++];
        const auto found = waiting.find(key(members_[m], each.peer, how));
        if (found == waiting.end() || found->second.second == found->second.first.size()) {
          return false;
        }
        own.receive = found->second.first[found->second.second++];
        if (!alike(own.bytes, receives(own.to)[static_cast<std::size_t>(own.receive)].bytes)) {
          return false;
        }
      }
    }
    for (const auto& each : waiting) {
      if (each.second.second != each.second.first.size()) {
        return false;
      }
    }
    return true;
  }

  /// Parts of an array are equal up to a few elements: those of one rank stand for those of another.
  [[nodiscard]] bool alike(float a, float b) const noexcept {
    const double few = 16 * element_bytes_ + 0.01 * static_cast<double>(a);
    return static_cast<double>(a) - static_cast<double>(b) <= few &&
           static_cast<double>(b) - static_cast<double>(a) <= few;
  }

  [[nodiscard]] bool does_the_same(int rank, const comm::message_schedule& other, bool roughly) const {
    const auto own_sends = sends(folding_.of(rank));
    const auto own_receives = receives(folding_.of(rank));
    if (own_sends.size() != other.sends().size() || own_receives.size() != other.receives().size()) {
      return false;
    }
    for (std::size_t i = 0; i < own_sends.size(); ++i) {
      const comm::scheduled_send& each = other.sends()[i];
      if (own_sends[i].to != folding_.of(each.peer) || (!roughly && own_sends[i].after != each.after) ||
          own_sends[i].way != port_table::route_of(of_, rank, each.peer)) {
        return false;
      }
    }
    for (std::size_t i = 0; i < own_receives.size(); ++i) {
      const comm::scheduled_receive& each = other.receives()[i];
      if ((!roughly && own_receives[i].after != each.after) ||
          own_receives[i].adds != (each.what != comm::message_arrival::replace)) {
        return false;
      }
    }
    return true;
  }

  /// Whether all messages are sent and processed, if no time passes: ranks that only resemble others might wait for
  /// each other.
  [[nodiscard]] bool ends() const {
    std::vector<char> arrived(receives_.size(), 0);
    std::vector<std::size_t> begun(members_.size(), 0);
    std::vector<std::size_t> processed(members_.size(), 0);
    std::size_t left = sends_.size() + receives_.size();
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t m = 0; m < members_.size(); ++m) {
        const auto own_sends = sends(members_[m]);
        const auto own_receives = receives(members_[m]);
        for (; begun[m] < own_sends.size() && static_cast<std::size_t>(own_sends[begun[m]].after) <= processed[m];
             ++begun[m], --left) {
          const planned_send& each = own_sends[begun[m]];
          arrived[first_receive(each.to) + static_cast<std::size_t>(each.receive)] = 1;
          moved = true;
        }
        for (; processed[m] < own_receives.size() && arrived[first_receive(members_[m]) + processed[m]] != 0 &&
               static_cast<std::size_t>(own_receives[processed[m]].after) <= begun[m];
             ++processed[m], --left) {
          moved = true;
        }
      }
    }
    return left == 0;
  }

  cluster of_;
  std::size_t group_size_;
  double element_bytes_;
  rank_folding folding_;
  int ranks_;
  int closed_ = 0;
  std::vector<int> members_;
  std::vector<planned_send> sends_;
  std::vector<planned_receive> receives_;
  std::vector<std::size_t> send_begin_;
  std::vector<std::size_t> receive_begin_;
};

}  // namespace gradus::sim::detail
