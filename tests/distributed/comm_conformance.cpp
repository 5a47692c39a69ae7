// SPDX-License-Identifier: BSL-1.0
//
// MPI ranks pass the conformance suite, also when arrays go in parts.
#include "../support/communicators_mpi.hpp"

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  using gradus::comm::mpi;
  return suite::run_conformance(argc, argv, [](mpi& world) {
    suite::run_cases(world, suite::conformance_cases<mpi>());
    mpi in_parts = world.duplicate();
    gradus::comm::detail::send_in_parts_of(1000, in_parts);
    suite::run_cases(in_parts, suite::conformance_cases<mpi>());
  });
}
