// SPDX-License-Identifier: BSL-1.0
//
// MPI ranks on nodes of two, which share memory: the all-reduce in two levels passes the conformance suite.
#include "../support/communicators_mpi.hpp"
#include "gradus/comm/hierarchical.hpp"  // hierarchical
#include "gradus/comm/mpi_shared.hpp"    // mpi_shared

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  namespace comm = gradus::comm;
  comm::mpi_environment environment{argc, argv};
  suite::require_ranks(environment, argc, argv);
  const suite::watchdog guard{std::chrono::seconds{100}};
  try {
    environment.run([&](comm::mpi& world) {
      MPI_Comm node = MPI_COMM_NULL;
      MPI_Comm row = MPI_COMM_NULL;
      MPI_Comm_split(world.native(), world.rank() / 2, world.rank(), &node);
      MPI_Comm_split(world.native(), world.rank() % 2, world.rank(), &row);
      comm::hierarchical nodes{comm::mpi_shared{environment, node},
                               comm::mpi{environment, row},
                               comm::mpi{environment, world.native()},
                               {.segment_bytes = 4096, .leader_bytes = 256}};
      using communicator = decltype(nodes);
      static_assert(comm::communicator<communicator>);
      suite::run_cases(nodes, suite::conformance_cases<communicator>());
      MPI_Comm_free(&row);
      MPI_Comm_free(&node);
    });
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "rank %d: %s\n", environment.rank(), failure.what());
    return 1;
  }
}
