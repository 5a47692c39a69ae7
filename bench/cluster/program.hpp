// SPDX-License-Identifier: BSL-1.0
//
// What the programs have in common from the command line to the exit status.
#pragma once

#include <mpi.h>

#include <CLI/CLI.hpp>
#include <functional>

#include "gradus/comm/mpi.hpp"

namespace cluster {

/// This process among those of the job.
struct process {
  int rank;
  int ranks;
};

/// Starts MPI, reads the command line, and calls function(world).
///
/// Where a rank cannot follow its command line, the lowest such rank says why, no rank calls the function, and all end
/// with status 2, or 0 after --help. A failure of the function is said by the rank that has it.
/// @param check  throws if options do not fit together or to the job; ranks may look at different things
/// @return the exit status: 0, 1 after a failure, 2 after a wrong command line
int run(int argc, char** argv, CLI::App& app, const std::function<void(process)>& check,
        const std::function<void(gradus::comm::mpi&)>& function);

}  // namespace cluster
