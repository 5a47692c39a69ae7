// SPDX-License-Identifier: BSL-1.0
//
// What a rank does from the beginning to its trace.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "../program/output_file.hpp"
#include "gradus/comm/any_communicator.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/trace/transfers.hpp"
#include "settings.hpp"
#include "update.hpp"

namespace driver {

/// How long ranks wait for each other.
[[nodiscard]] std::chrono::milliseconds time_limit_of(const settings& chosen);

/// The recorder of a rank, which records if there is a --trace-file, and on rank 0 that file.
struct rank_trace {
  rank_trace(int rank, const settings& chosen);

  gradus::trace::recorder recorder;
  program::output_file file;  // is opened before the work
};

/// Measures. Called by all ranks.
/// @param world       of the host: traces are gathered over it
/// @param gradients   of the same ranks, for memory of the device; recorded by `trace`
/// @param in_process  whether all ranks are in this process
void run_recorded_rank(rank_device& device, gradus::comm::any_communicator& world,
                       gradus::comm::any_communicator gradients, rank_trace& trace, const settings& chosen,
                       bool in_process);

/// The same with a communicator whose transfers are not recorded yet.
template <class Communicator>
void run_rank_on(rank_device& device, gradus::comm::any_communicator world, Communicator gradients,
                 const settings& chosen, bool in_process) {
  world.set_time_limit(time_limit_of(chosen));
  gradients.set_time_limit(time_limit_of(chosen));
  rank_trace trace{world.rank(), chosen};
  run_recorded_rank(device, world, gradus::trace::traced(std::move(gradients), trace.recorder, world), trace, chosen,
                    in_process);
}

/// The settings of a rank on this machine's processors.
/// @param local_ranks  on this machine
[[nodiscard]] settings with_threads(settings chosen, bool in_process, int local_ranks);

/// The same as run_rank_on on this machine's processors.
template <class Communicator>
void run_rank(gradus::comm::any_communicator world, Communicator gradients, const settings& given, bool in_process,
              int local_ranks) {
  const settings chosen = with_threads(given, in_process, local_ranks);
  const std::unique_ptr<rank_device> device = make_cpu(chosen);
  run_rank_on(*device, std::move(world), std::move(gradients), chosen, in_process);
}

}  // namespace driver
