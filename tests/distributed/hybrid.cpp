// SPDX-License-Identifier: BSL-1.0
//
// Pipelines over MPI reach the bits of one process, by messages of processes and in shared memory; replicas of them the
// same up to rounding.
#include <algorithm>
#include <cmath>
#include <gradus/comm/mpi_shared.hpp>
#include <gradus/comm/self.hpp>
#include <gradus/comm/threads.hpp>
#include <gradus/optim/sgd.hpp>
#include <gradus/optim/update.hpp>
#include <gradus/pipeline/strategy.hpp>
#include <stdexcept>
#include <string>

#include "../support/hybrid_training.hpp"
#include "communicators_mpi.hpp"

namespace {

namespace comm = gradus::comm;
namespace parallel = gradus::parallel;
using gradus_test::hybrid_outcome;
using gradus_test::hybrid_setup;
using gradus_test::train_with_skips;

constexpr gradus::optim::update<gradus::optim::sgd> rule{.rule = {.momentum = 0.9}, .max_norm = 0.5};

void require_values(const hybrid_outcome<float>& have, const hybrid_outcome<float>& want, double tolerance,
                    const std::string& name) {
  if (have.values.empty()) {
    throw std::runtime_error{name + ": a rank without parameters"};
  }
  for (const auto& [parameter, values] : have.values) {
    const auto& wanted = want.values.at(parameter);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!(std::abs(static_cast<double>(values[i]) - static_cast<double>(wanted[i])) <= tolerance)) {
        throw std::runtime_error{name + ": another value of " + parameter};
      }
    }
  }
  if (std::abs(have.evaluation_loss - want.evaluation_loss) > 10 * tolerance || have.evaluated != want.evaluated) {
    throw std::runtime_error{name + ": another evaluation"};
  }
}

template <class Communicator>
void require_pipelines(Communicator& world, const std::string& name) {
  for (const parallel::pipeline_rule& schedule : parallel::pipeline_rules) {
    const int ranks = world.size();
    comm::self alone;
    hybrid_setup how{.compile = {.max_batch_size = 12, .seed = 3, .micro_batch_size = 3}, .epochs = 1};
    const auto want = train_with_skips<gradus::nhwc>(alone, rule, parallel::all_reduce{}, how);
    require_values(train_with_skips<gradus::nhwc>(
                       world, rule, parallel::hybrid{.stages = ranks, .micro_batches = 4, .schedule = schedule}, how),
                   want, 0, name + " " + std::string{schedule.name});
    if (ranks % 2 == 0) {
      how.compile = {.max_batch_size = 24 / ranks, .seed = 3};
      const parallel::hybrid options{.stages = 2, .micro_batches = 2, .schedule = schedule};
      hybrid_setup data = how;
      data.compile.micro_batch_size = (data.compile.max_batch_size - 1) / 2 + 1;
      const auto replicas = comm::run_ranks(ranks / 2, [&](auto& threads) {
        return train_with_skips<gradus::nhwc>(threads, rule, parallel::all_reduce{}, data);
      });
      require_values(train_with_skips<gradus::nhwc>(world, rule, options, how), replicas.front(), 3e-5,
                     name + " replicas " + std::string{schedule.name});
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  comm::mpi_environment environment{argc, argv};
  return communicator_tests::run_conformance(environment, argc, argv, [&](comm::mpi& world) {
    require_pipelines(world, "mpi");
    comm::mpi_shared shared{environment};
    require_pipelines(shared, "mpi_shared");
  });
}
