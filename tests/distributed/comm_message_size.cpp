// SPDX-License-Identifier: BSL-1.0
//
// A message of another size is an error on all ranks; the job ends and no rank hangs.
#include "../support/communicators_mpi.hpp"

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  return suite::run_failure(argc, argv, [](gradus::comm::mpi_environment& environment) {
    gradus::comm::mpi world{environment};
    suite::a_message_of_another_size_is_an_error(world);
  });
}
