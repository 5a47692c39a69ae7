// SPDX-License-Identifier: BSL-1.0
//
// A rank does not come to a collective that is made of messages: all others name it, also those that wait for a rank
// which itself waits for it.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "../support/communicators_mpi.hpp"
#include "gradus/comm/collectives.hpp"

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  using namespace std::chrono_literals;
  return suite::run_failure(argc, argv, [](gradus::comm::mpi_environment& environment) {
    gradus::comm::collectives world{gradus::comm::mpi{environment},
                                    {.all_reduce = {{.algorithm = gradus::comm::all_reduce_algorithm::ring}}}};
    world.set_time_limit(300ms);
    if (world.rank() == 0) {
      std::this_thread::sleep_for(world.size() == 1 ? 0s : 4s);  // answers no rank
      return;
    }
    std::vector<float> data(1000, 1.0F);
    const std::string message =
        suite::message_of<gradus::communication_error>([&] { gradus::comm::all_reduce(world, data).wait(); });
    suite::require_contains(message, "all_reduce(sum) of 1000 float32");
    suite::require_contains(message, "no answer from rank 0");
  });
}
