// SPDX-License-Identifier: BSL-1.0
//
// What a rank does from the beginning to its trace.
#include "run_rank.hpp"

#include <cstdio>

#include "gradus/trace/breakdown.hpp"
#include "gradus/trace/timeline.hpp"
#ifdef GRADUS_BENCH_WITH_NVTX
#include "gradus/trace/nvtx.hpp"
#endif
#include "input.hpp"
#include "measure.hpp"
#include "overlap.hpp"
#include "plan.hpp"
#include "processors_of_rank.hpp"
#include "write_trace.hpp"

namespace driver {

std::chrono::milliseconds time_limit_of(const settings& chosen) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>{chosen.time_limit});
}

rank_trace::rank_trace(int rank, const settings& chosen)
#ifdef GRADUS_BENCH_WITH_NVTX
    : recorder{{.enabled = false, .ranges = gradus::trace::nvtx_ranges()}},
#else
    : recorder{{.enabled = false}},
#endif
      file{rank == 0 ? open_output("--trace-file", chosen.trace_file, chosen) : program::output_file{}} {
}

void run_recorded_rank(rank_device& device, gradus::comm::any_communicator& world,
                       gradus::comm::any_communicator gradients, rank_trace& trace, const settings& chosen,
                       bool in_process) {
  require_same_options(chosen, world.link());
  ranks all{
      {.gradients = gradients, .hosts = world, .device = device, .recorder = trace.recorder, .in_process = in_process},
      chosen};
  const result found = measure(chosen, all, trace.recorder);
  if (!chosen.trace_file.empty()) {
    if (world.rank() == 0) {
      std::printf("%s", overlap_text(gradus::trace::breakdown_of(trace.recorder.read().spans), world.size()).c_str());
    }
    const gradus::trace::program_properties properties{
        .model = chosen.model, .batch_size_per_rank = found.batch_size, .threads = found.threads};
    gradus::trace::timeline all_ranks = gradus::trace::collect(trace.recorder, world);
    if (world.rank() == 0) {
      all_ranks.begin_with_steps();
      write_trace(trace.file, all_ranks, properties);
    }
  }
}

settings with_threads(settings chosen, bool in_process, int local_ranks) {
  chosen = completed(std::move(chosen));
  if (chosen.threads == 0) {
    chosen.threads = processors_of_rank(in_process, local_ranks);
  }
  return chosen;
}

}  // namespace driver
