// SPDX-License-Identifier: BSL-1.0
//
// What a training would do on a cluster: predictions from a profile and a network.
#pragma once

#include "settings.hpp"

namespace driver {

/// Predicts images a second of the strategies on the numbers of ranks, or calibrates the simulator on measured rows.
/// @throws std::invalid_argument that says which option is wrong, what it expects and what came
void predict(const settings& chosen);

/// Proposes strategy, servers, buckets and stages for --nodes machines, and says how sure that is.
/// @throws std::invalid_argument likewise
void propose(const settings& chosen);

}  // namespace driver
