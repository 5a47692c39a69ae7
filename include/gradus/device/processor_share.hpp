// SPDX-License-Identifier: BSL-1.0
//
// The number of processors for each of several ranks of a machine.
#pragma once

#include <algorithm>  // std::max, std::min
#include <cstdlib>    // std::getenv, std::strtol
#include <cstring>    // std::strchr
#include <thread>     // std::thread

#include "gradus/core/compiled.hpp"
#include "gradus/device/thread_pool.hpp"

namespace gradus {

namespace detail {

/// The number of ranks that are threads of this process, the calling one included; 1 outside of comm::run_ranks.
[[nodiscard]] inline int& ranks_in_process() noexcept {
  thread_local int ranks = 1;
  return ranks;
}

/// The number at the beginning of a variable's text; 0 if there is none, or it is not in 1 .. 65535.
[[nodiscard]] inline int count_in(const char* variable) noexcept {
  const char* const text = std::getenv(variable);
  const long count = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
  return count > 0 && count < 65536 ? static_cast<int>(count) : 0;
}

/// The number of tasks of one node in Slurm's list for all nodes, such as "4(x2),3"; 0 if it has none.
[[nodiscard]] int tasks_of_node(const char* list, long node) noexcept;

/// The number of processes that the launcher started on this machine, from their environment; 1 if that is not set.
[[nodiscard]] int processes_on_machine() noexcept;

}  // namespace detail

/// The number of processors of this machine that the job may use: a scheduler may have given it some of them. Where
/// available_processors() is less, a launcher has bound this process to some of these.
[[nodiscard]] inline int processors_of_job() noexcept {
  const int all = static_cast<int>(std::thread::hardware_concurrency());
  const int given = detail::count_in("SLURM_CPUS_ON_NODE");
  return given != 0 && given < all ? given : all;
}

/// The number of processors of a rank, at least 1, if the processors are divided equally among the ranks of its
/// machine, threads or processes. A launcher that binds processes to processors has divided them already.
[[nodiscard]] int processors_of_rank() noexcept;

}  // namespace gradus

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::detail {

GRADUS_INLINE int tasks_of_node(const char* list, long node) noexcept {
  while (list != nullptr) {
    char* end = nullptr;
    const long tasks = std::strtol(list, &end, 10);
    const long nodes = end[0] == '(' && end[1] == 'x' ? std::strtol(end + 2, &end, 10) : 1;
    if (node < nodes || nodes < 1) {
      return nodes > 0 && tasks > 0 && tasks < 65536 ? static_cast<int>(tasks) : 0;
    }
    node -= nodes;
    list = std::strchr(end, ',');
    list = list == nullptr ? nullptr : list + 1;
  }
  return 0;
}

GRADUS_INLINE int processes_on_machine() noexcept {
  int count = 0;  // of Hydra; Open MPI; HPE Cray; torchrun
  for (const char* const name :
       {"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "PALS_LOCAL_SIZE", "LOCAL_WORLD_SIZE"}) {
    count = count == 0 ? count_in(name) : count;
  }
  // A step of Slurm. The script of a job is not one of its tasks.
  const char* const node = std::getenv("SLURM_NODEID");
  if (count == 0 && node != nullptr && std::getenv("SLURM_STEP_ID") != nullptr) {
    count = tasks_of_node(std::getenv("SLURM_STEP_TASKS_PER_NODE"), std::strtol(node, nullptr, 10));
  }
  return count == 0 ? 1 : count;
}

}  // namespace gradus::detail

namespace gradus {

GRADUS_INLINE int processors_of_rank() noexcept {
  const int available = available_processors();
  const int all = processors_of_job();
  const bool bound = available < all;
  return std::max(1,
                  std::min(available, all) / detail::ranks_in_process() / (bound ? 1 : detail::processes_on_machine()));
}

}  // namespace gradus
#endif
