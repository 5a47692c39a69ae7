// SPDX-License-Identifier: BSL-1.0
//
// What a rank computes in a step, from a trace or from estimates.
#pragma once

#include <string>

#include "gradus/nn/plan/graph.hpp"
#include "gradus/sim/workload.hpp"
#include "settings.hpp"

namespace driver {

/// A step of one rank, and where its times come from.
struct step_source {
  gradus::sim::workload work;
  int ranks = 0;              // of the profile; 0: estimates
  int steps = 0;              // of the profile, of all ranks
  int micro_batches = 1;      // of a step of the profile
  double uncertainty = 0.01;  // of the times, relative
  std::string description;    // one line
};

/// The parameters of a network and the times of its layers, from the trace file --profile, or estimated by
/// --multiply-adds-per-second without one.
/// @param network  compiled, or forecast
/// @throws std::invalid_argument when the file is no trace, or one of another network or batch
[[nodiscard]] step_source step_source_of(const settings& chosen, const gradus::nn::graph& network);

}  // namespace driver
