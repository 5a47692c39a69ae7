// SPDX-License-Identifier: BSL-1.0
//
// Starts the ranks of a measurement: in threads, or those of mpiexec.
#pragma once

#include "settings.hpp"

namespace driver {

/// Measures on chosen.ranks ranks in threads of this process.
void measure_on_threads(const settings& chosen);

/// Measures on the ranks of the job, or if that has one alone, on chosen.ranks ranks in threads. Returns the exit
/// status.
int run_under_mpi(int& argc, char**& argv, const settings& chosen);

}  // namespace driver
