// SPDX-License-Identifier: BSL-1.0
//
// Ranks of an MPI job.
#include <cstdio>
#include <exception>
#include <stdexcept>

#include "gradus/comm/mpi.hpp"
#include "plan.hpp"
#include "ranks.hpp"
#include "run_rank.hpp"

namespace driver {

namespace {

/// How many ranks of the job share this machine.
int ranks_of_this_machine(MPI_Comm world) {
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  int size = 1;
  MPI_Comm_size(node, &size);
  MPI_Comm_free(&node);
  return size;
}

}  // namespace

int run_under_mpi(int& argc, char**& argv, const settings& chosen) {
  gradus::comm::mpi_environment environment{argc, argv};  // outlives the catch below: it ends the job of a failed rank
  try {
    if (environment.size() > 1 && chosen.ranks > 1) {
      throw std::invalid_argument{"--ranks: under mpiexec, mpiexec starts the ranks: leave it at 1"};
    }
    if (chosen.dry_run) {
      if (environment.rank() == 0) {
        dry_run(chosen, environment.size() > 1 ? environment.size() : chosen.ranks);
      }
    } else if (environment.size() == 1) {
      measure_on_threads(chosen);
    } else {
      environment.run(
          [&](gradus::comm::mpi& world) { run_rank(world, chosen, false, ranks_of_this_machine(world.native())); });
    }
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "gradus_bench: %s\n", failure.what());
    return 1;
  }
  return 0;
}

}  // namespace driver
