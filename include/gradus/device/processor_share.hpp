// SPDX-License-Identifier: BSL-1.0
//
// The processors that belong to one of several ranks of a machine.
#pragma once

#include <algorithm>  // std::max
#include <cstdlib>    // std::getenv, std::strtol
#include <thread>     // std::thread

#include "gradus/core/config.hpp"
#include "gradus/device/thread_pool.hpp"

namespace gradus {

namespace detail {

/// The ranks that are threads of this process, the calling one among them; 1 outside of comm::run_ranks.
[[nodiscard]] inline int& ranks_in_process() noexcept {
  thread_local int ranks = 1;
  return ranks;
}

/// The processes that the launcher has started on this machine, as it says in their environment; 1 if it says nothing.
[[nodiscard]] GRADUS_COLD inline int processes_on_machine() noexcept {
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

/// The processors of a rank when the ranks of its machine, threads or processes, have the same number of them: at least
/// 1. A launcher that binds processes to processors has shared them already.
[[nodiscard]] GRADUS_COLD inline int processors_of_rank() noexcept {
  const int available = available_processors();
  const bool bound = available < static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, available / detail::ranks_in_process() / (bound ? 1 : detail::processes_on_machine()));
}

}  // namespace gradus
