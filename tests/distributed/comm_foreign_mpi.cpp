// SPDX-License-Identifier: BSL-1.0
//
// MPI that the program, or another library of it, begins and ends: what the library needs of it is said, no rank waits
// for ever, and no order of MPI_Finalize and destructors is a crash.
// Cases of 3 ranks: some_ranks some_ranks_serialized single funneled spectator spectator_serialized finalize
// Cases of 3 ranks: finalize_serialized after_finalize late_finalize
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "../support/communicators_mpi.hpp"
#include "gradus/comm/mpi_shared.hpp"

namespace {

namespace comm = gradus::comm;
namespace suite = communicator_tests;

constexpr std::chrono::milliseconds limit{2000};
int own_rank = 0;
int arguments_count = 0;
char** arguments = nullptr;

/// A crash is a complaint.
void crashed(int signal) {
  suite::report_verdict(own_rank, arguments_count, arguments, "a crash: signal " + std::to_string(signal));
  std::_Exit(1);
}

/// Ranks 0 and 1 of the job; null on others.
MPI_Comm training_ranks() {
  MPI_Comm some = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, own_rank < 2 ? 0 : MPI_UNDEFINED, own_rank, &some);
  return some;
}

/// Only ranks that train make an environment: they cannot know whether the others come late.
void make_on_some_ranks() {
  if (own_rank < 2) {
    const std::string message = suite::message_of<gradus::communication_error>(
        [] { comm::mpi_environment environment{{.time_limit = limit}}; });
    suite::require_contains(message,
                            "mpi_environment: not complete within 2 s: not all of the 3 processes of "
                            "MPI_COMM_WORLD have constructed one");
    suite::require_contains(message, "also one that does not train; comm::mpi{ranks} needs only those of an MPI");
  }
}

/// Below MPI_THREAD_SERIALIZED the thread that has begun MPI makes all calls.
void use_one_thread() {
  comm::mpi_environment environment{{.time_limit = limit}};
  comm::mpi world{environment};
  comm::mpi_shared shared{environment};
  suite::require(world.one_thread() && shared.one_thread(), "one_thread()");
  std::vector<float> data(1009, 1.0F);
  comm::all_reduce(world, data).wait();
  comm::all_reduce(shared, data).wait();
  suite::require(data[0] == 9.0F, "a sum of sums");
}

/// Rank 2 has nothing to train and leaves its scope; the others go on for longer than the time limit.
void leave_the_training_to_others() {
  MPI_Comm some = training_ranks();
  {
    comm::mpi_environment environment{{.time_limit = limit}};
    if (some != MPI_COMM_NULL) {
      comm::mpi world{environment, some};
      std::vector<float> data(1009, 1.0F);
      const auto end = comm::clock::now() + 3 * limit;
      std::vector<float> goes_on{1};
      while (goes_on[0] > 0) {  // rank 0 says when
        goes_on[0] = comm::clock::now() < end ? 1.0F : 0.0F;
        comm::broadcast(world, goes_on, 0).wait();
        comm::all_reduce(world, data).wait();
        std::this_thread::sleep_for(std::chrono::milliseconds{20});
      }
    }
  }
  if (some != MPI_COMM_NULL) {
    MPI_Comm_free(&some);
  }
}

/// The program calls MPI_Finalize while all kinds of objects live.
void finalize_first(bool late) {
  std::optional<comm::mpi_environment> environment{std::in_place, comm::mpi_options{.time_limit = limit}};
  comm::mpi world{*environment};
  comm::mpi_shared shared{*environment};
  comm::mpi copy = world.duplicate();
  std::vector<float> data(1009, 1.0F);
  comm::all_reduce(world, data).wait();
  comm::all_reduce(shared, data).wait();
  if (late && own_rank == 2) {
    std::this_thread::sleep_for(limit / 2);
  }
  MPI_Finalize();
  const std::string message = suite::message_of<gradus::communication_error>([&] { comm::barrier(world).wait(); });
  suite::require_contains(message, "barrier: expected a running MPI, got an MPI that has been finalized");
  suite::require_contains(suite::message_of<gradus::communication_error>([&] { comm::mpi another{*environment}; }),
                          "comm::mpi: expected a running MPI, got an MPI that has been finalized");
  if (late) {
    environment.reset();  // before the communicators
  }
}

void make_after_finalize() {
  MPI_Finalize();
  suite::require_contains(suite::message_of<gradus::configuration_error>([] { comm::mpi_environment environment; }),
                          "mpi_environment: expected an MPI that has not been finalized, got one that has");
}

}  // namespace

int main(int argc, char** argv) {
  arguments_count = argc;
  arguments = argv;
  const std::string name = suite::argument_of("--case", argc, argv);
  const suite::watchdog guard{std::chrono::seconds{40}};
  int level = MPI_THREAD_SINGLE;
  if (name == "single") {
    MPI_Init(&argc, &argv);
  } else {
    const int wanted = name == "funneled"              ? MPI_THREAD_FUNNELED
                       : name.ends_with("_serialized") ? MPI_THREAD_SERIALIZED
                                                       : MPI_THREAD_MULTIPLE;
    MPI_Init_thread(&argc, &argv, wanted, &level);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &own_rank);
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS}) {
    std::signal(signal, crashed);
  }
  const std::string complaint = suite::failure_of([&] {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    suite::require(size == 3, "3 ranks");
    if (name.starts_with("some_ranks")) {
      make_on_some_ranks();
    } else if (name == "single" || name == "funneled") {
      use_one_thread();
    } else if (name.starts_with("spectator")) {
      leave_the_training_to_others();
    } else if (name == "after_finalize") {
      make_after_finalize();
    } else {
      finalize_first(name.starts_with("late"));
    }
  });
  suite::report_verdict(own_rank, argc, argv, complaint);
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && complaint.empty()) {
    MPI_Finalize();  // the program goes on, and ends in order
  }
  return complaint.empty() ? 0 : 1;
}
