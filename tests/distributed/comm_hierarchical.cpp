// SPDX-License-Identifier: BSL-1.0
//
// MPI ranks on nodes of two, which share memory: the all-reduce in two levels passes the conformance suite.
#include <utility>  // std::move

#include "../support/communicators_mpi.hpp"
#include "gradus/comm/hierarchical.hpp"
#include "gradus/comm/mpi_shared.hpp"

namespace {

namespace comm = gradus::comm;

/// Sums of an array that is registered, in place if all ranks are on one node.
template <class Communicator>
void registered_arrays_are_reduced(Communicator& world, bool in_place) {
  namespace suite = communicator_tests;
  auto data = suite::contributions<float>(world.rank(), 60013);
  const auto registration = comm::register_memory(world, data);
  suite::require(registration.active() == in_place, "whether an array is registered");
  comm::all_reduce(world, data).wait();
  suite::require_same(data, suite::expected_values<float>(world.size(), data.size()), "registered sums");
}

}  // namespace

int main(int argc, char** argv) {
  namespace suite = communicator_tests;
  comm::mpi_environment environment{argc, argv};
  suite::require_ranks(environment, argc, argv);
  const suite::watchdog guard{std::chrono::seconds{100}};
  try {
    environment.run([&](comm::mpi& world) {
      MPI_Comm node = MPI_COMM_NULL;
      MPI_Comm row = MPI_COMM_NULL;
      MPI_Comm_split(world.native(), world.rank() / 2, world.rank(), &node);
      MPI_Comm_split(world.native(), world.rank() % 2, world.rank(), &row);
      comm::hierarchical nodes{comm::mpi_shared{environment, node},
                               comm::mpi{environment, row},
                               comm::mpi{environment, world.native()},
                               {.segment_bytes = 4096, .leader_bytes = 256}};
      using communicator = decltype(nodes);
      static_assert(comm::communicator<communicator>);
      suite::run_cases(nodes, suite::conformance_cases<communicator>());
      registered_arrays_are_reduced(nodes, world.size() == 2);
      auto all = comm::mpi_shared::split_by_node(environment);
      comm::hierarchical node_alone{std::move(all.local), std::move(all.across), world.duplicate()};
      registered_arrays_are_reduced(node_alone, world.size() > 1);
      MPI_Comm_free(&row);
      MPI_Comm_free(&node);
    });
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "rank %d: %s\n", environment.rank(), failure.what());
    return 1;
  }
}
