// SPDX-License-Identifier: BSL-1.0
//
// The bytes that each layer of a step reads and writes, and how fast.
#pragma once

#include "settings.hpp"

namespace driver {

/// Prints the table of --memory-traffic, and writes it to --json. With --dry-run without times.
void show_memory_traffic(const settings& chosen);

}  // namespace driver
