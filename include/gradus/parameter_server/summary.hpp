// SPDX-License-Identifier: BSL-1.0
//
// What a parameter server has done.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/text.hpp"

namespace gradus::parallel {

/// Bins of a histogram of staleness; the last one counts all that is older.
inline constexpr std::size_t staleness_bins = 64;

/// What a server has done. Bytes are those of gradients and values, its own rank's worker included.
struct server_summary {
  std::uint64_t variable_bytes = 0;  ///< of the values that live on it
  std::uint64_t received_bytes = 0;  ///< of gradients, from workers
  std::uint64_t sent_bytes = 0;      ///< of values, to workers
  std::uint64_t updates = 0;         ///< optimizer steps of single parts
  std::uint64_t dropped = 0;         ///< whole pushes that came too late, or were left unfinished
  std::uint64_t lost_workers = 0;    ///< silent for longer than the time limit
  std::uint64_t left_workers = 0;    ///< ended their training
  /// Optimizer steps of each of its parts, with those before a state that it has been given.
  std::uint64_t steps = 0;
  /// Pushes of parts by the number of updates that their values had missed.
  std::uint64_t staleness[staleness_bins] = {};

  /// True if all members are equal.
  friend bool operator==(const server_summary&, const server_summary&) = default;
};

/// "13 bytes of variables, 26 received, 39 sent, 6 updates; pushes of parts by staleness: 0: 4, 1: 2", and what was
/// dropped or lost.
[[nodiscard]] inline std::string describe(const server_summary& done) {
  std::string text = gradus::join({done.variable_bytes, " bytes of variables, ", done.received_bytes, " received, ",
                                   done.sent_bytes, " sent, ", done.updates, " updates; pushes of parts by staleness"});
  std::string_view before = ": ";
  for (std::size_t bin = 0; bin < staleness_bins; ++bin) {
    if (done.staleness[bin] != 0) {
      append_text(text, {before, bin, bin + 1 == staleness_bins ? " or more: " : ": ", done.staleness[bin]});
      before = ", ";
    }
  }
  if (done.dropped != 0) {
    append_text(text, {"; pushes dropped: ", done.dropped});
  }
  if (done.lost_workers != 0) {
    append_text(text, {"; workers lost: ", done.lost_workers});
  }
  return text;
}

}  // namespace gradus::parallel
