// SPDX-License-Identifier: BSL-1.0
//
// What overlapping transfers with computation has gained, and could.
#pragma once

#include <string>

#include "gradus/trace/breakdown.hpp"

namespace driver {

/// A line about a rank's steps: the overlap efficiency E, the possible speed-up S and the bounds of a step (see
/// parallel::overlap_efficiency), from recorded spans. Empty if nothing was transferred, or to no other rank.
/// @param ranks  of the measurement
[[nodiscard]] std::string overlap_text(const gradus::trace::breakdown& measured, int ranks);

}  // namespace driver
