// SPDX-License-Identifier: BSL-1.0
//
// Ranks of an MPI job that reduce in levels.
#pragma once

#include "gradus/comm/mpi.hpp"
#include "settings.hpp"

namespace driver {

/// Called by all ranks: what run_rank does, with gradients that go through shared memory inside each machine and by MPI
/// between them.
/// @param local_ranks  on this machine
void run_rank_in_levels(gradus::comm::mpi_environment& environment, gradus::comm::mpi& world, const settings& chosen,
                        int local_ranks);

}  // namespace driver
