// SPDX-License-Identifier: BSL-1.0
//
// The trace file of a measurement.
#pragma once

#include "../program/output_file.hpp"
#include "gradus/trace/chrome.hpp"
#include "gradus/trace/timeline.hpp"

namespace driver {

/// Compressed if the name ends in .gz, where the program was built with zlib.
/// @throws gradus::format_error when the file cannot be written
void write_trace(program::output_file& output, const gradus::trace::timeline& all,
                 const gradus::trace::program_properties& properties);

}  // namespace driver
