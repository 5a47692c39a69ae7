// SPDX-License-Identifier: BSL-1.0
//
// Weak scaling of the processes of an MPI job on one node, in shared memory and by messages: see scaling.hpp.
//
//   mpiexec -n RANKS bench_comm_scaling_mpi [--model NAME] [--batch-size N] [--steps N] [--rounds N] [--no-overlap]
//                                           [--messages]
#include <exception>
#include <sstream>
#include <string>

#include "gradus/comm/command_line.hpp"
#include "gradus/comm/mpi.hpp"
#include "gradus/comm/mpi_shared.hpp"
#include "gradus/core/output.hpp"
#include "gradus/core/text.hpp"
#include "scaling.hpp"

int main(int argc, char** argv) {
  gradus::comm::mpi_environment environment{argc, argv};
  scaling::settings what;
  bool messages = false;
  CLI::App app{"Weak scaling of MPI processes, alone and together in turn"};
  scaling::add_options(app, what);
  app.add_flag("--messages", messages, "the MPI library's collectives instead of shared memory");
  gradus::comm::command_line own;
  try {
    app.parse(argc, argv);
    bench::require_network(what.model);
  } catch (const CLI::ParseError& failure) {
    std::ostringstream text;
    own = {.status = app.exit(failure, text, text) == 0 ? 0 : 2, .text = text.str()};
  } catch (const std::exception& failure) {
    own = {.status = 2, .text = gradus::printable(failure.what()) + '\n'};
  }
  try {
    const gradus::comm::command_line all =
        environment.run([&](gradus::comm::mpi& world) { return gradus::comm::agree(world, own); });
    if (all.ends()) {
      std::fputs(all.rank == environment.rank() ? all.text.c_str() : "", all.status == 0 ? stdout : stderr);
      return all.status;
    }
    environment.run([&](gradus::comm::mpi& world) {
      if (messages) {
        scaling::measure(world, what);
      } else {
        gradus::comm::mpi_shared shared{environment};
        scaling::measure(shared, what);
      }
    });
    return gradus::close_output("bench_comm_scaling_mpi", 0);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "rank %d: %s\n", environment.rank(), gradus::printable(failure.what()).c_str());
    return 1;
  }
}
