// SPDX-License-Identifier: BSL-1.0
//
// MPI from the beginning of main to its end, and what happens when a rank ends in an exception.
#pragma once

#include <mpi.h>

#include <chrono>       // std::chrono::milliseconds
#include <exception>    // std::exception, std::uncaught_exceptions
#include <memory>       // std::make_shared, std::shared_ptr
#include <string_view>  // std::string_view

#include "gradus/comm/detail/mpi/process.hpp"
#include "gradus/core/config.hpp"

namespace gradus::comm {

struct mpi_options {
  /// After a failure, how long a rank that ends waits for the others to learn of it and to end too.
  std::chrono::milliseconds grace{2000};
  /// What the job returns after a failure.
  int exit_code = 1;
};

/// Initializes MPI and finalises it when it is destroyed. One object in main, before any `mpi` communicator.
///
/// @code
///   int main(int argc, char** argv) {
///     comm::mpi_environment environment{argc, argv};
///     return environment.run([&](comm::mpi& world) { return train(world); });
///   }
/// @endcode
///
/// Asks for MPI_THREAD_MULTIPLE; with less, calls of several threads take turns. After a failure (an exception in the
/// function of `run`, an exception that destroys the environment, `fail`, a time limit) the other ranks are told, and
/// when the environment is destroyed it gives them `grace` to end with a message of their own and then ends the job by
/// MPI_Abort, because MPI cannot be finalised with communications under way. An exception that nothing in main catches
/// may destroy no objects at all: use `run`, or catch in main.
///
/// Errors of MPI on MPI_COMM_WORLD and MPI_COMM_SELF are returned, not fatal: a program that calls MPI itself has to
/// look at what calls return.
///
/// Destroyed by all ranks: without a failure the destructor waits for those of the other ranks, as MPI_Finalize does,
/// and learns of their failures meanwhile.
///
/// If MPI runs already (another library has begun it), it is left running and its error handlers are left alone, and an
/// exception does not end the job.
class mpi_environment {
 public:
  mpi_environment(int& argc, char**& argv, mpi_options options = {}) : mpi_environment{&argc, &argv, options} {}
  explicit mpi_environment(mpi_options options = {}) : mpi_environment{nullptr, nullptr, options} {}

  mpi_environment(const mpi_environment&) = delete;
  mpi_environment& operator=(const mpi_environment&) = delete;

  GRADUS_COLD ~mpi_environment() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized != 0) {
      return;
    }
    process_->look_at_unfinished();
    if (std::uncaught_exceptions() > exceptions_at_start_) {
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
    process_->end();
    MPI_Finalize();
  }

  /// Among all processes of the job.
  [[nodiscard]] int rank() const noexcept { return process_->rank(); }
  [[nodiscard]] int size() const noexcept { return process_->size(); }

  /// Tells all other ranks that this one has failed; their waits throw communication_error. For a catch clause in main.
  void fail(std::string_view reason) noexcept { process_->fail(reason); }

  /// Calls function(world) with a communicator of all ranks and returns what it returns. If it throws, tells the other
  /// ranks why before the exception goes on.
  template <class Function>
  decltype(auto) run(Function&& function);  // in mpi.hpp

 private:
  friend class mpi;

  GRADUS_COLD mpi_environment(int* argc, char*** argv, mpi_options options)
      : options_{options}, exceptions_at_start_{std::uncaught_exceptions()} {
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized == 0) {
      int provided = MPI_THREAD_SINGLE;
      detail::check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided), "mpi_environment",
                        "MPI_Init_thread");
      owner_ = true;
      // What fails is reported as an exception that names rank and operation. Duplicates inherit it; of calls that have
      // no communicator, such as those with MPI_COMM_NULL, the handlers of these decide.
      MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
      MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    }
    process_ = std::make_shared<detail::mpi_process>();
  }

  mpi_options options_;
  int exceptions_at_start_;
  bool owner_ = false;
  std::shared_ptr<detail::mpi_process> process_;
};

}  // namespace gradus::comm
