// SPDX-License-Identifier: BSL-1.0
//
// Ranks in threads of one process.
#include "gradus/comm/threads.hpp"
#include "measure.hpp"
#include "ranks.hpp"
#include "update_on.hpp"

namespace driver {

void measure_on_threads(const settings& chosen) {
  gradus::comm::run_ranks(chosen.ranks, [&](gradus::comm::threads& world) {
    ranks_on<gradus::comm::threads> all{world, chosen, true};
    measure(chosen, all, chosen.ranks);
  });
}

}  // namespace driver
