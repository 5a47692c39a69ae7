// SPDX-License-Identifier: BSL-1.0
//
// The report as one HTML page, and the rows that its timeline draws.
#pragma once

#include <cstdint>  // std::uint32_t
#include <string>   // std::string
#include <vector>   // std::vector

#include "analysis.hpp"
#include "trace.hpp"

namespace gradus::report {

/// Spans of one track that do not overlap, in order; what they contain, or what runs beside them, is in rows further
/// down.
struct row {
  int rank = 0, track = 0, depth = 0;
  std::vector<std::uint32_t> spans;  ///< indices in the track
};
/// Every span is in one row, unless more than `most_rows` overlap.
/// @param hidden  how many spans found no row
std::vector<row> rows_of(const trace& from, std::size_t& hidden);
inline constexpr int most_rows = 32;

/// A self-contained page: styles, program, figures and spans are in it, and it loads nothing. Texts of the trace are
/// data in it and never markup.
/// @param name  of the trace file, for the title
std::string page(const trace& from, const analysis& figures, const std::string& name);

}  // namespace gradus::report
