// SPDX-License-Identifier: BSL-1.0
//
// Ranks that reduce different parts of registered memory, or one of them none, or that register arrays of different
// sizes: the error on every rank names both calls.
#include "../support/communicators_mpi.hpp"
#include "gradus/comm/mpi_shared.hpp"

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  namespace comm = gradus::comm;
  return suite::run_failure(argc, argv, [](comm::mpi_environment& environment) {
    comm::mpi_shared world{environment};
    world.set_time_limit(std::chrono::seconds{20});
    if (world.size() == 1) {
      return;  // no other rank to disagree with
    }
    std::vector<float> data(100003, 1.0F);
    std::vector<float> other(50000, 1.0F);
    const auto registration = comm::register_memory(world, data);
    suite::require(registration.active(), "registered");
    const bool first = world.rank() == 0;
    const std::string message = suite::message_of<gradus::communication_error>([&] {
      if (world.size() == 2) {
        comm::all_reduce(world, std::span{data}.subspan(first ? 0 : 1000, 50000)).wait();
      } else if (world.size() == 4) {
        static_cast<void>(comm::register_memory(world, first ? std::span{other} : std::span{data}));
      } else {
        comm::all_reduce(world, first ? std::span{other} : std::span{data}.first(50000)).wait();
      }
    });
    if (world.size() == 4) {
      suite::require_contains(message, "rank 0 calls register_memory of 200000 uint8, rank ");
      suite::require_contains(message, "calls register_memory of 400012 uint8");
      return;
    }
    suite::require_contains(message,
                            "ranks disagree about a collective: rank 0 calls all_reduce(sum) of 50000 float32");
    if (world.size() == 2) {
      suite::require_contains(message, "at byte 0 of registered memory 1, rank 1 calls");
      suite::require_contains(message, "at byte 4000 of registered memory 1");
    } else {
      suite::require_contains(message, "float32, rank ");
      suite::require_contains(message, "at byte 0 of registered memory 1");
    }
  });
}
