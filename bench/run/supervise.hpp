// SPDX-License-Identifier: BSL-1.0
//
// Runs a job until it is complete, or no further start would help.
#pragma once

#include "settings.hpp"

namespace supervisor {

/// Starts the job, and again when it dies. Each start, end and decision is a line on standard error.
/// @return the exit status of gradus_run
/// @throws std::system_error if the system gives no pipes or signals
[[nodiscard]] int supervise(const settings& chosen);

}  // namespace supervisor
