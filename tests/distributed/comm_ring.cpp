// SPDX-License-Identifier: BSL-1.0
//
// The ring over MPI messages passes the conformance suite.
#include "../support/communicators_mpi.hpp"
#include "gradus/comm/ring.hpp"  // ring

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  using gradus::comm::mpi;
  using ring = gradus::comm::ring<mpi>;
  return suite::run_conformance(argc, argv, [](mpi& world) {
    ring around{world.duplicate(), {.segment_bytes = 4096}};
    suite::run_cases(around, suite::conformance_cases<ring>());
  });
}
