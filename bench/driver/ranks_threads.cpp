// SPDX-License-Identifier: BSL-1.0
//
// Ranks in threads of one process.
#include "gradus/comm/threads.hpp"
#include "ranks.hpp"
#include "run_rank.hpp"

namespace driver {

void measure_on_threads(const settings& chosen) {
  gradus::comm::run_ranks(chosen.ranks,
                          [&](gradus::comm::threads& world) { run_rank(world, chosen, true, chosen.ranks); });
}

}  // namespace driver
