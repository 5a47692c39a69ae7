// SPDX-License-Identifier: BSL-1.0
//
// What the programs of tests/distributed share: the number of ranks that was asked for, a watchdog, the report.
#pragma once

#include <cstdio>     // std::printf
#include <cstdlib>    // std::_Exit, std::atoi
#include <exception>  // std::exception
#include <string>     // std::string

#include "communicators.hpp"    // the conformance suite
#include "gradus/comm/mpi.hpp"  // mpi, mpi_environment

namespace communicator_tests {

/// Ends the job unless `--require-ranks N` is given and there are N ranks.
inline void require_ranks(const comm::mpi_environment& environment, int argc, char** argv) {
  int wanted = 0;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string{argv[i]} == "--require-ranks") {
      wanted = std::atoi(argv[i + 1]);
    }
  }
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
int run_conformance(int argc, char** argv, Body&& body) {
  comm::mpi_environment environment{argc, argv};
  require_ranks(environment, argc, argv);
  const watchdog guard{std::chrono::seconds{100}};
  try {
    environment.run(body);
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "rank %d: %s\n", environment.rank(), failure.what());
    return 1;
  }
}

/// The main function of a program whose body ends with the job failed, as it should: the body checks what each rank
/// sees and throws if that is not right. The job's exit code is 0 if all ranks were content.
template <class Body>
int run_failure(int argc, char** argv, Body&& body) {
  comm::mpi_environment environment{argc, argv, {.grace = std::chrono::milliseconds{5000}, .exit_code = 0}};
  require_ranks(environment, argc, argv);
  const watchdog guard{std::chrono::seconds{100}};
  try {
    body(environment);
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "rank %d: %s\n", environment.rank(), failure.what());
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
  }
}

}  // namespace communicator_tests
