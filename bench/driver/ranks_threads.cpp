// SPDX-License-Identifier: BSL-1.0
//
// Ranks in threads of one process.
#include <cstdio>

#include "gradus/comm/threads.hpp"
#include "gradus/core/text.hpp"
#include "ranks.hpp"
#include "run_rank.hpp"
#ifdef GRADUS_BENCH_WITH_CUDA
#include "cuda_rank.hpp"
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

gradus::comm::command_line refused(const std::string& why) {
  return {.status = 2, .text = "gradus_bench: " + gradus::printable(why) + "\nTry --help.\n"};
}

void say(const gradus::comm::command_line& end) {
  std::fputs(end.text.c_str(), end.status == 0 ? stdout : stderr);
}

}  // namespace driver
