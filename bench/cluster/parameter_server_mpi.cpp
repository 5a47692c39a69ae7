// SPDX-License-Identifier: BSL-1.0
//
// Parameter servers on a cluster; for bench/cluster/run_on_cluster, or any other. --measure says what:
//   placement    (default) what placement is worth: steps of synchronous servers with the gradients of a network that
//                are sent without being computed, for each placement; interleaved. Beside the measured ratios it prints
//                those of the busiest servers.
//   orders       what the order of pulls is worth: training steps, computed, with pulls behind the forward pass, as
//                values are ready, in random order (another one each round), in the order of the layers, by TIC and by
//                TAC; interleaved.
//   lost_worker  what a host costs that dies (run_on_cluster --kill): steps with gradients that are sent without being
//                computed, in the mode that --mode and --backup-workers choose; each rank prints how it ends.
//
//   run_on_cluster --hosts 4 --kill 3@5 -- bench_cluster_parameter_server_mpi --measure lost_worker --servers 1
//       --colocate 0 --steps 40 --mode asynchronous      (or --mode synchronous, with or without --backup-workers 1)
//
//   mpiexec -n 4 bench_cluster_parameter_server_mpi [--measure placement|orders|lost_worker]
//       [--model mnist|resnet50|inception3|vgg11] [--servers N] [--colocate 0|1] [--steps N] [--rounds N]
//       [--link-mbyte MB_PER_SECOND] [--window N] [--parts-per-server N]
//       of orders:      [--pixels N] [--batch-size N] [--threads N]
//       of lost_worker: [--mode synchronous|asynchronous|bounded_staleness] [--backup-workers N] [--time-limit SECONDS]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/comm/mpi.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/models/inception.hpp"
#include "gradus/models/mnist.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/models/vgg.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/order.hpp"
#include "gradus/parallel/parameter_server.hpp"
#include "gradus/train/trainer.hpp"

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
  std::string measure = "placement";
  int pixels = 0;  // 0: what the model is made for
  int batch_size = 1;
  int threads = 1;
  parallel::server_mode mode = parallel::server_mode::asynchronous;
  int backup_workers = 0;
  int time_limit = 10;  // seconds

  [[nodiscard]] parallel::parameter_server options(parallel::placement_policy policy) const {
    return {.servers = servers,
            .colocate = colocate,
            .window = window,
            .placed = {.policy = policy, .parts_per_server = parts_per_server}};
  }
};

parallel::server_mode mode_named(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(parallel::server_mode::compat); ++i) {
    if (name_of(static_cast<parallel::server_mode>(i)) == name) {
      return static_cast<parallel::server_mode>(i);
    }
  }
  throw std::invalid_argument{"--mode: '" + std::string{name} + "' is not a mode"};
}

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
    } else if (name == "--measure") {
      chosen.measure = argv[i + 1];
    } else if (name == "--pixels") {
      chosen.pixels = std::max(number, 1);
    } else if (name == "--batch-size") {
      chosen.batch_size = std::max(number, 1);
    } else if (name == "--threads") {
      chosen.threads = std::max(number, 1);
    } else if (name == "--mode") {
      chosen.mode = mode_named(argv[i + 1]);
    } else if (name == "--backup-workers") {
      chosen.backup_workers = number;
    } else if (name == "--time-limit") {
      chosen.time_limit = std::max(number, 1);
    } else {
      throw std::invalid_argument{"'" + std::string{name} + "' is not an option"};
    }
  }
  return chosen;
}

gradus::index_t pixels_of(const settings& chosen) {
  return chosen.pixels > 0 ? chosen.pixels : chosen.model == "mnist" ? 28 : chosen.model == "inception3" ? 299 : 224;
}
gradus::index_t channels_of(const settings& chosen) {
  return chosen.model == "mnist" ? 1 : 3;
}

network make_network(gradus::cpu& device, const settings& chosen) {
  network net{device, {.channels = channels_of(chosen), .height = pixels_of(chosen), .width = pixels_of(chosen)}};
  if (chosen.model == "mnist") {
    gradus::models::mnist(net);
  } else if (chosen.model == "resnet50") {
    gradus::models::resnet(net, 50, {.classes = 1000});
  } else if (chosen.model == "inception3") {
    gradus::models::inception3(net);
  } else if (chosen.model == "vgg11") {
    gradus::models::vgg(net, 11);
  } else {
    throw std::invalid_argument{"--model: expected mnist, resnet50, inception3 or vgg11, got '" + chosen.model + "'"};
  }
  net.freeze({.batch_size = chosen.batch_size, .seed = 1});
  return net;
}

/// The parameters of a network, in the order in which backward completes their gradients.
std::vector<segment> parameters_of(const network& net) {
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

/// The value below which this share of all is.
double quantile(std::vector<double> seconds, double share) {
  std::sort(seconds.begin(), seconds.end());
  const auto last = static_cast<double>(seconds.size() - 1);
  return seconds[static_cast<std::size_t>(share * last + 0.5)];
}

double median(const std::vector<double>& seconds) {
  return quantile(seconds, 0.5);
}

void measure_placement(comm::mpi& world, const settings& chosen) {
  using parallel::placement_policy;
  const placement_policy policies[] = {placement_policy::partitioned, placement_policy::round_robin,
                                       placement_policy::greedy};
  gradus::cpu device{{.intra_op_threads = 1}};
  const std::vector<segment> segments = parameters_of(make_network(device, chosen));
  std::vector<double> seconds[3];
  for (int round = 0; round < chosen.rounds; ++round) {
    for (std::size_t i = 0; i < 3; ++i) {
      seconds[i].push_back(measure(world, chosen.options(policies[i]), segments, chosen.steps));
    }
  }
  if (world.rank() != 0) {
    return;
  }
  const parallel::roles who = parallel::roles_of(world.size(), chosen.servers, chosen.colocate);
  double busiest = 0;
  std::printf("%s, %s\n", chosen.model.c_str(), who.describe().c_str());
  for (std::size_t i = 0; i < 3; ++i) {
    const auto plan = parallel::make_server_plan(segments, sizeof(float), who, chosen.options(policies[i]).placed, {});
    const auto load = static_cast<double>(plan.placed.busiest_bytes());
    busiest = i == 0 ? load : busiest;
    std::printf("\n%s\n%s", std::string{name_of(policies[i])}.c_str(),
                parallel::describe(plan.placed, static_cast<int>(who.workers.size()), 1e6 * chosen.megabytes_per_second)
                    .c_str());
    std::printf("a step: %.4f s median of %d rounds; against partitioned: %.3f times, the busiest server: %.3f times\n",
                median(seconds[i]), chosen.rounds, median(seconds[i]) / median(seconds[0]), load / busiest);
  }
}

/// The seconds of steps that follow another one.
struct step_clock {
  std::vector<double>* seconds;

  void on_step(const gradus::train::step_report& step) {
    const auto now = std::chrono::steady_clock::now();
    if (step.step_in_epoch > 0) {
      seconds->push_back(std::chrono::duration<double>(now - before).count());
    }
    before = now;
  }

  std::chrono::steady_clock::time_point before{};
};

void measure_orders(comm::mpi& world, const settings& chosen) {
  gradus::cpu device{{.intra_op_threads = chosen.threads}};
  network net = make_network(device, chosen);
  const parallel::parameter_server servers = chosen.options(parallel::placement_policy::partitioned);
  const parallel::roles who = servers.roles_among(world.size());
  const auto workers = static_cast<int>(who.workers.size());
  const int worker = who.worker_index(world.rank());

  const auto images =
      gradus::data::make_synthetic({.examples = gradus::index_t{chosen.batch_size} * workers * (chosen.steps + 1),
                                    .channels = channels_of(chosen),
                                    .height = pixels_of(chosen),
                                    .width = pixels_of(chosen)});
  using loader = gradus::data::loader<float, gradus::nhwc>;
  loader batches{device,
                 images,
                 {.batch_size = gradus::index_t{chosen.batch_size} * workers,
                  .shuffle = false,
                  .shard = {.rank = std::max(worker, 0), .ranks = workers}}};

  // Times of layers, while all workers compute; those of worker 0 count.
  parallel::profile_recorder recorder{net.layers()};
  std::vector<double> computing;
  if (worker >= 0) {
    batches.start_epoch(0);
    auto before = std::chrono::steady_clock::now();
    for (const auto* batch = batches.next(); batch != nullptr; batch = batches.next()) {
      net.train_step(batch->images, batch->labels, {}, &recorder);
      const auto now = std::chrono::steady_clock::now();
      computing.push_back(std::chrono::duration<double>(now - before).count());
      before = now;
    }
  }
  parallel::step_profile profile = recorder.profile();
  profile.link.bytes_per_second = 1e6 * chosen.megabytes_per_second / workers;
  const parallel::step_graph graph = parallel::forward_graph(net.structure(), profile);

  struct order {
    const char* name;
    std::vector<double> seconds;
  };
  order orders[] = {{"none", {}}, {"random", {}}, {"layers", {}}, {"tic", {}}, {"tac", {}}};
  for (int round = 0; round < chosen.rounds; ++round) {
    for (order& each : orders) {
      const std::string_view name = each.name;
      parallel::parameter_server options = servers;
      options.overlap_forward = true;
      if (name != "none") {
        const auto transfers = name == "random"
                                   ? parallel::random_order(graph.transfers(), static_cast<std::uint64_t>(round))
                               : name == "layers" ? parallel::layer_order(graph)
                               : name == "tic"    ? parallel::tic(graph, {.break_ties = true})
                                                  : parallel::tac(graph);
        const auto own = parallel::priorities_of_parameters(net.structure(), transfers);
        std::vector<std::int64_t> priorities(own.begin(), own.end());
        comm::broadcast(world, priorities, who.workers.front()).wait();
        options.pull_priorities.assign(priorities.begin(), priorities.end());
      }
      if (worker < 0) {
        parallel::serve<float>(world, rule, options);
        continue;
      }
      gradus::train::trainer trainer{net, rule, world, options};
      trainer.fit(batches, {.epochs = 1, .learning_rate = 1e-5}, step_clock{&each.seconds});
    }
  }
  if (world.rank() != who.workers.front()) {
    return;
  }
  const auto plan = parallel::make_server_plan(parameters_of(net), sizeof(float), who, servers.placed, {});
  const double sending = plan.placed.step_seconds(workers, 1e6 * chosen.megabytes_per_second);
  std::printf("%s, %s, %d images of %td x %td pixels a worker, %.1f MB of parameters\n", chosen.model.c_str(),
              who.describe().c_str(), chosen.batch_size, pixels_of(chosen), pixels_of(chosen),
              1e-6 * static_cast<double>(plan.placed.total_bytes()));
  std::printf("computing alone: %.4f s median; gradients, and likewise values, on the wire: at least %.4f s\n",
              median(computing), sending);
  std::printf("%-8s %12s %12s %12s %18s %18s\n", "order", "median [s]", "p5 [s]", "p95 [s]", "variation p95-p5",
              "median to random's");
  for (const order& each : orders) {
    const double low = quantile(each.seconds, 0.05);
    const double high = quantile(each.seconds, 0.95);
    std::printf("%-8s %12.4f %12.4f %12.4f %18.4f %18.3f\n", each.name, median(each.seconds), low, high, high - low,
                median(each.seconds) / median(orders[1].seconds));
  }
}

void measure_lost_worker(comm::mpi& world, const settings& chosen) {
  world.set_time_limit(std::chrono::seconds{chosen.time_limit});
  gradus::cpu device{{.intra_op_threads = 1}};
  const std::vector<segment> segments = parameters_of(make_network(device, chosen));
  parallel::parameter_server options = chosen.options(parallel::placement_policy::partitioned);
  options.mode = chosen.mode;
  options.backup_workers = chosen.backup_workers;
  const auto say = [&](const std::string& what) {
    std::printf("rank %d: %s\n", world.rank(), what.c_str());
    std::fflush(stdout);
  };
  if (options.is_server_only(world)) {
    say("the server ends, " + describe(parallel::serve<float>(world, rule, options)));
    return;
  }
  const double seconds = measure(world, options, segments, chosen.steps);
  say("the worker has made its " + std::to_string(chosen.steps) + " steps, of " + std::to_string(seconds) +
      " s on average");
}

void run(comm::mpi& world, const settings& chosen) {
  if (chosen.measure == "placement") {
    measure_placement(world, chosen);
  } else if (chosen.measure == "orders") {
    measure_orders(world, chosen);
  } else if (chosen.measure == "lost_worker") {
    measure_lost_worker(world, chosen);
  } else {
    throw std::invalid_argument{"--measure: expected placement, orders or lost_worker, got '" + chosen.measure + "'"};
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
