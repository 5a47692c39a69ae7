// SPDX-License-Identifier: BSL-1.0
//
// The number of processors for each of several ranks of a machine.
#pragma once

#include <algorithm>  // std::max
#include <cstdlib>    // std::getenv, std::strtol
#include <thread>     // std::thread

#include "gradus/core/config.hpp"
#include "gradus/device/thread_pool.hpp"

namespace gradus {

namespace detail {

/// The number of ranks that are threads of this process, the calling one included; 1 outside of comm::run_ranks.
[[nodiscard]] inline int& ranks_in_process() noexcept {
  thread_local int ranks = 1;
  return ranks;
}

/// The number of processes that the launcher started on this machine, from their environment; 1 if that is not set.
[[nodiscard]] inline int processes_on_machine() noexcept {
  for (const char* const name : {"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "PALS_LOCAL_SIZE"}) {
    const char* const text = std::getenv(name);  // Hydra; Open MPI; HPE Cray
    const long count = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
    if (count > 0 && count <= 4096) {
      return static_cast<int>(count);
    }
  }
  return 1;
}

}  // namespace detail

/// The number of processors of a rank, at least 1, if the processors are divided equally among the ranks of its
/// machine, threads or processes. A launcher that binds processes to processors has divided them already.
[[nodiscard]] inline int processors_of_rank() noexcept {
  const int available = available_processors();
  const bool bound = available < static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, available / detail::ranks_in_process() / (bound ? 1 : detail::processes_on_machine()));
}

}  // namespace gradus
