// SPDX-License-Identifier: BSL-1.0
//
// An environment that is made within a try block ends the job before the catch clause runs: each rank first writes what
// is known of its exception to the standard error output.
// Cases: in_run outside_run
#include <unistd.h>  // dup2, pipe, read

#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>

#include "../support/communicators_mpi.hpp"

namespace {

namespace comm = gradus::comm;
namespace suite = communicator_tests;

/// What the standard error output gets from now on.
int redirect_standard_error() {
  int ends[2] = {};
  suite::require(::pipe(ends) == 0 && ::dup2(ends[1], STDERR_FILENO) >= 0, "a pipe");
  return ends[0];
}

/// Reads the line of the library, up to its end.
std::string line_of_library(int from) {
  std::string text;
  for (char next = 0; ::read(from, &next, 1) == 1;) {
    if (next != '\n') {
      text.push_back(next);
    } else if (text.starts_with("gradus: ")) {
      break;
    } else {
      text.clear();
    }
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  const bool in_run = suite::argument_of("--case", argc, argv) == "in_run";
  try {
    comm::mpi_environment environment{argc, argv, {.grace = std::chrono::seconds{5}, .exit_code = 0}};
    suite::require_ranks(environment, argc, argv);
    suite::content_ranks content;
    const int rank = environment.rank();
    const int culprit = environment.size() - 1;
    // Reads while the environment is destroyed, and says whether that is right before the job ends.
    std::thread{[=, reader = redirect_standard_error()]() mutable {
      const std::string line = line_of_library(reader);
      std::string complaint = suite::failure_of([&] {
        suite::require_contains(line, "rank " + std::to_string(rank) + " ends before its exception is caught");
        if (!in_run && rank == culprit) {
          suite::require_contains(line, "the text of the exception is lost");
        } else {
          suite::require_contains(line, in_run ? "the disk is full" : "an exception ended its program");
        }
      });
      if (complaint.empty() && !content.all_content()) {
        complaint = "other ranks do not come to an end";
      }
      suite::report_verdict(rank, argc, argv, complaint);
    }}.detach();
    if (!in_run && rank == culprit) {
      throw std::runtime_error{"the disk is full"};
    }
    environment.run([&](comm::mpi& world) {
      if (rank == culprit) {
        throw std::runtime_error{"the disk is full"};
      }
      comm::barrier(world).wait();
    });
  } catch (const std::exception& failure) {
    suite::report_verdict(0, argc, argv, std::string{"the environment lets pass: "} + failure.what());
  }
  return 0;
}
