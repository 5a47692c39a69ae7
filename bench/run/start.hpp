// SPDX-License-Identifier: BSL-1.0
//
// Prepares what starts a job: asks the machine, mpiexec and Slurm what they are.
#pragma once

#include <string>  // std::string

#include "settings.hpp"

namespace supervisor {

/// Starts the job as the settings say and supervises it, or prints the script or the line, or queues the job.
/// @return the exit status of gradus_run
/// @throws std::invalid_argument if the job does not fit the machine or the nodes
/// @throws std::runtime_error if a program that it takes is not there or fails
[[nodiscard]] int start(settings chosen);

/// Says on which processors this process runs, on standard error, and becomes the command.
/// @return the exit status if the command cannot be started
[[nodiscard]] int announce_and_become(const settings& chosen);

}  // namespace supervisor
