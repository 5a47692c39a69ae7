// SPDX-License-Identifier: BSL-1.0
//
// Finds processes of one job that do not know of each other.
#pragma once

#include <mpi.h>

#include <cstddef>          // std::size_t
#include <source_location>  // std::source_location
#include <string_view>      // std::string_view

#include "gradus/comm/launcher.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"

namespace gradus::comm::detail {

/// Called while MPI runs. A launcher and an MPI library that do not understand each other leave every process with a
/// world of its own, and each would train by itself, without a word.
/// @param finalize  whether it ends MPI before it throws
/// @throws configuration_error if MPI_COMM_WORLD has one process although the launcher has started several
inline void require_launched_world(std::string_view operation, bool finalize, const std::source_location& where) {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const launcher started = comm::find_launcher();
  if (size != 1 || started.processes == 1 || accepts_singletons()) {
    return;
  }
  MPI_Comm parent = MPI_COMM_NULL;
  MPI_Comm_get_parent(&parent);
  if (parent != MPI_COMM_NULL) {
    return;  // started by MPI_Comm_spawn
  }
  char library[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  if (MPI_Get_library_version(library, &length) != MPI_SUCCESS) {
    length = 0;
  }
  if (finalize) {
    MPI_Finalize();
  }
  gradus::raise<configuration_error>(operation, expected_processes(started), "1",
                                     how_to_launch(started, {library, static_cast<std::size_t>(length)}), where);
}

}  // namespace gradus::comm::detail
