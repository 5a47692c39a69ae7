// SPDX-License-Identifier: BSL-1.0
//
// Ranks in threads of one process.
#include "gradus/comm/threads.hpp"
#include "ranks.hpp"
#include "run_rank.hpp"
#ifdef GRADUS_BENCH_WITH_CUDA
#include "cuda.hpp"
#endif

namespace driver {

void measure_on_threads(const settings& chosen) {
  gradus::comm::run_ranks(chosen.ranks, [&](gradus::comm::threads& world) {
#ifdef GRADUS_BENCH_WITH_CUDA
    if (chosen.device == "cuda") {
      run_rank_on_cuda(world, chosen, true, world.rank());
      return;
    }
#endif
    run_rank(world, world.duplicate(), chosen, true, chosen.ranks);
  });
}

}  // namespace driver
