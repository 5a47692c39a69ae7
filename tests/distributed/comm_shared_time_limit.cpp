// SPDX-License-Identifier: BSL-1.0
//
// Ranks that share memory: one that waits too long names the rank that it waits for; the job ends and no rank hangs.
#include "../support/communicators_mpi.hpp"
#include "gradus/comm/mpi_shared.hpp"

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  namespace comm = gradus::comm;
  return suite::run_failure(argc, argv, [](comm::mpi_environment& environment) {
    comm::mpi_shared world{environment};
    if (environment.size() < 4) {
      suite::a_wait_has_a_time_limit(world);
      return;
    }
    // Only rank 2 stays away; every other rank names it, or the one that was the first to lose patience.
    world.set_time_limit(std::chrono::milliseconds{300});
    std::vector<float> data(300007, 1.0F);
    if (world.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1500});
    }
    const std::string message =
        suite::message_of<gradus::communication_error>([&] { comm::all_reduce(world, data).wait(); });
    suite::require_contains(message, "rank 2 did not come to all_reduce(sum) of 300007 float32");
  });
}
