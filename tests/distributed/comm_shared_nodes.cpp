// SPDX-License-Identifier: BSL-1.0
//
// Ranks on several nodes share no memory: the error names them, and split_by_node sorts them. MPICH plays two nodes.
#include <cstdlib>  // setenv

#include "../support/communicators_mpi.hpp"
#include "gradus/comm/mpi_shared.hpp"

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  namespace comm = gradus::comm;
  setenv("MPIR_CVAR_NUM_CLIQUES", "2", 1);  // other MPI libraries see one node
  comm::mpi_environment environment{argc, argv};
  suite::require_ranks(environment, argc, argv);
  const suite::watchdog guard{std::chrono::seconds{100}};
  try {
    environment.run([&](comm::mpi& world) {
      auto split = comm::mpi_shared::split_by_node(environment, world.native());
      suite::require(0 <= split.node && split.node < split.nodes && split.nodes <= world.size(), "nodes");
      // Every rank has a position: (node, rank on the node) -> rank of the whole, in order.
      const std::array mine{std::int32_t{split.node}, std::int32_t{split.local.rank()},
                            std::int32_t{split.local.size()}, std::int32_t{split.across.rank()}};
      std::vector<std::int32_t> all(mine.size() * static_cast<std::size_t>(world.size()));
      comm::all_gather(world, mine, all).wait();
      std::vector<int> ranks_of(static_cast<std::size_t>(split.nodes));
      std::string elsewhere;
      for (int rank = 0; rank < world.size(); ++rank) {
        const auto entry = std::span{all}.subspan(static_cast<std::size_t>(rank) * mine.size(), mine.size());
        suite::require(entry[1] == ranks_of[static_cast<std::size_t>(entry[0])]++, "local ranks are in order");
        if (entry[0] == split.node) {
          suite::require(entry[2] == split.local.size(), "the size of the node");
        } else {
          elsewhere += (elsewhere.empty() ? "" : ", ") + std::to_string(rank);
        }
      }
      suite::require(ranks_of[static_cast<std::size_t>(split.node)] == split.local.size(), "all ranks of the node");

      if (split.nodes == 1) {
        comm::mpi_shared together{environment};
        suite::require(together.size() == world.size(), "one node");
      } else {
        const std::string message =
            suite::message_of<gradus::configuration_error>([&] { comm::mpi_shared{environment}; });
        const std::string ranks = elsewhere.find(',') == std::string::npos ? "rank " : "ranks ";
        suite::require_contains(message, "got " + ranks + elsewhere + " on other nodes than rank " +
                                             std::to_string(world.rank()) + ". Hint: ");
        suite::require_contains(message, "[comm_shared_nodes.cpp:");
      }

      // An all-reduce in two levels: within the nodes, between their first ranks, within the nodes.
      auto values = suite::contributions<float>(world.rank(), 50021);
      comm::all_reduce(split.local, values).wait();
      if (split.local.rank() == 0) {
        suite::require(split.across.size() == split.nodes && split.across.rank() == split.node, "the first ranks");
        comm::all_reduce(split.across, values).wait();
      }
      comm::broadcast(split.local, values, 0).wait();
      suite::require_same(values, suite::expected_values<float>(world.size(), values.size()), "sum");
      if (world.rank() == 0) {
        std::printf("passed: %d node(s)\n", split.nodes);
      }
    });
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "rank %d: %s\n", environment.rank(), failure.what());
    return 1;
  }
}
