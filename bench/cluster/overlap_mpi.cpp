// SPDX-License-Identifier: BSL-1.0
//
// What overlap and the order of transfers are worth: the same training step computed alone, its gradients sent alone,
// and both together with the communication after backward, behind backward (as float and as float16), and behind
// backward and the next forward pass, there in the order of backward, of TIC, of TAC, as a search finds it, and at
// random; interleaved. For bench/cluster/run_on_cluster, or any cluster.
//
//   mpiexec -n 2 bench_cluster_overlap_mpi --model resnet50 --batch-size 4      (--help lists the options)
//
// --bucket-kilobytes and what follows are of the methods behind both passes; the others have the options of
// parallel::all_reduce. A step lasts from the end of the one before to its own, so the first of a round is not among
// them; "round" is the mean of a round's steps with its first one and the transfers after its last. A step's variation
// is the time below which 95 % of the steps are, less that of 5 %. "processor" is what rank 0's process took in a step,
// waiting included, and "thread" what the thread took of it that moves the buckets forward, sockets included.
#include <mpi.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "gradus/comm/mpi.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/gradus.hpp"
#include "gradus/parallel/network_segments.hpp"
#include "gradus/parallel/transfer_order/bucket_order.hpp"
#include "model.hpp"
#include "one_of.hpp"
#include "program.hpp"
#include "result.hpp"

namespace {

namespace comm = gradus::comm;
namespace parallel = gradus::parallel;
using bench::network;
using driver::statistics_of;
using collectives = comm::collectives<comm::mpi>;

struct settings {
  bench::model_options model{.name = "resnet50", .batch_size_per_rank = 4};
  int steps = 6;
  int rounds = 5;
  int threads = 1;
  std::string spec = "ring";
  int megabytes_per_second = 117;  // of the link, for the order of the buckets
  int bucket_kilobytes = 4096;
  int partition_kilobytes = 1024;
  int credit_kilobytes = 4096;
  int segment_kilobytes = 1024;
  bool orders = true;
  std::vector<std::string> filter;
  std::string json;

  /// Whether a way of overlapping is measured.
  [[nodiscard]] bool asks_for(const std::string& name) const {
    return filter.empty() || std::any_of(filter.begin(), filter.end(),
                                         [&](const std::string& text) { return name.find(text) != std::string::npos; });
  }
};

void add_options(CLI::App& app, settings& chosen) {
  bench::add_model_options(app, chosen.model);
  const auto add_number = [&](const char* name, int& value, int most, const char* about) {
    app.add_option(name, value, about)->check(CLI::Range(1, most))->capture_default_str();
  };
  constexpr int kilobytes = 1 << 20;
  add_number("--steps", chosen.steps, 100'000, "of a round");
  add_number("--rounds", chosen.rounds, 10'000, "how often everything is measured");
  add_number("--threads", chosen.threads, 4096, "of a rank");
  app.add_option("--all-reduce-spec", chosen.spec, "which algorithm reduces arrays of which size")
      ->check([](const std::string& spec) {
        try {
          static_cast<void>(comm::parse_all_reduce_spec(spec));
          return std::string{};
        } catch (const gradus::error& failure) {
          return std::string{failure.what()};
        }
      })
      ->capture_default_str();
  add_number("--segment-kilobytes", chosen.segment_kilobytes, kilobytes, "of a message");
  add_number("--link-mbyte", chosen.megabytes_per_second, 1'000'000, "MB/s of the link, for the order of the buckets");
  add_number("--bucket-kilobytes", chosen.bucket_kilobytes, kilobytes,
             "behind both passes: gradients that travel together");
  add_number("--partition-kilobytes", chosen.partition_kilobytes, kilobytes,
             "behind both passes: of a part of a bucket");
  add_number("--credit-kilobytes", chosen.credit_kilobytes, kilobytes, "behind both passes: under way at most");
  app.add_option("--orders", chosen.orders, "whether orders of the buckets are measured")
      ->transform(driver::one_of(driver::names<bool>{{"no", false}, {"yes", true}}))
      ->default_str("yes");
  app.add_option("--filter", chosen.filter, "only the ways of overlapping whose names have one of these texts")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--json", chosen.json, "write the table to this file too");
}

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// What the threads that move buckets forward have taken, as Linux counts it.
double bucket_thread_seconds() {
  double seconds = 0;
  for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
    std::string name;
    double nanoseconds = 0;
    std::getline(std::ifstream{task.path() / "comm"}, name);
    std::ifstream{task.path() / "schedstat"} >> nanoseconds;
    seconds += name == "gradus buckets" ? 1e-9 * nanoseconds : 0.0;
  }
  return seconds;
}

/// One way of doing a step, and what it took.
struct method {
  std::string name;
  std::function<double(std::vector<double>& each_step)> seconds_of_step;
  std::vector<double> rounds{};     // their mean steps
  std::vector<double> processor{};  // in a step of each round
  std::vector<double> thread{};
  std::vector<double> each_step{};

  [[nodiscard]] double median() const { return statistics_of(each_step).median; }
  [[nodiscard]] double round() const { return statistics_of(rounds).median; }
  [[nodiscard]] double variation() const {
    const driver::step_statistics found = statistics_of(each_step);
    return found.p95 - found.p5;
  }
};

/// A trainer of the network with a strategy of its own.
template <class Strategy>
struct training {
  using loader = gradus::data::loader<float, gradus::nhwc>;

  training(network& net, loader& batches, collectives& world, const Strategy& options)
      : batches_{batches}, trainer_{net, gradus::optim::sgd{.momentum = 0.9}, world, options} {}

  double operator()(std::vector<double>& each_step) {
    double seconds = 0;
    struct mean_step {
      double* seconds;
      void on_epoch(const gradus::train::epoch_report& epoch) {
        *seconds = epoch.seconds / static_cast<double>(epoch.steps);
      }
    };
    trainer_.fit(batches_, {.epochs = 1, .learning_rate = 1e-4}, bench::step_clock{&each_step}, mean_step{&seconds});
    return seconds;
  }

  /// What became of the gradients in the last step.
  [[nodiscard]] std::string summary() { return trainer_.template strategy<Strategy>().channel().summary(); }

 private:
  loader& batches_;
  gradus::train::trainer<network> trainer_;
};

/// Prints what was measured, and writes it to the file if one is asked for.
void report(const settings& chosen, const std::vector<method>& methods, int ranks, std::size_t gradient_bytes) {
  const double computation = methods[0].median();
  const double communication = methods[1].median();
  const parallel::step_bounds limits{std::max(computation, communication), computation + communication};
  std::printf("%s, %td images a rank, %d ranks, %s, %.1f MB of gradients\n", chosen.model.name.c_str(),
              chosen.model.batch_size_per_rank, ranks, chosen.spec.c_str(), 1e-6 * static_cast<double>(gradient_bytes));
  std::printf("%-26s %12s %10s %15s %13s %16s %12s %6s\n", "step", "median [ms]", "round [ms]", "p95 - p5 [ms]",
              "of the bound", "processor [ms]", "thread [ms]", "E");
  for (std::size_t i = 0; i < methods.size(); ++i) {
    const method& each = methods[i];
    std::printf("%-26s %12.1f %10.1f %15.1f %13.2f %16.1f %12.1f", each.name.c_str(), 1e3 * each.median(),
                1e3 * each.round(), 1e3 * each.variation(), each.median() / limits.lower,
                1e3 * statistics_of(each.processor).median, 1e3 * statistics_of(each.thread).median);
    i < 2 ? std::printf("\n") : std::printf(" %6.2f\n", parallel::overlap_efficiency(limits, each.median()));
  }
  std::printf("a step takes %.1f ms at least (the bound), %.1f ms without overlap: possible speed-up S = %.2f\n",
              1e3 * limits.lower, 1e3 * limits.upper, parallel::possible_speed_up(limits));
  if (chosen.orders && chosen.filter.empty()) {
    const method& random = methods.back();
    for (std::size_t i = methods.size() - 4; i + 1 < methods.size(); ++i) {
      std::printf("%s against random: %.1f %% faster, p95 - p5 %.2f times as small\n", methods[i].name.c_str(),
                  100 * (random.median() / methods[i].median() - 1), random.variation() / methods[i].variation());
    }
  }
  if (chosen.json.empty()) {
    return;
  }
  nlohmann::ordered_json steps;
  for (std::size_t i = 0; i < methods.size(); ++i) {
    const method& each = methods[i];
    steps.push_back({{"step", each.name},
                     {"median_ms", 1e3 * each.median()},
                     {"round_ms", 1e3 * each.round()},
                     {"p95_minus_p5_ms", 1e3 * each.variation()},
                     {"processor_ms", 1e3 * statistics_of(each.processor).median},
                     {"thread_ms", 1e3 * statistics_of(each.thread).median},
                     {"overlap_efficiency", i < 2 ? 0.0 : parallel::overlap_efficiency(limits, each.median())}});
  }
  const nlohmann::ordered_json all{{"model", chosen.model.name},
                                   {"batch_size", chosen.model.batch_size_per_rank},
                                   {"pixels", chosen.model.image().height},
                                   {"ranks", ranks},
                                   {"spec", chosen.spec},
                                   {"bound_ms", 1e3 * limits.lower},
                                   {"possible_speed_up", parallel::possible_speed_up(limits)},
                                   {"steps", steps}};
  std::ofstream file{chosen.json};
  file << all.dump(2) << '\n';
  if (!file.flush()) {
    throw std::invalid_argument{"--json: cannot write '" + chosen.json + "'"};
  }
}

void measure(comm::mpi& base, const settings& chosen) {
  gradus::cpu device{{.intra_op_threads = chosen.threads}};
  network net = bench::make_network(device, chosen.model);
  collectives world{base.duplicate(),
                    {.all_reduce = comm::parse_all_reduce_spec(chosen.spec),
                     .segment_bytes = gradus::index_t{1024} * chosen.segment_kilobytes,
                     .node_of_rank = comm::nodes_of_ranks(base)}};
  const gradus::index_t global_batch = chosen.model.batch_size_per_rank * world.size();
  const auto images = bench::make_images(chosen.model, global_batch * chosen.steps);
  using loader = gradus::data::loader<float, gradus::nhwc>;
  const gradus::data::shard mine{.rank = world.rank(), .ranks = world.size()};
  loader shared{device, images, {.global_batch_size = global_batch, .shuffle = false, .shard = mine}};

  const auto bytes = [](int kilobytes) { return gradus::index_t{1024} * kilobytes; };
  const parallel::all_reduce late{.bucket_bytes = bytes(chosen.bucket_kilobytes),
                                  .first_bucket_bytes = bytes(chosen.bucket_kilobytes) / 4,
                                  .partition_bytes = bytes(chosen.partition_kilobytes),
                                  .credit_bytes = bytes(chosen.credit_kilobytes),
                                  .overlap_forward = true};
  parallel::profile_recorder recorder{net.layers()};
  shared.start_epoch(0);
  for (const auto* batch = shared.next(); batch != nullptr; batch = shared.next()) {
    net.train_step(batch->images, batch->labels, {}, &recorder);
  }
  parallel::step_profile profile = recorder.profile();
  profile.link.bytes_per_second = 1e6 * chosen.megabytes_per_second;
  gradus::optim::sgd::state<float, gradus::cpu> rule{device, gradus::optim::sgd{.momentum = 0.9},
                                                     static_cast<gradus::index_t>(net.values().size())};
  const auto segments = parallel::segments_of(net.structure());
  // Calls step() until it is false. Returns the mean seconds of a step.
  const auto time_steps = [&](std::vector<double>& each_step, auto step) {
    const double began = MPI_Wtime();
    double last = began;
    while (step()) {
      const double now = MPI_Wtime();
      each_step.push_back(now - last);
      last = now;
    }
    return (last - began) / chosen.steps;
  };
  const auto compute = [&](std::vector<double>& each_step) {  // the steps of the trainers without their communication
    shared.start_epoch(0);
    return time_steps(each_step, [&] {
      const auto* batch = shared.next();
      if (batch != nullptr) {
        net.train_step(batch->images, batch->labels, {.global_examples = batch->global_examples});
        rule.update(device, segments, net.values().data(), net.gradients().data(), 1e-4);
      }
      return batch != nullptr;
    });
  };
  const auto communicate = [&](std::vector<double>& each_step) {
    return time_steps(each_step, [&, left = chosen.steps]() mutable {
      if (left > 0) {
        comm::all_reduce(world, net.gradients(), comm::reduction::maximum).wait();
      }
      return left-- > 0;
    });
  };
  std::vector<method> methods{{"compute alone", compute}, {"communicate alone", communicate}};
  const auto add = [&](const std::string& name, const parallel::all_reduce& options) {
    auto trained = std::make_shared<training<parallel::all_reduce>>(net, shared, world, options);
    methods.push_back({name, [trained](std::vector<double>& each_step) { return (*trained)(each_step); }});
  };
  using parallel::step_graph;
  const auto in_order = [&](const auto& find) { return parallel::in_forward_order(late, net, world, profile, find); };
  add("after backward", {.overlap = false});
  add("behind backward", {});
  using compressed = training<parallel::compressed_all_reduce<gradus::float16>>;
  const auto in_16_bits =
      std::make_shared<compressed>(net, shared, world, parallel::compressed_all_reduce<gradus::float16>{});
  methods.push_back(
      {"behind backward, float16", [in_16_bits](std::vector<double>& each_step) { return (*in_16_bits)(each_step); }});
  add("behind both, order none", late);
  if (chosen.orders) {
    add("behind both, order tic", in_order([](const step_graph& graph) { return parallel::tic(graph); }));
    add("behind both, order tac", in_order([](const step_graph& graph) { return parallel::tac(graph); }));
    std::vector<std::shared_ptr<training<parallel::all_reduce>>> at_random;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      at_random.push_back(std::make_shared<training<parallel::all_reduce>>(
          net, shared, world,
          in_order([seed](const step_graph& graph) { return parallel::random_order(graph.transfers(), seed); })));
    }
    methods.push_back({"behind both, order random", [at_random, round = 0](std::vector<double>& each_step) mutable {
                         return (*at_random[static_cast<std::size_t>(round++) % at_random.size()])(each_step);
                       }});
  }
  methods.erase(std::remove_if(methods.begin() + 2, methods.end(),
                               [&](const method& each) { return !chosen.asks_for(each.name); }),
                methods.end());
  for (int round = -1; round < chosen.rounds; ++round) {
    for (method& each : methods) {
      comm::barrier(base).wait();
      std::vector<double> each_step;
      const double before = processor_seconds();
      const double thread_before = bucket_thread_seconds();
      double seconds[] = {each.seconds_of_step(each_step)};
      const double processor = (processor_seconds() - before) / chosen.steps;
      const double thread = (bucket_thread_seconds() - thread_before) / chosen.steps;
      comm::all_reduce(base, seconds, comm::reduction::maximum).wait();
      if (round >= 0) {
        each.rounds.push_back(seconds[0]);
        each.processor.push_back(processor);
        each.thread.push_back(thread);
        each.each_step.insert(each.each_step.end(), each_step.begin(), each_step.end());
      }
    }
  }
  if (world.rank() == 0) {
    report(chosen, methods, world.size(), net.gradients().size_bytes());
    if (chosen.asks_for("behind backward, float16")) {
      std::printf("%s\n", in_16_bits->summary().c_str());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  settings chosen;
  CLI::App app{"What overlap of computation and communication, and the order of transfers, are worth.",
               "bench_cluster_overlap_mpi"};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_options(app, chosen);
  const auto check = [&](cluster::process here) {
    bench::require_network(chosen.model);
    if (here.rank == 0 && !chosen.json.empty() && !std::ofstream{chosen.json, std::ios::app}) {
      throw std::invalid_argument{"--json: cannot write '" + chosen.json + "'"};
    }
  };
  return cluster::run(argc, argv, app, check, [&](comm::mpi& world) { measure(world, chosen); });
}
