// SPDX-License-Identifier: BSL-1.0
//
// All-reduce of float through every communicator, interleaved with the MPI library's own, in place and blocking.
//   mpiexec -n 2 bench_comm_all_reduce [--least BYTES] [--most BYTES] [--factor N] [--rounds N] [--segment BYTES]
//                                      [--json FILE]
// A time is that of the slowest rank; the ratio is the median over rounds of MPI's time to the time in the same round.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../program/statistics.hpp"
#include "gradus/comm/mpi.hpp"
#include "gradus/comm/mpi_shared.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/output.hpp"
#include "gradus/core/text.hpp"

namespace {

namespace comm = gradus::comm;

struct options {
  std::size_t least = 1 << 10;
  std::size_t most = 1 << 28;
  std::size_t factor = 2;
  int rounds = 0;  // by size
  gradus::index_t segment = comm::mpi_shared_options{}.segment_bytes;
  std::string json;
};

options read_options(int argc, char** argv) {
  options o;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) {
      throw std::runtime_error{name + " needs a value"};
    }
    const std::string value = argv[i + 1];
    if (name == "--least") {
      o.least = std::stoull(value);
    } else if (name == "--most") {
      o.most = std::stoull(value);
    } else if (name == "--factor") {
      o.factor = std::max<std::size_t>(std::stoull(value), 2);
    } else if (name == "--rounds") {
      o.rounds = std::stoi(value);
    } else if (name == "--segment") {
      o.segment = std::stoll(value);
    } else if (name == "--json") {
      o.json = value;
    } else {
      throw std::runtime_error{"unknown option " + name};
    }
  }
  return o;
}

using program::median;

using clock_type = std::chrono::steady_clock;

double seconds_of(int calls, const std::function<void()>& call) {
  const auto begin = clock_type::now();
  for (int i = 0; i < calls; ++i) {
    call();
  }
  return std::chrono::duration<double>(clock_type::now() - begin).count() / calls;
}

/// The largest of the ranks' values, on all ranks.
double slowest(double own) {
  double value = own;
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return value;
}

/// Waits for all ranks without taking their processors.
void meet_asleep() {
  MPI_Request pending = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &pending);
  for (int done = 0; done == 0;) {
    MPI_Test(&pending, &done, MPI_STATUS_IGNORE);
    std::this_thread::sleep_for(std::chrono::microseconds{50});
  }
}

/// A way to all-reduce: seconds of one call among `calls` that follow each other; called by all ranks.
struct candidate {
  std::string name;
  std::function<double(std::span<float> data, int calls)> time;
};

/// A candidate whose calls are all_reduce(data) on every rank.
candidate among_processes(std::string name, std::function<void(std::span<float>)> all_reduce) {
  return {std::move(name), [all_reduce = std::move(all_reduce)](std::span<float> data, int calls) {
            MPI_Barrier(MPI_COMM_WORLD);
            return slowest(seconds_of(calls, [&] { all_reduce(data); }));
          }};
}

template <class Communicator>
candidate of_communicator(std::string name, Communicator& world) {
  return among_processes(std::move(name), [&world](std::span<float> data) { comm::all_reduce(world, data).wait(); });
}

/// The same with the array registered, once for all calls.
candidate registered(comm::mpi_shared& world) {
  return {"registered", [&world](std::span<float> data, int calls) {
            const auto registration = comm::register_memory(world, data);
            MPI_Barrier(MPI_COMM_WORLD);
            return slowest(seconds_of(calls, [&] { comm::all_reduce(world, data).wait(); }));
          }};
}

/// As many threads of rank 0 as there are ranks; the other processes sleep. `others` holds the other threads' arrays.
candidate among_threads(int rank, int size, std::vector<std::vector<float>>& others) {
  return {"threads", [rank, size, &others](std::span<float> data, int calls) {
            double time = 0;
            if (rank == 0) {
              others.resize(static_cast<std::size_t>(size));
              for (auto& each : others) {
                each.resize(data.size());
              }
              const auto times = comm::run_ranks(size, [&](comm::threads& world) {
                auto& other = others[static_cast<std::size_t>(world.rank())];
                const std::span<float> mine = world.rank() == 0 ? data : std::span<float>{other};
                std::fill(mine.begin(), mine.end(), data[0]);
                comm::barrier(world).wait();
                return seconds_of(calls, [&] { comm::all_reduce(world, mine).wait(); });
              });
              time = *std::max_element(times.begin(), times.end());
            }
            meet_asleep();
            return slowest(time);
          }};
}

void check(const candidate& each, int rank, int size, std::size_t elements) {
  std::vector<float> data(elements, 1.0F);
  each.time(data, 1);
  const bool concerned = each.name != "threads" || rank == 0;
  if (concerned && std::any_of(data.begin(), data.end(), [&](float x) { return x != static_cast<float>(size); })) {
    throw std::runtime_error{each.name + " is wrong for " + std::to_string(elements) + " elements"};
  }
}

void measure(comm::mpi_environment& environment, const options& o) {
  const int rank = environment.rank();
  const int size = environment.size();
  comm::mpi by_mpi{environment};
  comm::mpi_shared shared{environment, {.segment_bytes = o.segment}};
  std::vector<std::vector<float>> arrays_of_threads;
  const std::vector<candidate> candidates{
      among_processes("MPI_Allreduce",
                      [](std::span<float> data) {
                        MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM,
                                      MPI_COMM_WORLD);
                      }),
      of_communicator("mpi", by_mpi),
      of_communicator("mpi_shared", shared),
      registered(shared),
      among_threads(rank, size, arrays_of_threads),
  };

  char library[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(library, &length);
  nlohmann::json report{{"ranks", size},
                        {"mpi", std::string{library, static_cast<std::size_t>(length)}.substr(0, 60)},
                        {"segment_bytes", o.segment},
                        {"sizes", nlohmann::json::array()}};
  if (rank == 0) {
    std::printf("%12s", "bytes");
    for (const candidate& each : candidates) {
      std::printf(" %16s", each.name.c_str());
    }
    std::printf("   microseconds of a call, (times the speed of %s)\n", candidates[0].name.c_str());
  }
  for (std::size_t bytes = o.least; bytes <= o.most; bytes *= o.factor) {
    const std::size_t elements = bytes / sizeof(float);
    for (const candidate& each : candidates) {
      check(each, rank, size, elements);
    }
    const int calls = static_cast<int>(std::clamp<std::size_t>((1 << 20) / bytes, 1, 200));
    const int rounds = o.rounds > 0 ? o.rounds : bytes <= (1 << 20) ? 41 : bytes <= (1 << 25) ? 15 : 7;
    std::vector<float> data(elements);
    std::vector<std::vector<double>> times(candidates.size());
    std::vector<std::vector<double>> ratios(candidates.size());
    for (int round = 0; round < rounds + 1; ++round) {
      std::vector<double> now(candidates.size());
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        const std::size_t turn = (i + static_cast<std::size_t>(round)) % candidates.size();
        std::fill(data.begin(), data.end(), 0.0F);  // sums stay finite
        now[turn] = candidates[turn].time(data, calls);
      }
      for (std::size_t i = 0; i < candidates.size() && round > 0; ++i) {  // the first round is for warming up
        times[i].push_back(now[i]);
        ratios[i].push_back(now[0] / now[i]);
      }
    }
    nlohmann::json row{{"bytes", bytes}};
    if (rank == 0) {
      std::printf("%12zu", bytes);
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        std::printf(" %9.1f (%4.2f)", median(times[i]) * 1e6, median(ratios[i]));
        row[candidates[i].name] = {{"median_seconds", median(times[i])},
                                   {"least_seconds", *std::min_element(times[i].begin(), times[i].end())},
                                   {"median_ratio", median(ratios[i])}};
      }
      std::printf("\n");
      std::fflush(stdout);
    }
    report["sizes"].push_back(row);
  }
  if (rank == 0 && !o.json.empty()) {
    std::ofstream{o.json} << report.dump(1) << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  comm::mpi_environment environment{argc, argv};
  try {
    environment.run([&](comm::mpi&) { measure(environment, read_options(argc, argv)); });
    return gradus::close_output("bench_comm_all_reduce", 0);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "rank %d: %s\n", environment.rank(), gradus::printable(failure.what()).c_str());
    return 1;
  }
}
