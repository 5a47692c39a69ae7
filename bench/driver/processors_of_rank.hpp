// SPDX-License-Identifier: BSL-1.0
//
// How many processors a rank has, which is how many of its threads compute unless --threads says otherwise.
#pragma once

#include <algorithm>

#include "gradus/device/processor_share.hpp"
#include "gradus/device/thread_pool.hpp"

namespace driver {

/// The processors of a rank, of `local_ranks` on this machine.
/// @param in_process  the ranks are threads of one process
inline int processors_of_rank(bool in_process, int local_ranks) {
  // A launcher that binds processes has divided the processors already.
  const int processors = gradus::processors_of_job();
  const int available = std::min(gradus::available_processors(), processors);
  const bool bound = !in_process && available < processors;
  return bound ? available : std::max(1, available / std::max(1, local_ranks));
}

}  // namespace driver
