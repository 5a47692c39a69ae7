// SPDX-License-Identifier: BSL-1.0
//
// Parameter servers over MPI: synchronous workers and servers, apart and side by side, reach the weights of one
// process; so do nodes whose ranks add in shared memory.
#include "gradus/parameter_server/parameter_server.hpp"

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../support/communicators_mpi.hpp"
#include "gradus/comm/hierarchical.hpp"
#include "gradus/comm/mpi_shared.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parameter_server/distributed_replicated.hpp"

namespace {

namespace comm = gradus::comm;
namespace parallel = gradus::parallel;
using gradus::optim::segment;

constexpr gradus::optim::sgd rule{.momentum = 0.9, .nesterov = true, .weight_decay = 0.01};
constexpr int steps = 8;

const std::vector<segment>& segments() {
  static const std::vector<segment> list{{.name = "last.weights", .offset = 0, .size = 20000},
                                         {.name = "last.bias", .offset = 20016, .size = 10, .decay = false},
                                         {.name = "first.weights", .offset = 20032, .size = 300}};
  return list;
}
constexpr std::size_t elements = 20332;

void require(bool holds, const std::string& what) {
  if (!holds) {
    throw std::runtime_error{what};
  }
}

/// A worker's part of the gradient of a sum of squares.
void compute(std::span<const double> values, std::span<double> gradients, int worker, int workers) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    gradients[i] = (values[i] - std::sin(static_cast<double>(i) + worker)) / workers;
  }
}

std::vector<double> first_values(int worker) {
  std::vector<double> values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    values[i] = std::cos(static_cast<double>(i)) + worker;  // those of worker 0 count
  }
  return values;
}

std::vector<double> one_process(int workers) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::optim::sgd::state<double, gradus::cpu> state{device, rule, static_cast<gradus::index_t>(elements)};
  std::vector<double> values = first_values(0);
  std::vector<double> sum(elements);
  std::vector<double> part(elements);
  for (int step = 0; step < steps; ++step) {
    std::fill(sum.begin(), sum.end(), 0.0);
    for (int worker = 0; worker < workers; ++worker) {
      compute(values, part, worker, workers);
      for (std::size_t i = 0; i < elements; ++i) {
        sum[i] += part[i];
      }
    }
    state.update(device, segments(), values.data(), sum.data(), 0.05);
  }
  return values;
}

/// @param pushing  workers that speak with servers
template <class Communicator, class Strategy>
void require_one_meaning(Communicator& world, const Strategy& options, std::size_t pushing) {
  const parallel::roles who = options.roles_among(world.size());
  const int workers = static_cast<int>(who.workers.size());
  if (options.is_server_only(world)) {
    const parallel::server_summary done = parallel::serve<double>(world, rule, options);
    require(done.left_workers == pushing && done.lost_workers == 0, "workers are missing at the end");
    require(done.received_bytes == (pushing * steps + 1) * done.variable_bytes, "a server counts other bytes");
    return;
  }
  const int worker = who.worker_index(world.rank());
  std::vector<double> values = first_values(worker);
  std::vector<double> gradients(elements);
  typename Strategy::template state<double> servers{options, world, {values, gradients, segments()}};
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::optim::parameter_update_of<gradus::optim::sgd, double> applied{device, rule, 0};
  servers.use(applied);
  servers.start();
  for (int step = 0; step < steps; ++step) {
    compute(values, gradients, worker, workers);
    for (std::size_t i = 0; i < segments().size(); ++i) {
      servers.gradients_ready(i, 1);
    }
    servers.end_of_step(0.05);
    servers.finish([](std::span<const segment>) {});
  }
  const std::vector<double> want = one_process(workers);
  for (const segment& each : segments()) {
    for (auto i = static_cast<std::size_t>(each.offset); i < static_cast<std::size_t>(each.offset + each.size); ++i) {
      require(std::abs(values[i] - want[i]) < 1e-12,
              options.roles_among(world.size()).describe() + ": element " + std::to_string(i) + " of '" + each.name +
                  "' is " + std::to_string(values[i]) + ", not " + std::to_string(want[i]));
    }
  }
  if (worker == 0) {
    require(servers.summary().size() == who.servers.size(), "a summary of each server");
  }
}

void require_one_meaning(comm::mpi& world, const parallel::parameter_server& options) {
  require_one_meaning(world, options, options.roles_among(world.size()).workers.size());
}

/// Ranks with the same number are a node, and share memory.
class nodes_of_ranks {
 public:
  nodes_of_ranks(comm::mpi_environment& environment, comm::mpi& world, int node) {
    MPI_Comm_split(world.native(), node, world.rank(), &local_);
    int local_rank = 0;
    MPI_Comm_rank(local_, &local_rank);
    MPI_Comm_split(world.native(), local_rank, world.rank(), &across_);
    levels = std::make_unique<communicator>(comm::mpi_shared{environment, local_}, comm::mpi{environment, across_},
                                            comm::mpi{environment, world.native()});
  }
  nodes_of_ranks(const nodes_of_ranks&) = delete;
  nodes_of_ranks& operator=(const nodes_of_ranks&) = delete;
  ~nodes_of_ranks() {
    MPI_Comm_free(&across_);
    MPI_Comm_free(&local_);
  }

  using communicator = comm::hierarchical<comm::mpi_shared, comm::mpi, comm::mpi>;
  std::unique_ptr<communicator> levels;

 private:
  MPI_Comm local_ = MPI_COMM_NULL;
  MPI_Comm across_ = MPI_COMM_NULL;
};

/// Nodes of two ranks, with a server beside the first worker, and with one on the last rank.
void require_one_meaning_of_nodes(comm::mpi_environment& environment, comm::mpi& world) {
  using parallel::distributed_replicated;
  const int last = world.size() - 1;
  nodes_of_ranks pairs{environment, world, world.rank() / 2};
  require_one_meaning(*pairs.levels, distributed_replicated{.master = {.servers = 1, .colocate = true}},
                      static_cast<std::size_t>(last / 2 + 1));
  if (last == 0) {
    return;
  }
  nodes_of_ranks apart{environment, world, world.rank() == last ? world.size() : world.rank() / 2};
  require_one_meaning(*apart.levels, distributed_replicated{.master = {.servers = 1}},
                      static_cast<std::size_t>((last + 1) / 2));
  const auto refused = [&](const distributed_replicated& options) {
    return communicator_tests::message_of<gradus::configuration_error>(
        [&] { require_one_meaning(*pairs.levels, options, 0); });
  };
  communicator_tests::require_contains(refused({.ranks_per_node = 2}), "which knows its nodes");
  if (last % 2 == 1) {
    communicator_tests::require_contains(
        refused({}), "server rank " + std::to_string(last) + " in the node of worker " + std::to_string(last - 1));
  }
}

}  // namespace

int main(int argc, char** argv) {
  comm::mpi_environment environment{argc, argv};
  return communicator_tests::run_conformance(environment, argc, argv, [&](comm::mpi& world) {
    require_one_meaning(world, {.servers = 0, .colocate = true});
    require_one_meaning(world, {.servers = 1, .colocate = true, .window = 1, .pull_priorities = {2, 1, 0}});
    for (int servers = 1; servers < world.size(); ++servers) {
      require_one_meaning(world, {.servers = servers, .placed = {.policy = parallel::placement_policy::greedy}});
      require_one_meaning(world, {.servers = servers});
    }
    require_one_meaning_of_nodes(environment, world);
    if (world.rank() == 0) {
      std::printf("passed: one meaning\n");
    }
  });
}
