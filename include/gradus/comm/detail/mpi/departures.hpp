// SPDX-License-Identifier: BSL-1.0
//
// The MPI channels of a process, and the notices by which its ranks leave them.
#pragma once

#include <mpi.h>

#include <atomic>   // std::atomic
#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint64_t
#include <cstring>  // std::memcpy
#include <memory>   // std::make_shared, std::shared_ptr, std::weak_ptr
#include <mutex>    // std::mutex, std::scoped_lock
#include <utility>  // std::exchange

#include "gradus/comm/detail/mpi/check.hpp"
#include "gradus/comm/detail/mpi/membership.hpp"
#include "gradus/comm/detail/mpi/notices.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"

namespace gradus::comm::detail {

/// A rank that leaves a channel sends to every other rank of it the number of collectives in which it took part, and of
/// the messages exchanged with that rank. A rank that waits for more than that fails and names the rank that left.
class mpi_departures {
 public:
  explicit mpi_departures(mpi_notices& notices) noexcept : notices_{&notices} {}

  mpi_departures(const mpi_departures&) = delete;
  mpi_departures& operator=(const mpi_departures&) = delete;

  /// Returns a number for a channel of `ranks` that is about to be created. Called by all its ranks.
  /// @param call  runs a function of MPI that blocks; see mpi_blocking_calls
  template <class Call>
  [[nodiscard]] std::uint64_t number_channel(MPI_Comm ranks, const Call& call) {
    if (ranks == MPI_COMM_NULL) {
      return 0;
    }
    int rank = 0;
    MPI_Comm_rank(ranks, &rank);
    std::uint64_t number = 0;
    if (rank == 0) {
      number = static_cast<std::uint64_t>(notices_->rank() + 1) << 40U | ++channels_;
    }
    return call.template poll<std::uint64_t>(
        "MPI_Ibcast",
        [ranks](std::uint64_t& shared, MPI_Request* request) {
          return MPI_Ibcast(&shared, 1, MPI_UINT64_T, 0, ranks, request);
        },
        number);
  }

  /// Adds this rank to a channel. Called before any rank can have left the channel. Notices of departures from channels
  /// without this rank are old and are dropped.
  [[nodiscard]] std::shared_ptr<mpi_membership> join(std::uint64_t channel, int rank, int size) {
    auto joined = std::make_shared<mpi_membership>(channel, rank, size);
    const std::scoped_lock lock{mutex_};
    std::size_t i = 0;
    while (i < memberships_.size() && !memberships_[i].expired()) {
      ++i;
    }
    if (i == memberships_.size()) {
      memberships_.push_back(joined);
    } else {
      memberships_[i] = joined;
    }
    return joined;
  }

  /// Ends this rank's operations on the channel. Notifies the channel's other ranks, once, unless it is `silent`.
  GRADUS_COLD void leave(mpi_membership& mine, bool unwinding, bool silent) noexcept {
    const MPI_Comm communicator = std::exchange(mine.communicator, MPI_COMM_NULL);
    if (communicator == MPI_COMM_NULL || mine.size() == 1 || silent) {
      return;
    }
    try {
      const dynamic_array<int> world_ranks = ranks_in_world(communicator, mine.size());
      for (int peer = 0; peer < mine.size(); ++peer) {
        const int other = world_ranks[static_cast<std::size_t>(peer)];
        if (peer != mine.rank() && other != MPI_UNDEFINED) {
          const departure_notice last = mine.departure(peer, unwinding);
          notices_->post(other, mpi_notice_kind::left, {reinterpret_cast<const char*>(&last), sizeof(last)});
        }
      }
    } catch (...) {
      // Without memory the others wait until their time limit.
    }
  }

  /// The channels of this process; some of them may be destroyed.
  [[nodiscard]] dynamic_array<std::weak_ptr<mpi_membership>> memberships() {
    const std::scoped_lock lock{mutex_};
    return memberships_;
  }

  /// Stores a notice of the kind `left`.
  void hear(const mpi_notice& incoming) {
    departure_notice last{};
    std::memcpy(&last, incoming.text, sizeof(last));
    const std::scoped_lock lock{mutex_};
    for (const std::weak_ptr<mpi_membership>& each : memberships_) {
      if (const auto mine = each.lock(); mine != nullptr && mine->channel() == last.channel) {
        mine->hear(last, incoming.sender);
      }
    }
  }

  /// The ranks of a communicator as ranks of the world.
  [[nodiscard]] dynamic_array<int> ranks_in_world(MPI_Comm communicator, int size) {
    dynamic_array<int> own(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      own[static_cast<std::size_t>(rank)] = rank;
    }
    dynamic_array<int> of_world(own.size(), MPI_UNDEFINED);
    notices_->enter([&, this] {
      MPI_Group from = MPI_GROUP_NULL;
      MPI_Group to = MPI_GROUP_NULL;
      MPI_Comm_group(communicator, &from);
      MPI_Comm_group(notices_->communicator(), &to);
      MPI_Group_translate_ranks(from, size, own.data(), to, of_world.data());
      MPI_Group_free(&to);
      return MPI_Group_free(&from);
    });
    return of_world;
  }

 private:
  static_assert(sizeof(departure_notice) <= sizeof(mpi_notice::text));

  mpi_notices* notices_;
  std::mutex mutex_;  // protects the memberships
  dynamic_array<std::weak_ptr<mpi_membership>> memberships_;
  std::atomic<std::uint64_t> channels_{0};  // number of channels in which this rank is the first
};

}  // namespace gradus::comm::detail
