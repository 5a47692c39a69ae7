// SPDX-License-Identifier: BSL-1.0
//
// One measurement on all ranks, and its text.
#pragma once

#include "result.hpp"
#include "settings.hpp"
#include "update.hpp"

namespace driver {

/// What every rank does. Only rank 0 prints. Called by all ranks.
/// @param local_ranks  on this machine
/// @return the result; steps and loss are those of the rank
result measure(const settings& chosen, ranks& all, int local_ranks);

}  // namespace driver
