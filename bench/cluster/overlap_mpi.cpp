// SPDX-License-Identifier: BSL-1.0
//
// What overlap is worth: the same training step computed alone, its gradients sent alone, and both together with the
// communication after backward, behind backward, and behind backward and the next forward pass; interleaved. For
// bench/cluster/run_on_cluster, or any cluster.
//
//   mpiexec -n 2 bench_cluster_overlap_mpi [--model resnet50|mnist|vgg11] [--batch-size N] [--pixels N] [--steps N]
//       [--rounds N] [--threads N] [--all-reduce-spec SPEC] [--link-mbyte MB_PER_SECOND]
//       [--bucket-kilobytes N] [--json FILE]
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/comm/mpi.hpp"
#include "gradus/gradus.hpp"
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
  gradus::index_t pixels = 224;
  int steps = 6;
  int rounds = 5;
  int threads = 1;
  std::string spec = "ring";
  double megabytes_per_second = 117;  // of the link, for the order of the buckets
  int bucket_kilobytes = 8192;
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
    } else if (name == "--json") {
      chosen.json = value;
    } else {
      throw std::invalid_argument{"'" + std::string{name} + "' is not an option"};
    }
  }
  return chosen;
}

/// One way of doing a step, and the seconds that it took in each round.
struct method {
  std::string name;
  std::function<double()> seconds_of_step;
  std::vector<double> seconds;

  [[nodiscard]] double median() const {
    std::vector<double> sorted = seconds;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
    return sorted[sorted.size() / 2];
  }
  [[nodiscard]] double best() const { return *std::min_element(seconds.begin(), seconds.end()); }
};

/// A trainer of the network with a synchronization of its own.
template <class Communicator>
struct training {
  using loader = gradus::data::loader<float, gradus::nhwc>;

  training(network& net, loader& batches, Communicator& world, const parallel::all_reduce& options)
      : batches_{batches}, trainer_{net, gradus::optim::sgd{.momentum = 0.9}, world, options} {}

  double operator()() {
    double seconds = 0;
    struct watch {
      double* seconds;
      void on_epoch(const gradus::train::epoch_report& epoch) {
        *seconds = epoch.seconds / static_cast<double>(epoch.steps);
      }
    };
    trainer_.fit(batches_, {.epochs = 1, .learning_rate = 1e-4}, watch{&seconds});
    return seconds;
  }

 private:
  loader& batches_;
  gradus::train::trainer<network, gradus::optim::sgd, Communicator> trainer_;
};

void measure(comm::mpi& base, const settings& chosen) {
  gradus::cpu device{{.intra_op_threads = chosen.threads}};
  const bool small = chosen.model == "mnist";
  const gradus::index_t pixels = small ? 28 : chosen.pixels;
  network net{device, {.channels = small ? 1 : 3, .height = pixels, .width = pixels}};
  if (small) {
    gradus::models::mnist(net);
  } else if (chosen.model == "resnet50") {
    gradus::models::resnet(net, 50, {.classes = 1000});
  } else if (chosen.model == "vgg11") {
    gradus::models::vgg(net, 11);
  } else {
    throw std::invalid_argument{"--model: expected resnet50, mnist or vgg11, got '" + chosen.model + "'"};
  }
  net.freeze({.batch_size = chosen.batch_size, .seed = 1});

  collectives world{base.duplicate(), {.all_reduce = comm::parse_all_reduce_spec(chosen.spec)}};
  comm::self alone;
  const auto images = gradus::data::make_synthetic({.examples = chosen.batch_size * chosen.steps * world.size(),
                                                    .channels = small ? 1 : 3,
                                                    .height = pixels,
                                                    .width = pixels});
  using loader = gradus::data::loader<float, gradus::nhwc>;
  const gradus::data::shard mine{.rank = world.rank(), .ranks = world.size()};
  loader shared{device, images, {.batch_size = chosen.batch_size * world.size(), .shuffle = false, .shard = mine}};

  const gradus::index_t bucket = gradus::index_t{1024} * chosen.bucket_kilobytes;
  const parallel::all_reduce late{.bucket_bytes = bucket, .first_bucket_bytes = bucket / 4, .overlap_forward = true};
  parallel::profile_recorder recorder{net.layers()};
  shared.start_epoch(0);
  for (const auto* batch = shared.next(); batch != nullptr; batch = shared.next()) {
    net.train_step(batch->images, batch->labels, {}, &recorder);
  }
  parallel::step_profile profile = recorder.profile();
  profile.link.bytes_per_second = 1e6 * chosen.megabytes_per_second;
  const parallel::all_reduce ordered = parallel::in_forward_order(late, net, world, profile);

  training after{net, shared, world, {.overlap = false}};
  training behind_backward{net, shared, world, {}};
  training behind_both{net, shared, world, late};
  training in_order{net, shared, world, ordered};
  gradus::optim::sgd::state<float, gradus::cpu> rule{device, gradus::optim::sgd{.momentum = 0.9},
                                                     static_cast<gradus::index_t>(net.values().size())};
  std::vector<gradus::optim::segment> segments;
  for (const auto& p : net.parameters()) {
    segments.push_back({.name = std::string{p.name()}, .offset = p.offset(), .size = p.size()});
  }
  const auto compute = [&] {  // the steps of the shared loader without their communication
    shared.start_epoch(0);
    const double began = MPI_Wtime();
    for (const auto* batch = shared.next(); batch != nullptr; batch = shared.next()) {
      net.train_step(batch->images, batch->labels, {.global_examples = batch->global_examples});
      rule.update(device, segments, net.values().data(), net.gradients().data(), 1e-4);
    }
    return (MPI_Wtime() - began) / chosen.steps;
  };
  const auto communicate = [&] {
    const double began = MPI_Wtime();
    for (int i = 0; i < 3; ++i) {
      comm::all_reduce(world, net.gradients(), comm::reduction::maximum).wait();
    }
    return (MPI_Wtime() - began) / 3;
  };
  std::vector<method> methods{{"compute alone", compute, {}},
                              {"communicate alone", communicate, {}},
                              {"after backward", [&] { return after(); }, {}},
                              {"behind backward", [&] { return behind_backward(); }, {}},
                              {"behind backward and forward", [&] { return behind_both(); }, {}},
                              {"behind both, in order of need", [&] { return in_order(); }, {}}};
  for (int round = -1; round < chosen.rounds; ++round) {
    for (method& each : methods) {
      comm::barrier(base).wait();
      double seconds[] = {each.seconds_of_step()};
      comm::all_reduce(base, seconds, comm::reduction::maximum).wait();
      if (round >= 0) {
        each.seconds.push_back(seconds[0]);
      }
    }
  }
  if (world.rank() != 0) {
    return;
  }
  const double larger = std::max(methods[0].median(), methods[1].median());
  std::printf("%s, %td images a rank, %d ranks, %s, %.1f MB of gradients\n", chosen.model.c_str(), chosen.batch_size,
              world.size(), chosen.spec.c_str(), 1e-6 * static_cast<double>(net.gradients().size_bytes()));
  std::printf("%-30s %12s %12s %28s\n", "step", "median [ms]", "best [ms]", "ratio to the larger of 1, 2");
  for (const method& each : methods) {
    std::printf("%-30s %12.1f %12.1f %28.2f\n", each.name.c_str(), 1e3 * each.median(), 1e3 * each.best(),
                each.median() / larger);
  }
  const parallel::step_bounds limits{larger, methods[0].median() + methods[1].median()};
  std::printf(
      "possible speed-up S = %.2f; overlap efficiency E: %.2f behind backward, %.2f behind both, %.2f in order\n",
      parallel::possible_speed_up(limits), parallel::overlap_efficiency(limits, methods[3].median()),
      parallel::overlap_efficiency(limits, methods[4].median()),
      parallel::overlap_efficiency(limits, methods[5].median()));
  if (!chosen.json.empty()) {
    std::FILE* const out = std::fopen(chosen.json.c_str(), "w");
    if (out == nullptr) {
      throw std::invalid_argument{"--json: cannot write '" + chosen.json + "'"};
    }
    std::fprintf(out, "{\"model\": \"%s\", \"batch_size\": %td, \"ranks\": %d, \"spec\": \"%s\", \"step_ms\": {",
                 chosen.model.c_str(), chosen.batch_size, world.size(), chosen.spec.c_str());
    for (std::size_t i = 0; i < methods.size(); ++i) {
      std::fprintf(out, "%s\"%s\": {\"median\": %.3f, \"best\": %.3f}", i == 0 ? "" : ", ", methods[i].name.c_str(),
                   1e3 * methods[i].median(), 1e3 * methods[i].best());
    }
    std::fprintf(out, "}}\n");
    std::fclose(out);
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
