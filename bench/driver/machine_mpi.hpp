// SPDX-License-Identifier: BSL-1.0
//
// The ranks of an MPI job that share a machine.
#pragma once

#include <mpi.h>

#include "gradus/core/error.hpp"

namespace driver {

/// This rank among those of its machine.
struct rank_on_machine {
  int rank = 0;   // in [0, ranks)
  int ranks = 1;  // of the machine
  int first = 0;  // of them, in the job
};

/// All ranks call it.
inline rank_on_machine find_rank_on_machine(MPI_Comm world) {
  MPI_Comm machine = MPI_COMM_NULL;
  if (MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine) != MPI_SUCCESS) {
    gradus::raise<gradus::communication_error>("gradus_bench", "the ranks of this machine",
                                               "MPI_Comm_split_type failed");
  }
  rank_on_machine result;
  MPI_Comm_rank(world, &result.first);
  MPI_Comm_rank(machine, &result.rank);
  MPI_Comm_size(machine, &result.ranks);
  MPI_Allreduce(MPI_IN_PLACE, &result.first, 1, MPI_INT, MPI_MIN, machine);
  MPI_Comm_free(&machine);
  return result;
}

}  // namespace driver
