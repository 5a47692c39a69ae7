// SPDX-License-Identifier: BSL-1.0
//
// Ranks that share memory and begin different collectives: every rank names two calls that differ; no rank hangs.
#include "../support/communicators_mpi.hpp"
#include "gradus/comm/mpi_shared.hpp"
#include "gradus/core/bfloat16.hpp"

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  namespace comm = gradus::comm;
  return suite::run_failure(argc, argv, [](comm::mpi_environment& environment) {
    comm::mpi_shared world{environment, {.segment_bytes = 4096}};
    world.set_time_limit(std::chrono::seconds{20});
    const int rank = world.rank();
    const int size = world.size();
    std::vector<float> data(100003, 1.0F);
    std::vector<gradus::bfloat16> rounded(100003);
    comm::barrier(world).wait();
    if (size == 1) {
      return;  // no other rank to disagree with
    }
    const std::string message = suite::message_of<gradus::communication_error>([&] {
      if (size == 2) {  // counts: one step against many, and with another collective begun before and one after
        comm::request first = comm::all_reduce(world, data);
        comm::request second = comm::all_reduce(world, std::span{data}.first(rank == 0 ? 5 : 70001));
        comm::request third = comm::barrier(world);
        third.wait();
      } else if (size == 3) {  // roots and kinds
        if (rank == 2) {
          comm::barrier(world).wait();
        } else {
          comm::broadcast(world, data, rank).wait();
        }
      } else {  // reductions and element types
        if (rank == 3) {
          comm::all_reduce(world, rounded).wait();
        } else {
          comm::all_reduce(world, data, rank == 1 ? comm::reduction::maximum : comm::reduction::sum).wait();
        }
      }
    });
    suite::require_contains(message, "ranks disagree about a collective: rank ");
    const auto names = [&](const std::string& part) { return message.find(part) != std::string::npos ? 1 : 0; };
    int named = 0;
    if (size == 2) {
      named = names("rank 0 calls all_reduce(sum) of 5 float32, rank 1 calls all_reduce(sum) of 70001 float32") * 2;
    } else if (size == 3) {
      named = names("rank 0 calls broadcast from rank 0 of 100003 float32") +
              names("rank 1 calls broadcast from rank 1 of 100003 float32") + names("rank 2 calls barrier");
    } else {
      named = std::max(names("rank 0 calls all_reduce(sum) of 100003 float32"),
                       names("rank 2 calls all_reduce(sum) of 100003 float32")) +
              names("rank 1 calls all_reduce(maximum) of 100003 float32") +
              names("rank 3 calls all_reduce(sum) of 100003 bfloat16");
    }
    suite::require(named >= 2, "two calls that differ in: " + message);
  });
}
