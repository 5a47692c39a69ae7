// SPDX-License-Identifier: BSL-1.0
//
// Parameter servers over MPI: synchronous workers and servers, apart and side by side, reach the weights of one
// process.
#include "gradus/parallel/parameter_server.hpp"

#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../support/communicators_mpi.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/sgd.hpp"

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

void require_one_meaning(comm::mpi& world, const parallel::parameter_server& options) {
  const parallel::roles who = options.roles_among(world.size());
  const int workers = static_cast<int>(who.workers.size());
  if (options.is_server_only(world)) {
    const parallel::server_summary done = parallel::serve<double>(world, rule, options);
    require(done.left_workers == who.workers.size() && done.lost_workers == 0, "workers are missing at the end");
    require(done.received_bytes == (static_cast<std::uint64_t>(workers) * steps + 1) * done.variable_bytes,
            "a server counts other bytes");
    return;
  }
  const int worker = who.worker_index(world.rank());
  std::vector<double> values = first_values(worker);
  std::vector<double> gradients(elements);
  parallel::parameter_server::state<double, comm::mpi> servers{options, world, {values, gradients, segments()}};
  servers.use_rule(rule);
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
  require(servers.summary().size() == who.servers.size(), "a summary of each server");
}

}  // namespace

int main(int argc, char** argv) {
  return communicator_tests::run_conformance(argc, argv, [](comm::mpi& world) {
    require_one_meaning(world, {.servers = 0, .colocate = true});
    require_one_meaning(world, {.servers = 1, .colocate = true, .window = 1, .pull_priorities = {2, 1, 0}});
    for (int servers = 1; servers < world.size(); ++servers) {
      require_one_meaning(world, {.servers = servers, .placed = {.policy = parallel::placement_policy::greedy}});
      require_one_meaning(world, {.servers = servers});
    }
    if (world.rank() == 0) {
      std::printf("passed: one meaning\n");
    }
  });
}
