// SPDX-License-Identifier: BSL-1.0
//
// Communicators behind the handles of the C interface. The only file that knows MPI.
#pragma once

#include <chrono>   // std::chrono::milliseconds
#include <cstdint>  // std::int64_t
#include <memory>   // std::make_shared, std::make_unique, std::shared_ptr, std::unique_ptr
#include <utility>  // std::move

#include "calls.hpp"
#include "gradus/comm/self.hpp"
#include "gradus_c.h"

#if defined(GRADUS_C_MPI)
#include <mpi.h>

#include "gradus/comm/mpi.hpp"
#endif

namespace gradus_c {

class communicator final : public object {
 public:
  communicator() = default;

  /// Calls body(communicator of the library).
  template <class Body>
  decltype(auto) with(const Body& body) {
#if defined(GRADUS_C_MPI)
    if (mpi_ != nullptr) {
      return body(*mpi_);
    }
#endif
    return body(self_);
  }

#if defined(GRADUS_C_MPI)
  explicit communicator(std::unique_ptr<gradus::comm::mpi> ranks) : mpi_{std::move(ranks)} {}
#endif

 private:
  gradus::comm::self self_;
#if defined(GRADUS_C_MPI)
  std::unique_ptr<gradus::comm::mpi> mpi_;
#endif
};

/// The ranks of an MPI communicator, by Fortran's handle.
[[nodiscard]] inline std::shared_ptr<communicator> communicator_of_mpi([[maybe_unused]] int fortran_handle) {
#if defined(GRADUS_C_MPI)
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    throw failure{GRADUS_CONFIGURATION_ERROR, "a program that has called MPI_Init or MPI_Init_thread",
                  "MPI that is not initialized"};
  }
  const MPI_Comm ranks = MPI_Comm_f2c(static_cast<MPI_Fint>(fortran_handle));
  if (ranks == MPI_COMM_NULL) {
    refuse("a communicator with ranks", "MPI_COMM_NULL");
  }
  return std::make_shared<communicator>(std::make_unique<gradus::comm::mpi>(ranks));
#else
  throw failure{GRADUS_NOT_BUILT, "gradus_c.cpp compiled with -DGRADUS_C_MPI", "one without MPI",
                "gradus_add_c_library(target MPI) in CMake"};
#endif
}

}  // namespace gradus_c
