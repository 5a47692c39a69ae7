// SPDX-License-Identifier: BSL-1.0
//
// The passes of a training in stages, by rank and step, and which ranks are which position of which replica.
#pragma once

#include <array>    // std::array
#include <cstdint>  // std::int64_t
#include <map>      // std::map
#include <vector>   // std::vector

#include "analysis.hpp"
#include "gradus/pipeline/schedule.hpp"

namespace gradus::report::detail {

/// A pass that was recorded, microseconds.
struct recorded_pass {
  double begin = 0, end = 0;
  double computes = 0;  ///< without the exchange and the copies inside it
  parallel::pipeline_action action;
};

/// The passes of one step of one rank, by time.
struct recorded_step {
  double begin = 0, end = 0;  ///< of the step
  std::vector<recorded_pass> passes;
  int micro_batches = 0;  ///< 0: passes are missing
};

/// What passes of one kind compute, microseconds.
struct mean_time {
  double sum = 0, count = 0;
  double mean() const { return count > 0 ? sum / count : 0; }
};
/// By pass: forward, backward, and the parts of backward.
using pass_times = std::array<mean_time, 4>;

/// What one rank of a pipeline recorded.
struct rank_passes {
  int rank = 0;
  std::vector<recorded_step> steps;  ///< all with passes; after keep_regular those that count
  std::vector<int> stages;           ///< ascending
  std::map<int, pass_times> by_stage;
  double computes = 0;  ///< inside passes, microseconds
  double step_time = 0;

  double steps_count() const { return static_cast<double>(steps.size()); }
};

/// All passes of a trace, and the positions of their ranks.
struct pipeline_passes {
  std::vector<rank_passes> ranks;  ///< that have passes, ascending
  int micro_batches = 0;           ///< of the steps that count; 0: no step is complete
  std::int64_t left_out = 0;       ///< steps that do not count
  int stages = 0;
  int stages_per_rank = 0;
  /// For each position in a replica its ranks, as indices of `ranks`, one of each replica. With one stage of a rank the
  /// position is the stage.
  std::vector<std::vector<std::size_t>> positions;
  bool regular =
      false;  ///< stage s is at position s mod positions.size(), and each position has the same number of ranks
};

/// Reads the passes of all ranks. Cost: the number of spans, times the logarithm of their number.
/// @param lines  what each rank does
pipeline_passes find_passes(const trace& from, const std::vector<activity_line>& lines,
                            const std::vector<step_figures>& steps);

/// The times of a stage of a rank; all 0 if it does not run it.
inline pass_times times_of(const rank_passes& rank, int stage) {
  const auto found = rank.by_stage.find(stage);
  return found == rank.by_stage.end() ? pass_times{} : found->second;
}
inline const mean_time& of(const pass_times& times, parallel::pipeline_pass which) {
  return times[static_cast<std::size_t>(which)];
}

}  // namespace gradus::report::detail
