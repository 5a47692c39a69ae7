// SPDX-License-Identifier: BSL-1.0
//
// One measurement on all ranks, and its text.
#pragma once

#include <cstdint>
#include <vector>

#include "gradus/comm/link.hpp"
#include "gradus/trace/recorder.hpp"
#include "input.hpp"
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

/// The numbers of all ranks, one rank after another. Called by all ranks.
[[nodiscard]] std::vector<double> gather(gradus::comm::link& group, const std::vector<double>& own);

/// The most memory that a process of the ranks has used, in bytes. Called by all ranks.
[[nodiscard]] std::uint64_t largest_peak_memory(gradus::comm::link& group);

/// The properties of a run that a training, an inference and an evaluation have.
void describe_ranks(result& found, const settings& chosen, const ranks& all, const input_set& input);

}  // namespace driver
