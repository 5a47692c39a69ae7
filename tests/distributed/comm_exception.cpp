// SPDX-License-Identifier: BSL-1.0
//
// An exception on one rank, with communications under way, reaches the others with its reason.
#include <optional>  // std::optional

#include "../support/communicators_mpi.hpp"

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  namespace comm = gradus::comm;
  return suite::run_failure(argc, argv, [](comm::mpi_environment& environment) {
    const int culprit = environment.size() - 1;
    const std::string message = suite::message_of<std::runtime_error>([&] {
      environment.run([&](comm::mpi& world) {
        comm::mpi other = world.duplicate();
        std::vector<float> data(300007, 1.0F);
        std::vector<float> more(17);
        std::optional<comm::request> sum;
        std::optional<comm::request> receipt;
        if (world.rank() == culprit) {
          sum.emplace(comm::all_reduce(other, data));
          if (world.size() > 1) {
            receipt.emplace(comm::receive(world, 0, more));
          }
          throw std::runtime_error{"the disk is full"};
        }
        comm::barrier(world).wait();
      });
    });
    suite::require_contains(message, "the disk is full");
    if (environment.rank() != culprit) {
      suite::require_contains(message, "barrier: rank " + std::to_string(culprit) + " failed: the disk is full");
    }
  });
}
