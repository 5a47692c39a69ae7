// SPDX-License-Identifier: BSL-1.0
//
// What makes the figures of a trace uncertain, in words.
#include <algorithm>  // std::max

#include "analysis.hpp"
#include "format.hpp"

namespace gradus::report::detail {

void caution(const trace& from, analysis& result) {
  for (std::size_t rank = 0; rank < from.dropped.size(); ++rank) {
    if (from.dropped[rank] > 0) {
      result.cautions.push_back(
          "Rank " + std::to_string(rank) + " lost " + format_count(from.dropped[rank], "span") +
          " because its buffer was full: its earlier part is missing. Record fewer steps, or give "
          "the recorder a larger buffer.");
    }
  }
  double error = 0;
  for (const double each : from.clock_error_us) {
    error = std::max(error, each);
  }
  if (error > 0 && error >= 0.02 * result.step_time.median) {
    result.cautions.push_back("Clocks of ranks agree to " + format_time(error) + " only, " +
                              format_share(result.step_time.median > 0 ? error / result.step_time.median : 1) +
                              " of a step: who waits for whom is uncertain by as much.");
  }
  if (result.arrivals_inferred) {
    result.cautions.push_back(
        "The trace does not tell for all collectives who arrived last; there the begins of the "
        "ranks' spans were compared" +
        (error > 0 ? ", whose clocks agree to " + format_time(error) : std::string{}) + ".");
  }
  std::int64_t silent = 0;
  for (int rank = 0; rank < from.ranks; ++rank) {
    const auto track = from.tracks.lower_bound({rank, 0});
    silent += track == from.tracks.end() || track->first.first != rank ? 1 : 0;
  }
  if (silent > 0) {
    result.cautions.push_back("Of " + format_count(silent, "rank") + " there is no span at all.");
  }
  const pipeline_figures& pipeline = result.pipeline;
  if (pipeline.left_out > 0 && pipeline.empty()) {
    result.cautions.push_back("Of " + format_count(pipeline.left_out, "step") +
                              " in stages none has all its passes: bubbles are not counted.");
  } else if (!pipeline.empty() && !pipeline.explained()) {
    result.cautions.push_back(
        "The causes of bubbles are not known: the passes of some ranks are missing, they are in no order in which "
        "ranks "
        "could run them, or they are too many.");
  }
  result.cautions.insert(result.cautions.end(), from.notes.begin(), from.notes.end());
}

}  // namespace gradus::report::detail
