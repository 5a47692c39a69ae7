// SPDX-License-Identifier: BSL-1.0
//
// Communicators in a program that begins and ends MPI itself: how they begin and end without the other ranks of the
// job.
#pragma once

#include <mpi.h>

#include <chrono>           // std::chrono::milliseconds
#include <cstddef>          // std::size_t
#include <cstdint>          // std::int64_t
#include <memory>           // std::make_unique, std::shared_ptr, std::unique_ptr, std::weak_ptr
#include <mutex>            // std::mutex, std::scoped_lock
#include <source_location>  // std::source_location
#include <string_view>      // std::string_view
#include <utility>          // std::move

#include "gradus/comm/detail/mpi/check.hpp"
#include "gradus/comm/detail/mpi/launched.hpp"
#include "gradus/comm/detail/mpi/notices.hpp"
#include "gradus/comm/detail/mpi/process.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"

namespace gradus::comm::detail {

/// The end of an mpi_process on one rank, which waits for no other rank: all ranks count the notices that they have
/// sent in a nonblocking collective, and each receives those that are still under way. Then its communicator is freed.
class mpi_guest_end {
 public:
  /// Leaves all channels, and begins to count.
  explicit mpi_guest_end(std::shared_ptr<mpi_process> process) : process_{std::move(process)} {
    process_->leave_all();
    process_->stop_answering();
    counts_ = std::make_unique<counting>();
    counts_->sent = process_->notices().sent();
    begun_ = process_->enter([this] {
      return MPI_Ireduce_scatter_block(counts_->sent.data(), &counts_->expected, 1, MPI_INT64_T, MPI_SUM,
                                       process_->notices().communicator(), &counts_->request);
    }) == MPI_SUCCESS;
  }

  /// Moves it forward. True when nothing is left to do.
  [[nodiscard]] bool poll() noexcept {
    if (process_->over()) {
      return true;
    }
    process_->look_for_notices(std::string_view{"the end of its communicators"});
    if (process_->failed() || !begun_) {
      static_cast<void>(counts_.release());  // MPI may still write to it
      process_->abandon();
      return true;
    }
    if (!counted_) {
      int done = 0;
      begun_ =
          process_->enter([&, this] { return MPI_Test(&counts_->request, &done, MPI_STATUS_IGNORE); }) == MPI_SUCCESS;
      counted_ = done != 0;
    }
    if (!counted_ || process_->notices().taken() < counts_->expected || !process_->notices().sweep()) {
      return false;
    }
    process_->end();
    return true;
  }

 private:
  struct counting {
    dynamic_array<std::int64_t> sent;
    std::int64_t expected = 0;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  std::shared_ptr<mpi_process> process_;
  std::unique_ptr<counting> counts_;
  bool begun_ = false;
  bool counted_ = false;
};

/// The guests of this process: mpi_process objects of MPI communicators of the program.
class mpi_guests {
 public:
  /// It is never destroyed: objects of the program that die later are quiet.
  [[nodiscard]] static mpi_guests& of_process() {
    static auto* const all = new mpi_guests;
    return *all;
  }

  /// A guest of the ranks of a communicator, all of which call it. With its last owner it begins to end.
  /// @throws configuration_error if MPI does not run, or `ranks` is no communicator of this rank, or the launcher has
  /// started several processes that do not know of each other
  /// @throws communication_error if not all ranks call it within the time limit
  [[nodiscard]] std::shared_ptr<mpi_process> add(MPI_Comm ranks, std::chrono::milliseconds limit,
                                                 const std::source_location& where) {
    require_time_limit("comm::mpi", limit);
    require_usable(ranks, where);
    hook_finalize();
    poll();
    auto fresh = std::make_shared<mpi_process>(ranks, true, limit);
    const std::scoped_lock lock{mutex_};
    std::size_t i = 0;
    while (i < living_.size() && !living_[i].expired()) {
      ++i;
    }
    if (i == living_.size()) {
      living_.push_back(fresh);
    } else {
      living_[i] = fresh;
    }
    return {fresh.get(), [fresh](mpi_process*) mutable { of_process().remove(std::move(fresh)); }};
  }

  /// Moves the ends of guests forward. True when all are over.
  bool poll() noexcept {
    const std::scoped_lock lock{mutex_};
    for (std::size_t i = ending_.size(); i-- > 0;) {
      if (ending_[i]->poll()) {
        ending_[i] = std::move(ending_.back());
        ending_.pop_back();
      }
    }
    return ending_.empty();
  }

 private:
  mpi_guests() = default;

  static void require_usable(MPI_Comm ranks, const std::source_location& where) {
    int initialized = 0;
    int finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized == 0 || finalized != 0) {
      gradus::raise<configuration_error>("comm::mpi", "a running MPI",
                                         initialized == 0 ? "one that has not begun" : "one that has been finalized",
                                         "comm::mpi{ranks} is for a program that calls MPI_Init itself; "
                                         "comm::mpi_environment begins MPI",
                                         where);
    }
    int between_groups = 0;
    if (ranks == MPI_COMM_NULL || MPI_Comm_test_inter(ranks, &between_groups) != MPI_SUCCESS || between_groups != 0) {
      gradus::raise<configuration_error>(
          "comm::mpi", "a communicator that has this rank",
          ranks == MPI_COMM_NULL ? "MPI_COMM_NULL" : "an intercommunicator",
          "only ranks of the communicator construct it: if (ranks != MPI_COMM_NULL) { comm::mpi world{ranks}; ... }",
          where);
    }
    int level = MPI_THREAD_SINGLE;
    int main = 0;
    MPI_Query_thread(&level);
    MPI_Is_thread_main(&main);
    if (level < MPI_THREAD_SERIALIZED && main == 0) {
      gradus::raise<configuration_error>("comm::mpi", "the thread that has begun MPI", "another thread",
                                         "MPI below MPI_THREAD_SERIALIZED is called by one thread only", where);
    }
    require_launched_world("comm::mpi", false, where);
  }

  /// MPI_Finalize deletes the attributes of MPI_COMM_SELF before it does anything else, while MPI still works.
  void hook_finalize() {
    const std::scoped_lock lock{mutex_};
    if (hooked_) {
      return;
    }
    const auto call = [](MPI_Comm, int key, void*, void*) -> int {
      of_process().finalize();
      return MPI_Comm_free_keyval(&key);
    };
    int key = MPI_KEYVAL_INVALID;
    check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, call, &key, nullptr), "comm::mpi",
              "MPI_Comm_create_keyval");
    check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr), "comm::mpi", "MPI_Comm_set_attr");
    hooked_ = true;
  }

  /// A guest has lost its last owner.
  void remove(std::shared_ptr<mpi_process> gone) noexcept {
    {
      const std::scoped_lock lock{mutex_};
      for (std::weak_ptr<mpi_process>& each : living_) {
        if (each.lock() == gone) {
          each.reset();
        }
      }
    }
    end(std::move(gone));
    poll();
  }

  void end(std::shared_ptr<mpi_process> gone) noexcept {
    if (gone->over()) {
      return;
    }
    gone->look_at_unfinished();
    if (gone->failed()) {
      gone->abandon();
      return;
    }
    try {
      auto begun = std::make_unique<mpi_guest_end>(std::move(gone));
      const std::scoped_lock lock{mutex_};
      ending_.push_back(std::move(begun));
    } catch (...) {
      // Without memory the communicator of the notices stays until MPI ends.
    }
  }

  /// MPI_Finalize: all guests end. As MPI_Finalize does, it waits for the other ranks.
  void finalize() noexcept {
    dynamic_array<std::weak_ptr<mpi_process>> living;
    {
      const std::scoped_lock lock{mutex_};
      living = std::move(living_);
      living_ = {};
    }
    for (const std::weak_ptr<mpi_process>& each : living) {
      if (std::shared_ptr<mpi_process> guest = each.lock(); guest != nullptr) {
        end(std::move(guest));
      }
    }
    for (backoff rest{20}; !poll();) {
      rest.pause();
    }
  }

  std::mutex mutex_;
  dynamic_array<std::weak_ptr<mpi_process>> living_;
  dynamic_array<std::unique_ptr<mpi_guest_end>> ending_;
  bool hooked_ = false;
};

}  // namespace gradus::comm::detail
