// SPDX-License-Identifier: BSL-1.0
//
// Functions of MPI that return only after all ranks have called them, with a time limit.
#pragma once

#include <chrono>           // std::chrono::milliseconds
#include <source_location>  // std::source_location
#include <utility>          // std::move

#include "gradus/comm/detail/mpi/process.hpp"
#include "gradus/comm/detail/mpi/run_on_thread.hpp"
#include "gradus/comm/wait.hpp"

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
  mpi_blocking_calls(mpi_process& process, const activity& what, std::chrono::milliseconds limit, bool ranks_of_world,
                     std::source_location where = std::source_location::current()) noexcept
      : process_{&process}, what_{what}, limit_{limit}, ranks_of_world_{ranks_of_world}, where_{where} {}

  /// Returns function(). After an exception it may still run: it owns what it uses.
  /// @throws communication_error if a rank fails or does not call it in time; and what function() throws
  template <class Function>
  auto operator()(Function function) const {
    const clock::time_point deadline = clock::now() + limit_;
    const auto check = [&, this] {
      process_->glance_at_notices(what_);
      if (process_->failed()) {
        process_->raise(what_, ranks_of_world_, where_);
      }
      if (clock::now() >= deadline) {
        process_->raise_time_out(
            what_, limit_, where_,
            "set_time_limit, or mpi_options::time_limit for a new communicator, allows longer waits");
      }
    };
    check();
    if (process_->one_thread_at_a_time()) {
      return process_->enter(function);
    }
    return run_on_thread(std::move(function), check);
  }

 private:
  mpi_process* process_;
  activity what_;
  std::chrono::milliseconds limit_;
  bool ranks_of_world_;
  std::source_location where_;
};

}  // namespace gradus::comm::detail
