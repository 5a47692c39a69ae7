// SPDX-License-Identifier: BSL-1.0
//
// Ranks that share memory: requests under way end when a rank fails; the job ends and no rank hangs.
#include "../support/communicators_mpi.hpp"
#include "gradus/comm/mpi_shared.hpp"

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  return suite::run_failure(argc, argv, [](gradus::comm::mpi_environment& environment) {
    gradus::comm::mpi_shared world{environment};
    suite::pending_requests_end_when_a_rank_fails(world);
  });
}
