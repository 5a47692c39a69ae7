// SPDX-License-Identifier: BSL-1.0
//
// What a rank does from the beginning to its trace.
#pragma once

#include <cstdio>
#include <memory>

#include "gradus/trace/timeline.hpp"
#include "gradus/trace/transfers.hpp"
#ifdef GRADUS_BENCH_WITH_NVTX
#include "gradus/trace/nvtx.hpp"
#endif
#include "measure.hpp"
#include "overlap.hpp"
#include "update_on.hpp"
#include "write_trace.hpp"

namespace driver {

/// Called by all ranks. Their transfers pass a recorder that records if there is a --trace-file.
/// @param local_ranks  on this machine
template <class Communicator>
void run_rank(Communicator& world, const settings& chosen, bool in_process, int local_ranks) {
#ifdef GRADUS_BENCH_WITH_NVTX
  gradus::trace::recorder recorder{{.enabled = false, .ranges = gradus::trace::nvtx_ranges()}};
#else
  gradus::trace::recorder recorder{{.enabled = false}};
#endif
  auto traced = gradus::trace::traced(world.duplicate(), recorder);
  ranks_on<decltype(traced)> all{traced, chosen, in_process};
  const result found = measure(chosen, all, local_ranks, recorder);
  if (!chosen.trace_file.empty()) {
    if (traced.rank() == 0) {
      std::printf("%s", overlap_text(gradus::trace::breakdown_of(recorder.read().spans)).c_str());
    }
    const gradus::trace::program_facts facts{
        .model = chosen.model, .batch_size = found.batch_size, .threads = found.threads};
    gradus::trace::timeline all_ranks = gradus::trace::collect(recorder, traced);
    if (traced.rank() == 0) {
      all_ranks.begin_with_steps();
      write_trace(chosen.trace_file, all_ranks, facts);
    }
  }
}

}  // namespace driver
