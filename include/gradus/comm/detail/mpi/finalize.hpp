// SPDX-License-Identifier: BSL-1.0
//
// MPI_Finalize with a time limit.
#pragma once

#include <mpi.h>

#include <chrono>              // std::chrono::milliseconds
#include <condition_variable>  // std::condition_variable
#include <cstdio>              // std::fflush, std::fprintf
#include <cstdlib>             // std::_Exit
#include <mutex>               // std::mutex, std::scoped_lock, std::unique_lock
#include <string>              // std::string
#include <thread>              // std::thread

#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"

namespace gradus::comm::detail {

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
