// SPDX-License-Identifier: BSL-1.0
//
// What placement is worth: steps of synchronous parameter servers with the gradients of a network that are sent without
// being computed, for each placement; interleaved. Beside the measured ratios it prints those of the busiest servers.
// For bench/cluster/run_on_cluster, or any cluster.
//
//   mpiexec -n 4 bench_cluster_parameter_server_mpi [--model mnist|resnet50|vgg11] [--servers N] [--colocate 0|1]
//       [--steps N] [--rounds N] [--link-mbyte MB_PER_SECOND] [--window N]
//       [--parts-per-server N]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/comm/mpi.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/models/mnist.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/models/vgg.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/parameter_server.hpp"

namespace {

namespace comm = gradus::comm;
namespace parallel = gradus::parallel;
using gradus::optim::segment;
using network = gradus::nn::network<float, gradus::nhwc>;

constexpr gradus::optim::sgd rule{.momentum = 0.9, .weight_decay = 1e-4};

struct settings {
  std::string model = "mnist";
  int servers = 0;
  bool colocate = true;
  int steps = 5;
  int rounds = 5;
  double megabytes_per_second = 117;  // of the link, for the bound
  int window = 4;
  int parts_per_server = 8;
};

settings read(int argc, char** argv) {
  settings chosen;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc) {
      throw std::invalid_argument{std::string{name} + ": expected a value"};
    }
    const int number = std::atoi(argv[i + 1]);
    if (name == "--model") {
      chosen.model = argv[i + 1];
    } else if (name == "--servers") {
      chosen.servers = number;
    } else if (name == "--colocate") {
      chosen.colocate = number != 0;
    } else if (name == "--window") {
      chosen.window = number;
    } else if (name == "--parts-per-server") {
      chosen.parts_per_server = number;
    } else if (name == "--steps") {
      chosen.steps = std::max(number, 1);
    } else if (name == "--rounds") {
      chosen.rounds = std::max(number, 1);
    } else if (name == "--link-mbyte") {
      chosen.megabytes_per_second = std::max(number, 1);
    } else {
      throw std::invalid_argument{"'" + std::string{name} + "' is not an option"};
    }
  }
  return chosen;
}

/// The parameters of a network, in the order in which backward completes their gradients.
std::vector<segment> parameters_of(const std::string& model) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const bool small = model == "mnist";
  const gradus::index_t pixels = small ? 28 : 224;
  network net{device, {.channels = small ? 1 : 3, .height = pixels, .width = pixels}};
  if (small) {
    gradus::models::mnist(net);
  } else if (model == "resnet50") {
    gradus::models::resnet(net, 50, {.classes = 1000});
  } else if (model == "vgg11") {
    gradus::models::vgg(net, 11);
  } else {
    throw std::invalid_argument{"--model: expected mnist, resnet50 or vgg11, got '" + model + "'"};
  }
  net.freeze({.batch_size = 1, .seed = 1});
  std::vector<segment> segments;
  for (const auto& each : net.parameters()) {
    segments.push_back({.name = std::string{each.name()}, .offset = each.offset(), .size = each.size()});
  }
  return segments;
}

/// Seconds of a step, on workers.
double measure(comm::mpi& world, const parallel::parameter_server& options, const std::vector<segment>& segments,
               int steps) {
  if (options.is_server_only(world)) {
    parallel::serve<float>(world, rule, options);
    return 0;
  }
  const auto elements = static_cast<std::size_t>(segments.back().offset + segments.back().size);
  std::vector<float> values(elements, 1.0F);
  std::vector<float> gradients(elements, 0.0F);
  parallel::parameter_server::state<float, comm::mpi> servers{options, world, {values, gradients, segments}};
  servers.use_rule(rule);
  servers.start();
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) {
    servers.gradients_ready(0, segments.size());
    servers.end_of_step(0.01);
    servers.finish([](std::span<const segment>) {});
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / steps;
}

double median(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

void run(comm::mpi& world, const settings& chosen) {
  using parallel::placement_policy;
  const placement_policy policies[] = {placement_policy::partitioned, placement_policy::round_robin,
                                       placement_policy::greedy};
  const std::vector<segment> segments = parameters_of(chosen.model);
  std::vector<double> seconds[3];
  for (int round = 0; round < chosen.rounds; ++round) {
    for (std::size_t i = 0; i < 3; ++i) {
      seconds[i].push_back(measure(world,
                                   {.servers = chosen.servers,
                                    .colocate = chosen.colocate,
                                    .window = chosen.window,
                                    .placed = {.policy = policies[i], .parts_per_server = chosen.parts_per_server}},
                                   segments, chosen.steps));
    }
  }
  if (world.rank() != 0) {
    return;
  }
  const parallel::roles who = parallel::roles_of(world.size(), chosen.servers, chosen.colocate);
  double busiest = 0;
  std::printf("%s, %s\n", chosen.model.c_str(), who.describe().c_str());
  for (std::size_t i = 0; i < 3; ++i) {
    const auto plan = parallel::make_server_plan(
        segments, sizeof(float), who, {.policy = policies[i], .parts_per_server = chosen.parts_per_server}, {});
    const auto load = static_cast<double>(plan.placed.busiest_bytes());
    busiest = i == 0 ? load : busiest;
    std::printf("\n%s\n%s", std::string{name_of(policies[i])}.c_str(),
                parallel::describe(plan.placed, static_cast<int>(who.workers.size()), 1e6 * chosen.megabytes_per_second)
                    .c_str());
    std::printf("a step: %.4f s median of %d rounds; against partitioned: %.3f times, the busiest server: %.3f times\n",
                median(seconds[i]), chosen.rounds, median(seconds[i]) / median(seconds[0]), load / busiest);
  }
}

}  // namespace

int main(int argc, char** argv) {
  comm::mpi_environment environment{argc, argv};
  try {
    const settings chosen = read(argc, argv);
    environment.run([&](comm::mpi& world) { run(world, chosen); });
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "rank %d: %s\n", environment.rank(), failure.what());
    return 1;
  }
}
