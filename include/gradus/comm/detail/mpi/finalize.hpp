// SPDX-License-Identifier: BSL-1.0
//
// MPI_Finalize: with a time limit, and when the program calls it itself.
#pragma once

#include <mpi.h>

#include <chrono>              // std::chrono::milliseconds
#include <condition_variable>  // std::condition_variable
#include <cstdio>              // std::fflush, std::fprintf
#include <cstdlib>             // std::_Exit
#include <memory>              // std::shared_ptr, std::weak_ptr
#include <mutex>               // std::mutex, std::scoped_lock, std::unique_lock
#include <string>              // std::string
#include <thread>              // std::thread

#include "gradus/comm/detail/mpi/check.hpp"
#include "gradus/comm/detail/mpi/process.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"

namespace gradus::comm::detail {

/// From now on MPI_Finalize calls process.finalize() before it does anything else: it deletes the attributes of
/// MPI_COMM_SELF first, while MPI still works.
inline void call_at_finalize(const std::shared_ptr<mpi_process>& process) {
  const auto call = [](MPI_Comm, int key, void* value, void*) -> int {
    auto* const watched = static_cast<std::weak_ptr<mpi_process>*>(value);
    if (const std::shared_ptr<mpi_process> still_there = watched->lock(); still_there != nullptr) {
      still_there->finalize();
    }
    delete watched;
    return MPI_Comm_free_keyval(&key);
  };
  int key = MPI_KEYVAL_INVALID;
  check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, call, &key, nullptr), "mpi_environment",
            "MPI_Comm_create_keyval");
  check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, key, new std::weak_ptr<mpi_process>{process}), "mpi_environment",
            "MPI_Comm_set_attr");
}

/// Calls finalize(). If that takes longer than `limit`, ends the process with a message and the exit code: MPI_Finalize
/// waits for ever for a rank that was killed, and only the thread that initialized MPI may call it.
template <class Finalize>
void finalize_within(std::chrono::milliseconds limit, int rank, int exit_code, const Finalize& finalize) {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::thread watch{[&] {
    std::unique_lock lock{mutex};
    if (!changed.wait_for(lock, limit, [&] { return over; })) {
      std::fprintf(stderr, "gradus: rank %d is at MPI_Finalize: not complete within %s\n", rank,
                   seconds_text(limit).c_str());
      std::fflush(nullptr);
      std::_Exit(exit_code);
    }
  }};
  finalize();
  {
    const std::scoped_lock lock{mutex};
    over = true;
  }
  changed.notify_one();
  watch.join();
}

}  // namespace gradus::comm::detail
