// SPDX-License-Identifier: BSL-1.0
//
// Functions of MPI that return only after all ranks have called them, with a time limit.
#pragma once

#include <chrono>           // std::chrono::milliseconds
#include <source_location>  // std::source_location
#include <string_view>      // std::string_view
#include <utility>          // std::move

#include "gradus/comm/detail/mpi/notices.hpp"
#include "gradus/comm/detail/mpi/poll_mpi.hpp"
#include "gradus/comm/detail/mpi/process.hpp"
#include "gradus/comm/detail/mpi/run_on_thread.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/error.hpp"

namespace gradus::comm::detail {

/// Calls functions of MPI that make communicators and shared windows, and collectives between them. MPI has no
/// nonblocking form of most of them: a rank that is killed would be waited for until the job ends. So they run on a
/// thread of their own. The calling thread polls for notices meanwhile, and throws when the time limit is over or
/// another rank has failed.
///
/// If MPI allows only one thread at a time, the functions run on the calling thread, without a time limit.
class mpi_blocking_calls {
 public:
  /// @param what            the operation in messages; a call_description that it refers to outlives this object
  /// @param limit           of each call
  /// @param ranks_of_world  messages count the ranks of the communicator as the world does
  /// @throws communication_error if a rank has failed
  mpi_blocking_calls(mpi_process& process, const activity& what, std::chrono::milliseconds limit, bool ranks_of_world,
                     std::source_location where = std::source_location::current())
      : process_{&process}, what_{what}, limit_{limit}, ranks_of_world_{ranks_of_world}, where_{where} {
    process_->glance_at_notices(what_);
    require_unfailed();
    if (process_->over()) {
      gradus::raise<communication_error>(what_.describe(), "a running MPI", "an MPI that has been finalized",
                                         "keep the mpi_environment until the end of main, and MPI_Finalize behind it",
                                         where_);
    }
  }

  /// Returns function(). After an exception it may still run: it owns what it uses.
  /// @throws communication_error if a rank fails or does not call it in time; and what function() throws
  template <class Function>
  auto operator()(Function function) const {
    if (process_->threads() != mpi_threads::any) {
      return process_->enter(function);
    }
    return run_on_thread(std::move(function), watch{*this});
  }

  /// A nonblocking collective, with the time limit at every level of threads. See poll_mpi.
  template <class Result, class Begin>
  Result poll(std::string_view function, const Begin& begin, Result initial = {}) const {
    return poll_mpi<Result>(
        what_.describe(), function, begin, [this](const auto& call) { return process_->enter(call); }, watch{*this},
        std::move(initial));
  }

 private:
  static constexpr std::chrono::milliseconds patience{500};

  /// Throws when the time limit of a call is over or another rank has failed.
  class watch {
   public:
    explicit watch(const mpi_blocking_calls& calls) : calls_{&calls} {}

    void operator()() const {
      mpi_process& process = *calls_->process_;
      process.glance_at_notices(calls_->what_);
      const clock::time_point now = clock::now();
      if (process.failed()) {
        // A rank that has gone on may have failed: then the call soon completes.
        failed_at_ = failed_at_ == clock::time_point{} ? now : failed_at_;
        if (now >= failed_at_ + patience) {
          calls_->require_unfailed();
        }
      } else if (now >= begin_ + calls_->limit_) {
        process.raise_time_out(
            calls_->what_, calls_->limit_, calls_->where_,
            "set_time_limit, or mpi_options::time_limit for a new communicator, allows longer waits");
      }
    }

   private:
    const mpi_blocking_calls* calls_;
    clock::time_point begin_ = clock::now();
    mutable clock::time_point failed_at_{};
  };

  void require_unfailed() const {
    if (process_->failed()) {
      process_->raise(what_, ranks_of_world_, where_);
    }
  }

  mpi_process* process_;
  activity what_;
  std::chrono::milliseconds limit_;
  bool ranks_of_world_;
  std::source_location where_;
};

}  // namespace gradus::comm::detail
