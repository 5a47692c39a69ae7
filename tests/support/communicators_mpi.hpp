// SPDX-License-Identifier: BSL-1.0
//
// What the programs of tests/distributed share: the number of ranks that was asked for, a watchdog, the report.
#pragma once

#include <atomic>     // std::atomic
#include <chrono>     // std::chrono
#include <cstdio>     // std::printf
#include <cstdlib>    // std::_Exit, std::atoi
#include <exception>  // std::exception
#include <fstream>    // std::ofstream
#include <ios>        // std::ios
#include <new>        // placement new
#include <stdexcept>  // std::runtime_error
#include <string>     // std::string
#include <thread>     // std::this_thread
#include <vector>     // std::vector

#include "communicators.hpp"  // the conformance suite
#include "gradus/comm/mpi.hpp"

namespace communicator_tests {

namespace comm = gradus::comm;

/// What follows `name` on the command line; empty if nothing does.
inline std::string argument_of(const char* name, int argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string{argv[i]} == name) {
      return argv[i + 1];
    }
  }
  return {};
}

/// Ends the job unless `--require-ranks N` is given and there are N ranks.
inline void require_ranks(const comm::mpi_environment& environment, int argc, char** argv) {
  const int wanted = std::atoi(argument_of("--require-ranks", argc, argv).c_str());
  if (wanted != environment.size()) {
    std::fprintf(stderr, "asked for %d ranks by --require-ranks, there are %d\n", wanted, environment.size());
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
}

/// Runs all cases; a case that fails ends the program with a message and a failure of all ranks.
template <class Communicator>
void run_cases(Communicator& world, const std::vector<test_case<Communicator>>& cases) {
  for (const auto& each : cases) {
    try {
      each.run(world);
    } catch (const std::exception& failure) {
      throw std::runtime_error{each.name + " on rank " + std::to_string(world.rank()) + ": " + failure.what()};
    }
    if (world.rank() == 0) {
      std::printf("passed: %s\n", each.name.c_str());
    }
  }
}

/// The main function of a program whose cases leave the communicator in order.
template <class Body>
int run_conformance(comm::mpi_environment& environment, int argc, char** argv, Body&& body) {
  require_ranks(environment, argc, argv);
  const watchdog guard{std::chrono::seconds{500}};
  try {
    environment.run(body);
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "rank %d: %s\n", environment.rank(), failure.what());
    return 1;
  }
}
template <class Body>
int run_conformance(int argc, char** argv, Body&& body) {
  comm::mpi_environment environment{argc, argv};
  return run_conformance(environment, argc, argv, body);
}

/// Counts the ranks that are content, in memory that all ranks of the machine share: MPI is of no use after a failure.
class content_ranks {
 public:
  content_ranks() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Win window = MPI_WIN_NULL;  // stays until the job ends
    void* memory = nullptr;
    MPI_Win_allocate_shared(rank_ == 0 ? static_cast<MPI_Aint>(sizeof(counter)) : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                            &memory, &window);
    MPI_Aint bytes = 0;
    int unit = 0;
    MPI_Win_shared_query(window, 0, &bytes, &unit, &memory);
    counter_ = static_cast<counter*>(memory);
    if (rank_ == 0) {
      new (memory) counter{0};
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }

  /// This rank is content, and does not wait for the others.
  void count_this_rank() noexcept { ++*counter_; }

  /// This rank is content. True when all are, false if that takes too long.
  bool all_content() {
    count_this_rank();
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (*counter_ < size_) {
      if (std::chrono::steady_clock::now() > deadline) {
        return false;
      }
      int unused = 0;  // MPI moves only when it is called, and others may still wait for what this rank has sent
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &unused, MPI_STATUS_IGNORE);
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }

 private:
  using counter = std::atomic<int>;
  static_assert(counter::is_always_lock_free);
  counter* counter_ = nullptr;
  int rank_ = 0;
  int size_ = 1;
};

/// Says how a job that ends by MPI_Abort has ended: that all ranks are content, or what this one complains of. ctest
/// reads it in the file of `--verdict FILE`: of such a job neither the exit code (MPICH 4.0 makes 1 of 0 now and then)
/// nor what was printed last (mpiexec loses it now and then) can be relied on.
inline void report_verdict(int rank, int argc, char** argv, const std::string& complaint) {
  const std::string verdict =
      complaint.empty() ? "all ranks are content\n" : "rank " + std::to_string(rank) + ": " + complaint + "\n";
  std::fputs(verdict.c_str(), complaint.empty() ? stdout : stderr);
  std::fflush(nullptr);
  if (const std::string path = argument_of("--verdict", argc, argv); !path.empty()) {
    std::ofstream{path, std::ios::app} << verdict;
  }
}

/// The main function of a program whose body ends with the job failed, as it should: the body checks what each rank
/// sees and throws if that is not right.
template <class Body>
int run_failure(int argc, char** argv, Body&& body) {
  comm::mpi_environment environment{argc, argv, {.grace = 5s, .exit_code = 0}};
  require_ranks(environment, argc, argv);
  const watchdog guard{std::chrono::seconds{500}};
  content_ranks content;
  std::string complaint = failure_of([&] { body(environment); });
  if (complaint.empty() && !content.all_content()) {
    complaint = "other ranks do not come to an end";
  }
  report_verdict(environment.rank(), argc, argv, complaint);
  if (!complaint.empty()) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return 0;
}

}  // namespace communicator_tests
