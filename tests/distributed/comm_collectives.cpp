// SPDX-License-Identifier: BSL-1.0
//
// Collectives over MPI messages pass the conformance suite with every algorithm.
#include <string>  // std::string

#include "../support/communicators_mpi.hpp"
#include "gradus/comm/collectives.hpp"

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  using gradus::comm::mpi;
  using collectives = gradus::comm::collectives<mpi>;
  return suite::run_conformance(argc, argv, [](mpi& world) {
    for (const auto name : gradus::comm::all_reduce_algorithm_names) {
      const std::string node = world.rank() < 2 ? "first" : "second";
      collectives own{world.duplicate(),
                      {.all_reduce = gradus::comm::parse_all_reduce_spec(name),
                       .segment_bytes = 4096,
                       .node_of_rank = gradus::comm::nodes_of_ranks(world, node)}};
      suite::run_cases(own, suite::conformance_cases<collectives>());
    }
  });
}
