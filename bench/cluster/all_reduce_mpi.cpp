// SPDX-License-Identifier: BSL-1.0
//
// All-reduces over a real wire: MPI_Allreduce, comm::mpi, and comm::collectives over its messages, interleaved, each
// checked before it is timed. For bench/cluster/run_on_cluster, or any cluster.
//
//   bench/cluster/run_on_cluster --hosts 2 --rate 1gbit -- build/bench/cluster/bench_cluster_all_reduce_mpi --wire 949
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/comm/collectives.hpp"
#include "gradus/comm/mpi.hpp"
#include "program.hpp"

namespace {

namespace comm = gradus::comm;

struct settings {
  int wire = 949;  // Mbit/s that TCP gets
  int rounds = 9;
};

struct method {
  std::string name;
  double sent;  // bytes that each rank has to send, as a multiple of the array
  std::function<void(std::span<float>)> run;
  bool sums = true;
  std::vector<double> seconds;
};

/// The slowest rank's time of one call, in seconds, after a barrier.
double time_of(MPI_Comm all, const method& each, std::span<float> data) {
  MPI_Barrier(all);
  const double begin = MPI_Wtime();
  each.run(data);
  double seconds = MPI_Wtime() - begin;
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, all);
  return seconds;
}

/// Throws unless the method sums.
void check(const comm::mpi& world, const method& each, std::span<float> data) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<float>((world.rank() + 1) * static_cast<int>(i % 7 + 1));
  }
  each.run(data);
  const int ranks = world.size() * (world.size() + 1) / 2;
  for (std::size_t i = 0; each.sums && i < data.size(); ++i) {
    if (data[i] != static_cast<float>(ranks * static_cast<int>(i % 7 + 1))) {
      throw gradus::error{"bench", {"a sum by ", each.name}, {"a wrong value at ", i}};
    }
  }
}

void bench(comm::mpi& world, const settings& chosen) {
  const MPI_Comm all = world.native();
  const double share = 2.0 * (world.size() - 1) / world.size();
  std::vector<float> other;
  struct algorithm {
    std::string_view spec;
    gradus::index_t segment_bytes;
  };
  const std::vector<algorithm> algorithms{
      {"ring", 64 << 10}, {"ring", 256 << 10}, {"ring", 1 << 20}, {"halving_doubling", 256 << 10}};
  std::vector<comm::collectives<comm::mpi>> own;
  for (const algorithm& each : algorithms) {
    own.emplace_back(world.duplicate(), comm::collectives_options{.all_reduce = comm::parse_all_reduce_spec(each.spec),
                                                                  .segment_bytes = each.segment_bytes});
  }
  std::vector<method> methods;
  methods.push_back({"MPI_Sendrecv around, as a reference",
                     1.0,
                     [&](std::span<float> data) {
                       const int next = (world.rank() + 1) % world.size();
                       const int previous = (world.rank() + world.size() - 1) % world.size();
                       const int count = static_cast<int>(data.size());
                       MPI_Sendrecv(data.data(), count, MPI_FLOAT, next, 0, other.data(), count, MPI_FLOAT, previous, 0,
                                    all, MPI_STATUS_IGNORE);
                     },
                     false,
                     {}});
  methods.push_back({"MPI_Allreduce",
                     share,
                     [&](std::span<float> data) {
                       MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM, all);
                     },
                     true,
                     {}});
  methods.push_back(
      {"comm::mpi", share, [&](std::span<float> data) { comm::all_reduce(world, data).wait(); }, true, {}});
  for (std::size_t k = 0; k < own.size(); ++k) {
    methods.push_back({gradus::join({algorithms[k].spec, ", segments of ", algorithms[k].segment_bytes >> 10, " KiB"}),
                       share,
                       [&own, k](std::span<float> data) { comm::all_reduce(own[k], data).wait(); },
                       true,
                       {}});
  }
  if (world.rank() == 0) {
    std::printf("%d ranks, %d rounds, median (least to most); the wire carries %d Mbit/s\n\n", world.size(),
                chosen.rounds, chosen.wire);
    std::printf(
        "| bytes | all-reduce | seconds | bus bandwidth, Mbit/s | share of the wire |\n|---|---|---|---|---|\n");
  }
  for (const std::size_t bytes : {std::size_t{6'000'000}, std::size_t{64'000'000}}) {
    std::vector<float> data(bytes / sizeof(float));
    other.resize(data.size());
    for (method& each : methods) {
      check(world, each, data);
      each.seconds.clear();
    }
    std::fill(data.begin(), data.end(), 0.0F);
    for (int round = 0; round < chosen.rounds; ++round) {
      for (method& each : methods) {
        each.seconds.push_back(time_of(all, each, data));
      }
    }
    for (method& each : methods) {
      std::sort(each.seconds.begin(), each.seconds.end());
      const double median = each.seconds[each.seconds.size() / 2];
      const double rate = each.sent * static_cast<double>(bytes) * 8e-6 / median;
      if (world.rank() == 0) {
        std::printf("| %zu | %s | %.4f (%.4f to %.4f) | %.0f | %.1f %% |\n", bytes, each.name.c_str(), median,
                    each.seconds.front(), each.seconds.back(), rate, 100 * rate / chosen.wire);
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  settings chosen;
  CLI::App app{"All-reduces over a real wire, beside what the wire carries.", "bench_cluster_all_reduce_mpi"};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--wire", chosen.wire, "Mbit/s that TCP gets")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  app.add_option("--rounds", chosen.rounds, "how often everything is measured")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  return cluster::run(
      argc, argv, app, [](cluster::process) {}, [&](comm::mpi& world) { bench(world, chosen); });
}
