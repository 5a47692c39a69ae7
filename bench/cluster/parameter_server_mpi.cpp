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
//   mpiexec -n 4 bench_cluster_parameter_server_mpi --measure orders --model inception3      (--help lists the options)
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/comm/mpi.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/network_segments.hpp"
#include "gradus/parallel/transfer_order/order.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/train/trainer.hpp"
#include "model.hpp"
#include "one_of.hpp"
#include "program.hpp"
#include "result.hpp"

namespace {

namespace comm = gradus::comm;
namespace parallel = gradus::parallel;
using bench::network;
using driver::statistics_of;
using gradus::optim::segment;

constexpr gradus::optim::sgd rule{.momentum = 0.9, .weight_decay = 1e-4};

struct settings {
  bench::model_options model{.name = "mnist", .batch_size_per_rank = 1};
  int servers = 0;
  bool colocate = true;
  int steps = 5;
  int rounds = 5;
  int megabytes_per_second = 117;  // of the link, for the bound
  int window = 4;
  int parts_per_server = 8;
  std::string measure = "placement";
  int threads = 1;
  parallel::server_mode mode = parallel::server_mode::asynchronous;
  int backup_workers = 0;
  int time_limit = 10;  // seconds

  [[nodiscard]] parallel::parameter_server options(parallel::placement_policy policy) const {
    const bool modes = measure == "lost_worker";
    return {.servers = servers,
            .colocate = colocate,
            .mode = modes ? mode : parallel::server_mode::synchronous,
            .backup_workers = modes ? backup_workers : 0,
            .window = window,
            .placed = {.policy = policy, .parts_per_server = parts_per_server}};
  }
};

void add_options(CLI::App& app, settings& chosen) {
  const auto add_number = [&](const char* name, int& value, int least, int most, const char* about) {
    return app.add_option(name, value, about)->check(CLI::Range(least, most))->capture_default_str();
  };
  app.add_option("--measure", chosen.measure, "what is measured")
      ->check(CLI::IsMember({"placement", "orders", "lost_worker"}))
      ->capture_default_str();
  bench::add_model_options(app, chosen.model);
  add_number("--servers", chosen.servers, 0, 4096, "0 beside the workers: on every rank");
  app.add_option("--colocate", chosen.colocate, "servers beside workers, not on ranks of their own")
      ->transform(driver::one_of(driver::names<bool>{{"0", false}, {"1", true}}))
      ->default_str("1");
  add_number("--steps", chosen.steps, 1, 100'000, "of a round");
  add_number("--rounds", chosen.rounds, 1, 10'000, "how often everything is measured");
  add_number("--link-mbyte", chosen.megabytes_per_second, 1, 1'000'000, "MB/s of the link, for bounds and orders");
  add_number("--window", chosen.window, 1, 4096, "parts under way between a worker and a server");
  add_number("--parts-per-server", chosen.parts_per_server, 1, 4096, "of partitioned placement");
  add_number("--threads", chosen.threads, 1, 4096, "of orders: threads of a rank");
  driver::names<parallel::server_mode> modes;
  for (const auto mode : {parallel::server_mode::synchronous, parallel::server_mode::asynchronous,
                          parallel::server_mode::bounded_staleness, parallel::server_mode::compat}) {
    modes.emplace(name_of(mode), mode);
  }
  app.add_option("--mode", chosen.mode, "of lost_worker: when servers apply gradients")
      ->transform(driver::one_of(modes))
      ->default_str(std::string{name_of(chosen.mode)});
  add_number("--backup-workers", chosen.backup_workers, 0, 4096,
             "of lost_worker: workers that a step does not wait for");
  add_number("--time-limit", chosen.time_limit, 1, 86'400, "of lost_worker: seconds until a rank counts as lost");
}

/// @throws configuration_error when the options do not fit the number of ranks
void check(const settings& chosen, int ranks) {
  bench::require_network(chosen.model);
  const parallel::parameter_server options = chosen.options(parallel::placement_policy::partitioned);
  options.settings().check(static_cast<int>(options.roles_among(ranks).workers.size()));
}

/// Seconds of a step, on workers.
double measure(comm::mpi& world, const parallel::parameter_server& options, std::span<const segment> segments,
               int steps) {
  if (options.is_server_only(world)) {
    parallel::serve<float>(world, rule, options);
    return 0;
  }
  const auto elements = static_cast<std::size_t>(segments.back().offset + segments.back().size);
  std::vector<float> values(elements, 1.0F);
  std::vector<float> gradients(elements, 0.0F);
  parallel::parameter_server::state<float> servers{options, world, {values, gradients, segments}};
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::optim::parameter_update_of<gradus::optim::sgd, float> applied{device, rule, 0};
  servers.use(applied);
  servers.start();
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) {
    servers.gradients_ready(0, segments.size());
    servers.end_of_step(0.01);
    servers.finish([](std::span<const segment>) {});
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / steps;
}

void measure_placement(comm::mpi& world, const settings& chosen) {
  using parallel::placement_policy;
  const placement_policy policies[] = {placement_policy::partitioned, placement_policy::round_robin,
                                       placement_policy::greedy};
  gradus::cpu device{{.intra_op_threads = 1}};
  const parallel::segment_list segments = parallel::segments_of(bench::make_network(device, chosen.model).structure());
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
  std::printf("%s, %s\n", chosen.model.name.c_str(), who.describe().c_str());
  for (std::size_t i = 0; i < 3; ++i) {
    const auto plan = parallel::make_server_plan(segments, sizeof(float), who, chosen.options(policies[i]).placed, {});
    const auto load = static_cast<double>(plan.placed.busiest_bytes());
    busiest = i == 0 ? load : busiest;
    std::printf("\n%s\n%s", std::string{name_of(policies[i])}.c_str(),
                parallel::describe(plan.placed, static_cast<int>(who.workers.size()), 1e6 * chosen.megabytes_per_second)
                    .c_str());
    std::printf("a step: %.4f s median of %d rounds; against partitioned: %.3f times, the busiest server: %.3f times\n",
                statistics_of(seconds[i]).median, chosen.rounds,
                statistics_of(seconds[i]).median / statistics_of(seconds[0]).median, load / busiest);
  }
}

void measure_orders(comm::mpi& world, const settings& chosen) {
  gradus::cpu device{{.intra_op_threads = chosen.threads}};
  network net = bench::make_network(device, chosen.model);
  const parallel::parameter_server servers = chosen.options(parallel::placement_policy::partitioned);
  const parallel::roles who = servers.roles_among(world.size());
  const auto workers = static_cast<int>(who.workers.size());
  const int worker = who.worker_index(world.rank());

  const gradus::index_t global_batch = chosen.model.batch_size_per_rank * workers;
  const auto images = bench::make_images(chosen.model, global_batch * (chosen.steps + 1));
  using loader = gradus::data::loader<float, gradus::nhwc>;
  loader batches{
      device,
      images,
      {.global_batch_size = global_batch, .shuffle = false, .shard = {.rank = std::max(worker, 0), .ranks = workers}}};

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
      trainer.fit(batches, {.epochs = 1, .learning_rate = 1e-5}, bench::step_clock{&each.seconds});
    }
  }
  if (world.rank() != who.workers.front()) {
    return;
  }
  const auto plan =
      parallel::make_server_plan(parallel::segments_of(net.structure()), sizeof(float), who, servers.placed, {});
  const double sending = plan.placed.step_seconds(workers, 1e6 * chosen.megabytes_per_second);
  std::printf("%s, %s, %td images of %td x %td pixels a worker, %.1f MB of parameters\n", chosen.model.name.c_str(),
              who.describe().c_str(), chosen.model.batch_size_per_rank, chosen.model.image().height,
              chosen.model.image().width, 1e-6 * static_cast<double>(plan.placed.total_bytes()));
  std::printf("computing alone: %.4f s median; gradients, and likewise values, on the wire: at least %.4f s\n",
              statistics_of(computing).median, sending);
  std::printf("%-8s %12s %12s %12s %18s %18s\n", "order", "median [s]", "p5 [s]", "p95 [s]", "variation p95-p5",
              "median to random's");
  for (const order& each : orders) {
    const driver::step_statistics found = statistics_of(each.seconds);
    std::printf("%-8s %12.4f %12.4f %12.4f %18.4f %18.3f\n", each.name, found.median, found.p5, found.p95,
                found.p95 - found.p5, found.median / statistics_of(orders[1].seconds).median);
  }
}

void measure_lost_worker(comm::mpi& world, const settings& chosen) {
  world.set_time_limit(std::chrono::seconds{chosen.time_limit});
  gradus::cpu device{{.intra_op_threads = 1}};
  const parallel::segment_list segments = parallel::segments_of(bench::make_network(device, chosen.model).structure());
  const parallel::parameter_server options = chosen.options(parallel::placement_policy::partitioned);
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
  } else {
    measure_lost_worker(world, chosen);
  }
}

}  // namespace

int main(int argc, char** argv) {
  settings chosen;
  CLI::App app{"What parameter servers cost: placement, orders of pulls, lost workers.",
               "bench_cluster_parameter_server_mpi"};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_options(app, chosen);
  return cluster::run(
      argc, argv, app, [&](cluster::process here) { check(chosen, here.ranks); },
      [&](comm::mpi& world) { run(world, chosen); });
}
