// SPDX-License-Identifier: BSL-1.0
//
// What a rank does from the beginning to its trace.
#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>

#include "gradus/comm/link_of.hpp"
#include "gradus/trace/timeline.hpp"
#include "gradus/trace/transfers.hpp"
#ifdef GRADUS_BENCH_WITH_NVTX
#include "gradus/trace/nvtx.hpp"
#endif
#include "input.hpp"
#include "measure.hpp"
#include "overlap.hpp"
#include "plan.hpp"
#include "processors_of_rank.hpp"
#include "update_on.hpp"
#include "write_trace.hpp"

namespace driver {

/// How long ranks wait for each other.
inline std::chrono::milliseconds time_limit_of(const settings& chosen) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>{chosen.time_limit});
}

/// Called by all ranks. Their transfers pass a recorder that records if there is a --trace-file.
/// @param world       of the host: clocks are compared and traces are gathered over it
/// @param gradients   of the same ranks, for memory of the device
/// @param in_process  whether all ranks are in this process
template <class Device, class Hosts, class Communicator>
void run_rank_on(Device& device, Hosts& world, Communicator gradients, const settings& chosen, bool in_process) {
  world.set_time_limit(time_limit_of(chosen));
  gradients.set_time_limit(time_limit_of(chosen));
#ifdef GRADUS_BENCH_WITH_NVTX
  gradus::trace::recorder recorder{{.enabled = false, .ranges = gradus::trace::nvtx_ranges()}};
#else
  gradus::trace::recorder recorder{{.enabled = false}};
#endif
  program::output_file trace = world.rank() == 0 ? open_output("--trace-file", chosen.trace_file, chosen)
                                                 : program::output_file{};  // before the work
  auto traced = gradus::trace::traced(std::move(gradients), recorder, world);
  gradus::comm::link_of<Hosts> everybody{world};
  require_same_options(chosen, everybody);
  ranks_on<decltype(traced), Device, Hosts> all{traced, world, device, chosen, in_process};
  const result found = measure(chosen, all, recorder);
  if (!chosen.trace_file.empty()) {
    if (world.rank() == 0) {
      std::printf("%s", overlap_text(gradus::trace::breakdown_of(recorder.read().spans), world.size()).c_str());
    }
    const gradus::trace::program_properties properties{
        .model = chosen.model, .batch_size_per_rank = found.batch_size, .threads = found.threads};
    gradus::trace::timeline all_ranks = gradus::trace::collect(recorder, world);
    if (world.rank() == 0) {
      all_ranks.begin_with_steps();
      write_trace(trace, all_ranks, properties);
    }
  }
}

/// The same on this machine's processors.
/// @param local_ranks  on this machine
template <class Hosts, class Communicator>
void run_rank(Hosts& world, Communicator gradients, const settings& given, bool in_process, int local_ranks) {
  settings chosen = completed(given);
  if (chosen.threads == 0) {
    chosen.threads = processors_of_rank(in_process, local_ranks);
  }
  gradus::cpu device{{.intra_op_threads = chosen.threads, .flush_denormals = chosen.flush_denormals}};
  run_rank_on(device, world, std::move(gradients), chosen, in_process);
}

}  // namespace driver
