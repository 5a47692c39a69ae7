// SPDX-License-Identifier: BSL-1.0
//
// One measurement on all ranks, and its text.
#pragma once

#include "gradus/comm/link.hpp"
#include "gradus/trace/recorder.hpp"
#include "result.hpp"
#include "settings.hpp"
#include "update.hpp"

namespace driver {

/// What every rank does. Only rank 0 prints. Called by all ranks.
/// @param recorder     records the measured steps if there is a --trace-file
/// @return the result; steps and loss are those of the rank, and on a rank that only serves there is nothing else
result measure(const settings& chosen, ranks& all, gradus::trace::recorder& recorder);

/// Called by all ranks, before they take roles by their options.
/// @throws gradus::configuration_error unless all ranks were given the same options
void require_same_options(const settings& given, gradus::comm::link& group);

}  // namespace driver
