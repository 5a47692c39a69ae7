// SPDX-License-Identifier: BSL-1.0
//
// What the network between the ranks of a job does.
#pragma once

#include "gradus/comm/mpi.hpp"
#include "settings.hpp"

namespace driver {

/// Measures latency, bandwidth and the cost of a message between ranks of one host and of different hosts, by messages
/// of comm::mpi. Rank 0 prints a table and the line that `predict --network` reads, and writes it to chosen.output.
/// Called by all ranks.
/// @throws std::invalid_argument with fewer than 2 ranks, or when the file cannot be written
void measure_network(gradus::comm::mpi& world, const settings& chosen);

}  // namespace driver
