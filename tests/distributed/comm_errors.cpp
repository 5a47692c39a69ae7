// SPDX-License-Identifier: BSL-1.0
//
// An error of MPI in a call on no communicator of the library's own is an exception that names the call, and leaves the
// job as it was.
#include "../support/communicators_mpi.hpp"

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  namespace comm = gradus::comm;
  comm::mpi_environment environment{argc, argv};
  return suite::run_conformance(environment, argc, argv, [&](comm::mpi& world) {
    const std::string message = suite::message_of<gradus::communication_error>([&] {
      const comm::mpi none{environment, MPI_COMM_NULL};
    });
    suite::require_contains(message, "comm::mpi: MPI_Comm_idup: ");
    for (const MPI_Comm each : {MPI_COMM_WORLD, MPI_COMM_SELF}) {
      int rank = 0;
      suite::require(MPI_Send(&rank, 1, MPI_INT, environment.size(), 0, each) != MPI_SUCCESS, "no such rank");
    }
    std::vector<float> data(3, 1.0F);
    comm::all_reduce(world, data).wait();
    suite::require(data[0] == static_cast<float>(world.size()), "sums");
  });
}
