// SPDX-License-Identifier: BSL-1.0
//
// What overlap and the order of transfers are worth: the same training step computed alone, its gradients sent alone,
// and both together with the communication after backward, behind backward (as float and as float16), and behind
// backward and the next forward pass, there in the order of backward, of TIC, of TAC, and at random; interleaved. For
// bench/cluster/run_on_cluster, or any cluster.
//
//   mpiexec -n 2 bench_cluster_overlap_mpi [--model resnet50|mnist|vgg11|inception3] [--batch-size N] [--pixels N]
//       [--steps N] [--rounds N] [--threads N] [--all-reduce-spec SPEC] [--segment-kilobytes N]
//       [--link-mbyte MB_PER_SECOND] [--bucket-kilobytes N] [--partition-kilobytes N] [--credit-kilobytes N]
//       [--orders yes|no] [--json FILE]
//
// --bucket-kilobytes and what follows are of the methods behind both passes; the others have the options of
// parallel::all_reduce. A step's variation is that from step to step, the first of each round left out: the time below
// which 95 % of the steps are, less that of 5 %. "processor" is what rank 0's process took in a step, waiting included.
#include <mpi.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/comm/mpi.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/gradus.hpp"
#include "gradus/models/inception.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/models/vgg.hpp"
#include "gradus/parallel/bucket_order.hpp"

namespace {

namespace comm = gradus::comm;
namespace parallel = gradus::parallel;
using network = gradus::nn::network<float, gradus::nhwc>;
using collectives = comm::collectives<comm::mpi>;

struct settings {
  std::string model = "resnet50";
  gradus::index_t batch_size = 4;
  gradus::index_t pixels = 0;  // the model's own
  int steps = 6;
  int rounds = 5;
  int threads = 1;
  std::string spec = "ring";
  double megabytes_per_second = 117;  // of the link, for the order of the buckets
  int bucket_kilobytes = 4096;
  int partition_kilobytes = 4096;
  int credit_kilobytes = 8192;
  int segment_kilobytes = 1024;
  bool orders = true;
  std::string json;
};

settings read(int argc, char** argv) {
  settings chosen;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc) {
      throw std::invalid_argument{std::string{name} + ": expected a value"};
    }
    const std::string value = argv[i + 1];
    const auto number = [&] {
      const long read = std::atol(value.c_str());
      if (read < 1) {
        throw std::invalid_argument{std::string{name} + ": expected a number of at least 1, got '" + value + "'"};
      }
      return static_cast<int>(read);
    };
    if (name == "--model") {
      chosen.model = value;
    } else if (name == "--batch-size") {
      chosen.batch_size = number();
    } else if (name == "--pixels") {
      chosen.pixels = number();
    } else if (name == "--steps") {
      chosen.steps = number();
    } else if (name == "--rounds") {
      chosen.rounds = number();
    } else if (name == "--threads") {
      chosen.threads = number();
    } else if (name == "--all-reduce-spec") {
      chosen.spec = value;
    } else if (name == "--link-mbyte") {
      chosen.megabytes_per_second = number();
    } else if (name == "--bucket-kilobytes") {
      chosen.bucket_kilobytes = number();
    } else if (name == "--partition-kilobytes") {
      chosen.partition_kilobytes = number();
    } else if (name == "--credit-kilobytes") {
      chosen.credit_kilobytes = number();
    } else if (name == "--segment-kilobytes") {
      chosen.segment_kilobytes = number();
    } else if (name == "--orders" && (value == "yes" || value == "no")) {
      chosen.orders = value == "yes";
    } else if (name == "--json") {
      chosen.json = value;
    } else {
      throw std::invalid_argument{"'" + std::string{name} + "' is not an option"};
    }
  }
  if (chosen.pixels == 0) {
    chosen.pixels = chosen.model == "mnist" ? 28 : chosen.model == "inception3" ? 299 : 224;
  }
  return chosen;
}

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// The value below which that share of the sample lies; 0 of none.
double quantile(std::vector<double> sample, double share) {
  std::sort(sample.begin(), sample.end());
  return sample.empty() ? 0.0 : sample[static_cast<std::size_t>(share * static_cast<double>(sample.size() - 1) + 0.5)];
}

/// One way of doing a step, and what it took in each round.
struct method {
  std::string name;
  std::function<double(std::vector<double>& each_step)> seconds_of_step;
  std::vector<double> seconds{};
  std::vector<double> processor{};
  std::vector<double> each_step{};  // apart from the first of each round

  [[nodiscard]] double median() const { return quantile(seconds, 0.5); }
  [[nodiscard]] double best() const { return quantile(seconds, 0); }
  [[nodiscard]] double variation() const { return quantile(each_step, 0.95) - quantile(each_step, 0.05); }
};

/// A trainer of the network with a synchronization of its own.
template <class Synchronization>
struct training {
  using loader = gradus::data::loader<float, gradus::nhwc>;

  training(network& net, loader& batches, collectives& world, const Synchronization& options)
      : batches_{batches}, trainer_{net, gradus::optim::sgd{.momentum = 0.9}, world, options} {}

  double operator()(std::vector<double>& each_step) {
    double seconds = 0;
    struct watch {
      std::vector<double>* each_step;
      double* seconds;
      double last = 0;
      void on_step(const gradus::train::step_report& step) {
        const double now = MPI_Wtime();
        if (step.step_in_epoch > 0) {
          each_step->push_back(now - last);
        }
        last = now;
      }
      void on_epoch(const gradus::train::epoch_report& epoch) {
        *seconds = epoch.seconds / static_cast<double>(epoch.steps);
      }
    };
    trainer_.fit(batches_, {.epochs = 1, .learning_rate = 1e-4}, watch{&each_step, &seconds});
    return seconds;
  }

  /// What became of the gradients in the last step.
  [[nodiscard]] std::string summary() { return trainer_.synchronization().channel().summary(); }

 private:
  loader& batches_;
  gradus::train::trainer<network, gradus::optim::sgd, collectives, Synchronization> trainer_;
};

/// Prints what was measured, and writes it to the file if one is asked for.
void report(const settings& chosen, const std::vector<method>& methods, int ranks, std::size_t gradient_bytes) {
  const double computation = methods[0].median();
  const double communication = methods[1].median();
  const parallel::step_bounds limits{std::max(computation, communication), computation + communication};
  std::printf("%s, %td images a rank, %d ranks, %s, %.1f MB of gradients\n", chosen.model.c_str(), chosen.batch_size,
              ranks, chosen.spec.c_str(), 1e-6 * static_cast<double>(gradient_bytes));
  std::printf("%-26s %12s %10s %15s %13s %16s %6s\n", "step", "median [ms]", "best [ms]", "p95 - p5 [ms]",
              "of the bound", "processor [ms]", "E");
  for (std::size_t i = 0; i < methods.size(); ++i) {
    const method& each = methods[i];
    std::printf("%-26s %12.1f %10.1f %15.1f %13.2f %16.1f", each.name.c_str(), 1e3 * each.median(), 1e3 * each.best(),
                1e3 * each.variation(), each.median() / limits.lower, 1e3 * quantile(each.processor, 0.5));
    i < 2 ? std::printf("\n") : std::printf(" %6.2f\n", parallel::overlap_efficiency(limits, each.median()));
  }
  std::printf("a step takes %.1f ms at least (the bound), %.1f ms without overlap: possible speed-up S = %.2f\n",
              1e3 * limits.lower, 1e3 * limits.upper, parallel::possible_speed_up(limits));
  if (chosen.orders) {
    const method& random = methods.back();
    for (std::size_t i = methods.size() - 4; i + 1 < methods.size(); ++i) {
      std::printf("%s against random: %.1f %% faster, p95 - p5 %.2f times as small\n", methods[i].name.c_str(),
                  100 * (random.median() / methods[i].median() - 1), random.variation() / methods[i].variation());
    }
  }
  if (chosen.json.empty()) {
    return;
  }
  std::FILE* const out = std::fopen(chosen.json.c_str(), "w");
  if (out == nullptr) {
    throw std::invalid_argument{"--json: cannot write '" + chosen.json + "'"};
  }
  std::fprintf(out, "{\"model\": \"%s\", \"batch_size\": %td, \"pixels\": %td, \"ranks\": %d, \"spec\": \"%s\",\n",
               chosen.model.c_str(), chosen.batch_size, chosen.pixels, ranks, chosen.spec.c_str());
  std::fprintf(out, " \"bound_ms\": %.3f, \"possible_speed_up\": %.4f, \"steps\": [", 1e3 * limits.lower,
               parallel::possible_speed_up(limits));
  for (std::size_t i = 0; i < methods.size(); ++i) {
    const method& each = methods[i];
    std::fprintf(out,
                 "%s\n  {\"step\": \"%s\", \"median_ms\": %.3f, \"best_ms\": %.3f, \"p95_minus_p5_ms\": %.3f, "
                 "\"processor_ms\": %.3f, \"overlap_efficiency\": %.4f}",
                 i == 0 ? "" : ",", each.name.c_str(), 1e3 * each.median(), 1e3 * each.best(), 1e3 * each.variation(),
                 1e3 * quantile(each.processor, 0.5),
                 i < 2 ? 0.0 : parallel::overlap_efficiency(limits, each.median()));
  }
  std::fprintf(out, "\n ]}\n");
  std::fclose(out);
}

void measure(comm::mpi& base, const settings& chosen) {
  gradus::cpu device{{.intra_op_threads = chosen.threads}};
  const bool small = chosen.model == "mnist";
  const gradus::index_t pixels = chosen.pixels;
  network net{device, {.channels = small ? 1 : 3, .height = pixels, .width = pixels}};
  if (small) {
    gradus::models::mnist(net);
  } else if (chosen.model == "resnet50") {
    gradus::models::resnet(net, 50, {.classes = 1000});
  } else if (chosen.model == "vgg11") {
    gradus::models::vgg(net, 11);
  } else if (chosen.model == "inception3") {
    gradus::models::inception3(net);
  } else {
    throw std::invalid_argument{"--model: expected resnet50, mnist, vgg11 or inception3, got '" + chosen.model + "'"};
  }
  net.freeze({.batch_size = chosen.batch_size, .seed = 1});

  collectives world{base.duplicate(),
                    {.all_reduce = comm::parse_all_reduce_spec(chosen.spec),
                     .segment_bytes = gradus::index_t{1024} * chosen.segment_kilobytes}};
  const auto images = gradus::data::make_synthetic({.examples = chosen.batch_size * chosen.steps * world.size(),
                                                    .channels = small ? 1 : 3,
                                                    .height = pixels,
                                                    .width = pixels});
  using loader = gradus::data::loader<float, gradus::nhwc>;
  const gradus::data::shard mine{.rank = world.rank(), .ranks = world.size()};
  loader shared{device, images, {.batch_size = chosen.batch_size * world.size(), .shuffle = false, .shard = mine}};

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
  std::vector<gradus::optim::segment> segments;
  for (const auto& p : net.parameters()) {
    segments.push_back({.name = std::string{p.name()}, .offset = p.offset(), .size = p.size()});
  }
  const auto compute = [&](std::vector<double>&) {  // the steps of the shared loader without their communication
    shared.start_epoch(0);
    const double began = MPI_Wtime();
    for (const auto* batch = shared.next(); batch != nullptr; batch = shared.next()) {
      net.train_step(batch->images, batch->labels, {.global_examples = batch->global_examples});
      rule.update(device, segments, net.values().data(), net.gradients().data(), 1e-4);
    }
    return (MPI_Wtime() - began) / chosen.steps;
  };
  const auto communicate = [&](std::vector<double>&) {
    const double began = MPI_Wtime();
    for (int i = 0; i < chosen.steps; ++i) {
      comm::all_reduce(world, net.gradients(), comm::reduction::maximum).wait();
    }
    return (MPI_Wtime() - began) / chosen.steps;
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
  for (int round = -1; round < chosen.rounds; ++round) {
    for (method& each : methods) {
      comm::barrier(base).wait();
      std::vector<double> each_step;
      const double before = processor_seconds();
      double seconds[] = {each.seconds_of_step(each_step)};
      const double processor = (processor_seconds() - before) / chosen.steps;
      comm::all_reduce(base, seconds, comm::reduction::maximum).wait();
      if (round >= 0) {
        each.seconds.push_back(seconds[0]);
        each.processor.push_back(processor);
        each.each_step.insert(each.each_step.end(), each_step.begin(), each_step.end());
      }
    }
  }
  if (world.rank() == 0) {
    report(chosen, methods, world.size(), net.gradients().size_bytes());
    std::printf("%s\n", in_16_bits->summary().c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  comm::mpi_environment environment{argc, argv};
  try {
    const settings chosen = read(argc, argv);
    environment.run([&](comm::mpi& world) { measure(world, chosen); });
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "overlap_mpi: %s\n", failure.what());
    return 1;
  }
  return 0;
}
