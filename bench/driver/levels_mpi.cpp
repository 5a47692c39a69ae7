// SPDX-License-Identifier: BSL-1.0
//
// Ranks of an MPI job that reduce in levels.
#include "levels_mpi.hpp"

#include <utility>

#include "gradus/comm/hierarchical.hpp"
#include "gradus/comm/mpi_shared.hpp"
#include "run_rank.hpp"

namespace driver {

template <class Recorder>
inline constexpr bool in_levels<gradus::comm::recorded<gradus::comm::mpi_shared, Recorder>> = true;
template <class Local, class Across, class Whole, class Recorder>
inline constexpr bool in_levels<gradus::comm::recorded<gradus::comm::hierarchical<Local, Across, Whole>, Recorder>> =
    true;

void run_rank_in_levels(gradus::comm::mpi_environment& environment, gradus::comm::mpi& world, const settings& chosen,
                        int local_ranks) {
  auto nodes = gradus::comm::mpi_shared::split_by_node(environment);
  if (nodes.nodes == 1) {
    run_rank(world, std::move(nodes.local), chosen, false, local_ranks);
  } else {
    run_rank(world, gradus::comm::hierarchical{std::move(nodes.local), std::move(nodes.across), world.duplicate()},
             chosen, false, local_ranks);
  }
}

}  // namespace driver
