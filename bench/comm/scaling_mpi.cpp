// SPDX-License-Identifier: BSL-1.0
//
// Weak scaling of the processes of an MPI job on one node, in shared memory and by messages: see scaling.hpp.
//
//   mpiexec -n RANKS bench_comm_scaling_mpi [--model NAME] [--batch-size N] [--steps N] [--rounds N] [--no-overlap]
//                                           [--messages]
#include <exception>

#include "gradus/comm/mpi.hpp"
#include "gradus/comm/mpi_shared.hpp"
#include "scaling.hpp"

int main(int argc, char** argv) {
  gradus::comm::mpi_environment environment{argc, argv};
  scaling::settings what;
  bool messages = false;
  CLI::App app{"Weak scaling of MPI processes, alone and together in turn"};
  scaling::add_options(app, what);
  app.add_flag("--messages", messages, "the MPI library's collectives instead of shared memory");
  CLI11_PARSE(app, argc, argv);
  try {
    bench::require_network(what.model);
    environment.run([&](gradus::comm::mpi& world) {
      if (messages) {
        scaling::measure(world, what);
      } else {
        gradus::comm::mpi_shared shared{environment};
        scaling::measure(shared, what);
      }
    });
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "rank %d: %s\n", environment.rank(), failure.what());
    return 1;
  }
}
