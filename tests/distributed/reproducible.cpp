// SPDX-License-Identifier: BSL-1.0
//
// Reproducible training over MPI reaches the bits of one process: by all-reduce with the library's algorithms, by
// sharded updates in messages and in shared memory, and with parameter servers. Other numbers of ranks are refused.
#include <cstdio>
#include <gradus/comm/collectives.hpp>
#include <gradus/comm/mpi_shared.hpp>
#include <gradus/comm/self.hpp>
#include <gradus/optim/sgd.hpp>
#include <gradus/optim/update.hpp>
#include <gradus/parallel/sharded_update.hpp>
#include <gradus/parameter_server/parameter_server.hpp>
#include <stdexcept>
#include <string>

#include "../support/reproducible_runs.hpp"
#include "communicators_mpi.hpp"

namespace {

namespace comm = gradus::comm;
namespace parallel = gradus::parallel;
using gradus_test::train_bits;
using gradus_test::training_bits;
using network = gradus::nn::network<float, gradus::nhwc>;

constexpr gradus::optim::update<gradus::optim::sgd> rule{.rule = {.momentum = 0.9}, .max_norm = 0.5};

void require_bits(const training_bits& have, const training_bits& want, const std::string& name) {
  if (have.weights != want.weights) {
    throw std::runtime_error{name + ": other weights than those of one process"};
  }
  if (have.statistics != want.statistics) {
    throw std::runtime_error{name + ": other running statistics"};
  }
  if (have.reports != want.reports) {
    throw std::runtime_error{name + ": other reports"};
  }
}

void require_servers(comm::mpi& world, const gradus_test::bits_problem<network>& problem, const training_bits& want,
                     const parallel::parameter_server& servers) {
  const parallel::reproducible strategy{servers};
  if (strategy.is_server_only(world)) {
    parallel::serve<float>(world, rule, strategy);
    return;
  }
  if (train_bits(world, problem, rule, strategy, {.threads = 2}).weights != want.weights) {
    throw std::runtime_error{"parameter servers: other weights than those of one process"};
  }
}

}  // namespace

int main(int argc, char** argv) {
  comm::mpi_environment environment{argc, argv};
  return communicator_tests::run_conformance(environment, argc, argv, [&](comm::mpi& world) {
    comm::mpi_shared shared{environment};
    for (const auto& problem : {gradus_test::mnist_problem<network>(), gradus_test::resnet_problem<network>()}) {
      comm::self alone;
      const training_bits want = train_bits(alone, problem, rule, parallel::reproducible{parallel::all_reduce{}});
      if (world.size() == 3) {
        const std::string message = communicator_tests::message_of<gradus::configuration_error>(
            [&] { train_bits(world, problem, rule, parallel::reproducible{parallel::all_reduce{}}); });
        communicator_tests::require_contains(message, "1, 2, 4 or 8 ranks");
        require_servers(world, problem, want, {.servers = 1});
        continue;
      }
      for (const int threads : {1, 3}) {
        require_bits(
            train_bits(world, problem, rule, parallel::reproducible{parallel::all_reduce{}}, {.threads = threads}),
            want, "all_reduce");
      }
      require_bits(train_bits(world, problem, rule, parallel::reproducible{parallel::sharded_update{}}), want,
                   "sharded_update in messages");
      require_bits(train_bits(shared, problem, rule, parallel::reproducible{parallel::all_reduce{}}), want,
                   "all_reduce of mpi_shared");
      require_bits(train_bits(shared, problem, rule, parallel::reproducible{parallel::sharded_update{}}), want,
                   "sharded_update in shared memory");
      require_servers(world, problem, want, {.servers = 0, .colocate = true});
      for (const auto algorithm : comm::all_reduce_algorithm_names) {
        comm::collectives around{world.duplicate(),
                                 {.all_reduce = comm::parse_all_reduce_spec(algorithm),
                                  .node_of_rank = comm::nodes_of_ranks(world, world.rank() < 2 ? "first" : "second")}};
        require_bits(train_bits(around, problem, rule, parallel::reproducible{parallel::all_reduce{}}), want,
                     std::string{algorithm});
      }
    }
    if (world.rank() == 0) {
      std::printf("passed: the bits of one process\n");
    }
  });
}
