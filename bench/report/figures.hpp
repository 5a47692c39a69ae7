// SPDX-License-Identifier: BSL-1.0
//
// The figures of a report for other programs: as JSON and as CSV.
#pragma once

#include <string>  // std::string

#include <nlohmann/json.hpp>  // nlohmann::ordered_json

#include "analysis.hpp"
#include "trace.hpp"

namespace gradus::report {

/// All figures and verdicts; times in milliseconds, shares as parts of 1. `step_ms` and `breakdown_ms` have the fields
/// of the benchmark driver's JSON: milliseconds of a mean step, mean of all ranks.
nlohmann::ordered_json figures_json(const trace& from, const analysis& figures);

/// The same figures, one a line: table, rank, item, figure, value, unit. Texts of the trace that a spreadsheet would
/// take for a formula get an apostrophe in front.
std::string figures_csv(const trace& from, const analysis& figures);

/// JSON as text; characters that are no UTF-8 are replaced.
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace gradus::report
