// SPDX-License-Identifier: BSL-1.0
//
// A rank that waits too long names the rank that it waits for; the job ends and no rank hangs.
#include "../support/communicators_mpi.hpp"

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  return suite::run_failure(argc, argv, [](gradus::comm::mpi_environment& environment) {
    gradus::comm::mpi world{environment};
    suite::a_wait_has_a_time_limit(world);
  });
}
