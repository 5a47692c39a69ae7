// SPDX-License-Identifier: BSL-1.0
//
// Rank 1 is killed while the ranks make a communicator, in a function of MPI. The others end
// within their time limit, with the operation and the rank, and their job ends. It also ends if rank 1 is killed at the
// end of the program.
// Cases of 3 ranks: environment number dup node window barrier duplicate registration split end finalize
#include <chrono>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../support/communicators_mpi.hpp"
#include "../support/lost_rank.hpp"
#include "gradus/comm/mpi_shared.hpp"

namespace {

namespace comm = gradus::comm;
namespace suite = communicator_tests;

// Longer than ranks take to begin where other programs keep the processors busy.
constexpr std::chrono::milliseconds limit{6000};
std::unique_ptr<suite::content_ranks> everybody;
std::string_view deadly;  // the function in which this rank is killed

void enter(std::string_view function) {
  if (function == deadly) {
    everybody->count_this_rank();
    std::raise(SIGKILL);
  }
}

}  // namespace

// MPI's profiling interface: these functions replace those of the library.
extern "C" {
int MPI_Allgather(const void* from, int count, MPI_Datatype type, void* to, int to_count, MPI_Datatype to_type,
                  MPI_Comm ranks) {
  enter("MPI_Allgather");
  return PMPI_Allgather(from, count, type, to, to_count, to_type, ranks);
}
int MPI_Allreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm ranks) {
  enter("MPI_Allreduce");
  return PMPI_Allreduce(from, to, count, type, operation, ranks);
}
int MPI_Barrier(MPI_Comm ranks) {
  enter("MPI_Barrier");
  return PMPI_Barrier(ranks);
}
int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm ranks, MPI_Request* request) {
  enter("MPI_Ibcast");
  return PMPI_Ibcast(data, count, type, root, ranks, request);
}
int MPI_Comm_idup(MPI_Comm ranks, MPI_Comm* made, MPI_Request* request) {
  enter("MPI_Comm_idup");
  return PMPI_Comm_idup(ranks, made, request);
}
int MPI_Comm_split_type(MPI_Comm ranks, int type, int key, MPI_Info info, MPI_Comm* made) {
  enter("MPI_Comm_split_type");
  return PMPI_Comm_split_type(ranks, type, key, info, made);
}
int MPI_Finalize() {
  enter("MPI_Finalize");
  return PMPI_Finalize();
}
int MPI_Scan(const void* from, void* to, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm ranks) {
  enter("MPI_Scan");
  return PMPI_Scan(from, to, count, type, operation, ranks);
}
int MPI_Win_allocate_shared(MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm ranks, void* memory, MPI_Win* made) {
  enter("MPI_Win_allocate_shared");
  return PMPI_Win_allocate_shared(bytes, unit, info, ranks, memory, made);
}
}

namespace {

/// From now on rank 1 is killed in this function.
void kill_rank_1_in(const comm::mpi_environment& environment, std::string_view function) {
  deadly = environment.rank() == 1 ? function : std::string_view{};
}

/// What the ranks do in a case.
void run_case(const std::string& name, comm::mpi_environment& environment) {
  if (name == "number" || name == "dup") {
    kill_rank_1_in(environment, name == "dup" ? "MPI_Comm_idup" : "MPI_Ibcast");
    const comm::mpi world{environment};
  } else if (name == "node" || name == "window" || name == "barrier") {
    kill_rank_1_in(environment, name == "node"     ? "MPI_Comm_split_type"
                                : name == "window" ? "MPI_Win_allocate_shared"
                                                   : "MPI_Barrier");
    const comm::mpi_shared world{environment};
  } else if (name == "split") {
    kill_rank_1_in(environment, "MPI_Scan");
    static_cast<void>(comm::mpi_shared::split_by_node(environment));
  } else if (name == "duplicate" || name == "registration") {
    comm::mpi_shared world{environment};
    kill_rank_1_in(environment, name == "duplicate" ? "MPI_Win_allocate_shared" : "MPI_Allreduce");
    if (name == "duplicate") {
      static_cast<void>(world.duplicate());
    } else {
      std::vector<float> data(100003, 1.0F);
      static_cast<void>(comm::register_memory(world, data));
    }
  } else {
    throw std::runtime_error{"no case '" + name + "'"};
  }
}

/// What the message of a survivor names in a case.
std::string operation_of(const std::string& name) {
  return name == "number" || name == "dup" ? "comm::mpi: "
         : name == "duplicate"             ? "duplicate: "
         : name == "registration"          ? "register_memory of 400012 uint8: "
         : name == "split"                 ? "comm::mpi_shared::split_by_node: "
                                           : "comm::mpi_shared: ";
}

void require_message(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& each : parts) {
    suite::require_contains(message, each);
  }
}

/// Rank 1 is killed before it makes its environment, which the others cannot know.
std::string complaint_without_environment(int rank) {
  return suite::failure_of([&] {
    deadly = rank == 1 ? "MPI_Comm_idup" : "";
    require_message(suite::failure_of([] { const comm::mpi_environment environment{{.time_limit = limit}}; }),
                    {"mpi_environment: not complete within 6 s", "mpi_options::time_limit allows longer waits"});
  });
}

std::string complaint_of(const std::string& name, comm::mpi_environment& environment) {
  return suite::failure_of([&] {
    require_message(suite::failure_of([&] { run_case(name, environment); }),
                    {operation_of(name) + "not complete within 6 s", "no answer from rank 1"});
    // No more MPI: what is made after the failure fails at once.
    require_message(suite::failure_of([&] { const comm::mpi world{environment}; }), {"comm::mpi: ", " failed: "});
  });
}

std::string with_all_content(std::string complaint) {
  if (complaint.empty() && !everybody->all_content()) {
    complaint = "other ranks do not come to an end";
  }
  return complaint;
}

}  // namespace

int main(int argc, char** argv) {
  suite::go_on_as_a_child();
  const std::string name = suite::argument_of("--case", argc, argv);
  const suite::watchdog guard{std::chrono::seconds{300}};
  if (name == "environment") {
    int level = MPI_THREAD_SINGLE;
    int rank = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    everybody = std::make_unique<suite::content_ranks>();
    const std::string complaint = with_all_content(complaint_without_environment(rank));
    suite::report_verdict(rank, argc, argv, complaint);
    MPI_Abort(MPI_COMM_WORLD, complaint.empty() ? 0 : 1);
  }
  comm::mpi_environment environment{
      argc, argv, {.grace = std::chrono::seconds{1}, .exit_code = 0, .time_limit = limit}};
  suite::require_ranks(environment, argc, argv);
  everybody = std::make_unique<suite::content_ranks>();
  if (name == "end" || name == "finalize") {
    suite::report_verdict(environment.rank(), argc, argv, {});
    kill_rank_1_in(environment, "MPI_Finalize");
    if (name == "end") {
      enter("MPI_Finalize");
    }
    return 0;  // the environment ends the job
  }
  suite::report_verdict(environment.rank(), argc, argv, with_all_content(complaint_of(name, environment)));
  return 0;  // the environment ends the job
}
