// SPDX-License-Identifier: BSL-1.0
//
// Starts the ranks of a measurement: in threads, or those of mpiexec.
#pragma once

#include "gradus/comm/command_line.hpp"
#include "settings.hpp"

namespace driver {

/// Measures on chosen.ranks ranks in threads of this process.
void measure_on_threads(const settings& chosen);

/// Measures on the ranks of the job, or, if the job has only one rank, on chosen.ranks ranks in threads. All ranks end
/// at once if one of them has a command line that it cannot follow. Returns the exit status.
int run_under_mpi(int& argc, char**& argv, const settings& chosen, gradus::comm::command_line own);

/// A command line that is refused.
[[nodiscard]] gradus::comm::command_line refused(const std::string& why);
/// Prints the help, or what is wrong.
void say(const gradus::comm::command_line& end);

}  // namespace driver
