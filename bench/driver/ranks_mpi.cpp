// SPDX-License-Identifier: BSL-1.0
//
// Ranks of an MPI job.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <utility>

#include "../program/failure.hpp"
#include "gradus/comm/agreement.hpp"
#include "gradus/comm/hierarchical.hpp"
#include "gradus/comm/mpi.hpp"
#include "gradus/comm/mpi_shared.hpp"
#include "machine_mpi.hpp"
#include "network_mpi.hpp"
#include "plan.hpp"
#include "ranks.hpp"
#include "run_rank.hpp"
#ifdef GRADUS_BENCH_WITH_CUDA
#include "cuda_rank.hpp"
#endif

namespace driver {

namespace {

/// Called by all ranks: what run_rank does, with gradients that go through shared memory inside each machine and by MPI
/// between them.
/// @param local_ranks  on this machine
void run_rank_in_levels(gradus::comm::mpi_environment& environment, gradus::comm::mpi& world, const settings& chosen,
                        int local_ranks) {
  auto nodes = gradus::comm::mpi_shared::split_by_node(environment);
  if (nodes.nodes == 1) {
    run_rank(world, std::move(nodes.local), chosen, false, local_ranks);
  } else {
    run_rank(world, gradus::comm::hierarchical{std::move(nodes.local), std::move(nodes.across), world.duplicate()},
             chosen, false, local_ranks);
  }
}

}  // namespace

int run_under_mpi(int& argc, char**& argv, const settings& chosen, gradus::comm::command_line own) {
  gradus::comm::mpi_options options;
  if (!own.ends()) {  // the start of MPI takes a second or two on a busy machine
    options.time_limit = std::max<std::chrono::milliseconds>(time_limit_of(chosen), std::chrono::seconds{30});
  }
  gradus::comm::mpi_environment environment{argc, argv, options};  // outlives the catch below: ends a failed job
  try {
    if (!own.ends() && environment.size() > 1 && chosen.ranks > 1) {
      own = refused("--ranks: under mpiexec, mpiexec starts the ranks: leave it at 1");
    }
    const gradus::comm::command_line all =
        environment.run([&](gradus::comm::mpi& world) { return gradus::comm::agree(world, own); });
    if (all.ends()) {
      if (all.rank == environment.rank()) {
        say(all);
      }
      return all.status;
    }
    environment.run([&](gradus::comm::mpi& world) {  // a rank that only plans does not measure
      gradus::comm::require_agreement(world, "gradus_bench", {{"dry run", chosen.dry_run ? "1" : "0"}});
    });
    if (chosen.what == command::network) {
      environment.run([&](gradus::comm::mpi& world) { measure_network(world, chosen); });
    } else if (chosen.dry_run) {
      if (environment.rank() == 0) {
        dry_run(chosen, environment.size() > 1 ? environment.size() : chosen.ranks);
      }
    } else if (environment.size() == 1) {
      measure_on_threads(chosen);
    } else {
      environment.run([&](gradus::comm::mpi& world) {
        const rank_on_machine local = find_rank_on_machine(world.native());
#ifdef GRADUS_BENCH_WITH_CUDA
        if (chosen.device == "cuda") {
          run_rank_on_cuda(world, chosen, false, local.rank);
          return;
        }
#endif
        // Before ranks go separate ways:
        gradus::comm::require_agreement(world, "gradus_bench", {{"all-reduce spec", chosen.all_reduce_spec}});
        if (chosen.all_reduce_spec == levels_spec) {
          run_rank_in_levels(environment, world, chosen, local.ranks);
        } else {
          run_rank(world, world.duplicate(), chosen, false, local.ranks);
        }
      });
    }
  } catch (const std::exception& failure) {
    if (environment.size() > 1) {
      std::fprintf(stderr, "gradus_bench: rank %d: %s\n", environment.rank(), program::describe(failure).c_str());
    } else {
      std::fprintf(stderr, "gradus_bench: %s\n", program::describe(failure).c_str());
    }
    return 1;
  }
  return 0;
}

}  // namespace driver
