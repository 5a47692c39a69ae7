// SPDX-License-Identifier: BSL-1.0
//
// Initializes MPI at the beginning of main and finalizes it at the end, also when a rank ends with an exception.
#pragma once

#include <mpi.h>

#include <chrono>           // std::chrono::milliseconds
#include <cstdio>           // std::fprintf
#include <exception>        // std::exception, std::uncaught_exceptions
#include <memory>           // std::make_shared, std::shared_ptr
#include <source_location>  // std::source_location
#include <string>           // std::string
#include <string_view>      // std::string_view

#include "gradus/comm/detail/mpi/check.hpp"
#include "gradus/comm/detail/mpi/finalize.hpp"
#include "gradus/comm/detail/mpi/launched.hpp"
#include "gradus/comm/detail/mpi/process.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm {

/// Options of mpi_environment.
struct mpi_options {
  /// After a failure, how long a rank that ends waits for the others to learn of it and to end as well.
  std::chrono::milliseconds grace{2000};
  /// The exit code of the job after a failure.
  int exit_code = 1;
  /// How long a rank waits for the others while the environment and communicators are constructed and at the end of
  /// the program, and the time limit of these communicators until set_time_limit.
  std::chrono::milliseconds time_limit = default_time_limit;
};

/// Initializes MPI, and finalizes it when it is destroyed. Make one object in main, before any `mpi` communicator. A
/// program that begins MPI itself needs none: comm::mpi world{ranks}.
///
/// @code
///   int main(int argc, char** argv) {
///     comm::mpi_environment environment{argc, argv};
///     return environment.run([&](comm::mpi& world) { return train(world); });
///   }
/// @endcode
///
/// All processes of the job make one, also those that do not train: comm::mpi{environment, ranks} is a communicator of
/// some of them. Requests MPI_THREAD_MULTIPLE. With MPI_THREAD_SERIALIZED calls of several threads take turns, and
/// with less the thread that has begun MPI makes all calls; ranks that share memory then wait for each other without a
/// time limit while they allocate it. Failures are: an exception
/// in the function of `run`, an exception that destroys the environment, `fail`, a time limit. After a failure the
/// other ranks are notified. When the environment is destroyed, it gives them the time `grace` to end with their own
/// message. Then it ends the job by MPI_Abort, because MPI cannot be finalized while communications are under way. An
/// exception that is not caught in main may destroy no objects at all: use `run`, or catch it in main. Make the
/// environment before the try block: within it, the job ends before the catch clause. The destructor then writes the
/// text of the exception to the standard error output if it has left `run`, and else that the text is lost.
///
/// MPI errors on MPI_COMM_WORLD and MPI_COMM_SELF are returned instead of fatal: a program that calls MPI itself has to
/// check the results of its calls.
///
/// All ranks destroy it. Without a failure the destructor waits for those of the other ranks, as MPI_Finalize does, and
/// meanwhile learns of their failures. Ranks that go on training are waited for. If nothing comes from a rank for
/// `time_limit`, it writes to the standard error output which ranks do not answer, and ends the job.
///
/// If MPI is already initialized (by another library), it is not finalized, its error handlers are unchanged, and an
/// exception does not end the job. If the program calls MPI_Finalize while the environment lives, that waits for the
/// other ranks as the destructor does; later destructors of the library do nothing, and operations throw
/// communication_error.
class mpi_environment {
 public:
  /// Initializes MPI with the arguments of main, from which MPI may remove its own.
  /// @throws configuration_error if MPI is finalized, or if MPI_COMM_WORLD has one process although the launcher has
  /// started several that do not know of each other (docs/launching.md)
  /// @throws communication_error if not all processes of the job construct one within the time limit
  mpi_environment(int& argc, char**& argv, mpi_options options = {}) : mpi_environment{&argc, &argv, options} {}
  /// Initializes MPI without arguments.
  explicit mpi_environment(mpi_options options = {}) : mpi_environment{nullptr, nullptr, options} {}

  mpi_environment(const mpi_environment&) = delete;
  mpi_environment& operator=(const mpi_environment&) = delete;

  ~mpi_environment() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized != 0) {
      return;
    }
    process_->look_at_unfinished();
    const bool unwinding = std::uncaught_exceptions() > exceptions_at_start_ && !of_all_ranks_;
    if (unwinding && owner_) {
      tell_exception();  // MPI_Abort comes before the catch clause
    }
    if (unwinding) {
      process_->fail("an exception ended its program");
    }
    process_->look_for_notices(std::string_view{"the end of its program"});
    if (!process_->failed()) {
      process_->meet_at_end();
    }
    if (!owner_) {
      if (!process_->failed()) {
        process_->end();
      }
      return;
    }
    if (process_->failed()) {
      process_->abort_job(options_.grace, options_.exit_code);
    }
    detail::finalize_within(options_.time_limit, rank(), options_.exit_code, [this] {
      process_->end();
      MPI_Finalize();
    });
  }

  /// This rank among all processes of the job, counted from 0.
  [[nodiscard]] int rank() const noexcept { return process_->rank(); }
  /// The number of processes of the job.
  [[nodiscard]] int size() const noexcept { return process_->size(); }

  /// Reports to all other ranks that this one has failed; their waits throw communication_error. For a catch clause in
  /// main.
  void fail(std::string_view reason) noexcept { process_->fail(reason); }

  /// Calls function(world) with a communicator of all ranks and returns its result. If it throws, reports the reason to
  /// the other ranks before the exception leaves. An error_of_all_ranks, such as train::interrupted, is no failure of a
  /// rank: it leaves, and the destructor finalizes MPI as at the end of any program.
  template <class Function>
  decltype(auto) run(Function&& function);  // in mpi.hpp

 private:
  friend class mpi;
  friend class mpi_shared;

  mpi_environment(int* argc, char*** argv, mpi_options options)
      : options_{options}, exceptions_at_start_{std::uncaught_exceptions()} {
    require_time_limit("mpi_environment", options.time_limit);
    int initialized = 0;
    int finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (finalized != 0) {
      gradus::raise<configuration_error>("mpi_environment", "an MPI that has not been finalized", "one that has",
                                         "make it before MPI_Finalize; MPI begins once in a process");
    }
    if (initialized == 0) {
      int provided = MPI_THREAD_SINGLE;
      detail::check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided), "mpi_environment",
                        "MPI_Init_thread");
      owner_ = true;
      // Failures are reported as exceptions with rank and operation. Duplicates inherit this handler. It also applies
      // to calls without a communicator, such as those with MPI_COMM_NULL.
      MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
      MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    }
    detail::require_launched_world("mpi_environment", owner_, std::source_location::current());
    process_ = std::make_shared<detail::mpi_process>(MPI_COMM_WORLD, false, options.time_limit);
    detail::call_at_finalize(process_);
  }

  /// An exception leaves run. `text` goes to the other ranks, and is kept for tell_exception.
  void fail_by_exception(const char* text) noexcept {
    try {
      left_run_ = printable(text);
    } catch (...) {
      left_run_.clear();
    }
    process_->fail(text);
  }
  /// Writes to the standard error output what is known of the exception that destroys the environment.
  void tell_exception() const noexcept;

  mpi_options options_;
  int exceptions_at_start_;
  bool of_all_ranks_ = false;  // the last exception that has left run
  std::string left_run_;       // the text of that exception
  bool owner_ = false;
  std::shared_ptr<detail::mpi_process> process_;
};

inline void mpi_environment::tell_exception() const noexcept {
  constexpr const char* early = "ends before its exception is caught: the mpi_environment is within the try block";
  if (left_run_.empty()) {
    std::fprintf(stderr,
                 "gradus: rank %d %s, so the text of the exception is lost. Make the environment before the try "
                 "block, or call environment.run(...)\n",
                 rank(), early);
  } else {
    std::fprintf(stderr, "gradus: rank %d %s; make it before. The exception: %s\n", rank(), early, left_run_.c_str());
  }
}

}  // namespace gradus::comm
