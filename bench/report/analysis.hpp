// SPDX-License-Identifier: BSL-1.0
//
// From spans to figures: where each rank's time goes, who waits for whom and why, what is transferred, how long steps
// take, what stages of a pipeline wait for.
#pragma once

#include <cstdint>  // std::int64_t
#include <map>      // std::map
#include <string>   // std::string
#include <utility>  // std::pair
#include <vector>   // std::vector

#include "activity.hpp"
#include "pipeline.hpp"
#include "trace.hpp"

namespace gradus::report {

/// One rank. Times in microseconds, over the whole trace unless said otherwise.
struct rank_figures {
  std::int64_t steps = 0;
  double step_time = 0;         ///< sum of its steps
  times in_steps{};             ///< by activity, within its steps; their sum is step_time
  times in_run{};               ///< by activity, over the whole trace
  double communicate = 0;       ///< some transfer is under way
  double hidden = 0;            ///< ... while the program computes
  double exposed = 0;           ///< ... while it does not: communicate - hidden
  double waits_for_rank = 0;    ///< stands still in steps, and a rank had not arrived at the transfer
  double waits_for_data = 0;    ///< stands still in steps, and all had arrived
  double waits_for_stages = 0;  ///< stands still in steps for messages between stages: counts in no other wait
  double makes_wait = 0;        ///< mean over the other ranks: how long they stood still because this one was last
  std::int64_t was_last = 0;    ///< collectives that it was the last to arrive at
  double copies = 0;            ///< some copy is under way
  std::int64_t copied_bytes = 0;
  std::int64_t sent_bytes = 0, received_bytes = 0;  ///< between pairs of ranks
  std::int64_t collective_bytes = 0;                ///< buffers given to collectives
  std::int64_t evaluations = 0;
  double loads = 0;  ///< its loader works in the background
};

/// One step of one rank.
struct step_figures {
  int rank = 0;
  std::int64_t step = 0;
  double begin = 0, end = 0;
};

/// The distribution of the times of steps, microseconds.
struct distribution {
  std::size_t count = 0;
  double mean = 0, median = 0, p5 = 0, p95 = 0, least = 0, greatest = 0;
  double jitter = 0;  ///< 1.4826 times the median distance from the median: the standard deviation if it were normal
};
/// Percentiles are interpolated. All are 0 for no times.
distribution distribution_of(std::vector<double> times);

/// The other ranks stand still for this one, because of what it does.
struct blame {
  int rank = 0;                               ///< who arrives last
  activity cause = activity::other;           ///< what it spent more time on than those who waited
  double total = 0;                           ///< microseconds of waiting, sum over the waiting ranks, in steps
  double share = 0;                           ///< of the time of the steps of the other ranks
  int example_rank = 0;                       ///< who waited longest in one piece,
  double example_begin = 0, example_end = 0;  ///< and when
};

/// Messages from one rank to another.
struct link_figures {
  int from = 0, to = 0;
  std::int64_t messages = 0, bytes = 0;
  double busy = 0;  ///< some message is under way, microseconds, as the side sees it that recorded more
};

/// The transfers of one kind: an operation on a bucket.
struct transfer_figures {
  std::string name, operation, bucket;
  std::int64_t count = 0, bytes = 0;  ///< over all ranks
  double waiting = 0;                 ///< until all had arrived, sum over all ranks
  double transferring = 0;            ///< after that
  bool told = false;                  ///< waiting is known
};

/// One layer; times over all ranks and steps.
struct layer_figures {
  std::string name;
  double forward = 0, backward = 0, update = 0;
};

/// A sentence on what costs time, and the figures that it rests on.
struct verdict {
  struct figure {
    std::string name;
    double value = 0;
    std::string unit;
  };
  std::string kind;  ///< "wait", "transfer", "input", "evaluate", ...: stable, for programs
  double share = 0;  ///< what it costs, as a part of the run; verdicts are sorted by it
  std::string sentence;
  std::string advice;  ///< may be empty
  std::vector<figure> figures;
  int rank = -1;              ///< an example: whose timeline,
  double begin = 0, end = 0;  ///< and from when to when; begin == end: none
};

/// Everything that the report tells. Times in microseconds.
struct analysis {
  double run = 0;  ///< from the first span to the last
  std::vector<rank_figures> ranks;
  std::vector<step_figures> steps;          ///< by rank and time
  distribution step_time;                   ///< over all steps of all ranks
  std::vector<blame> blames;                ///< the most expensive first
  std::vector<link_figures> links;          ///< the most bytes first
  std::vector<transfer_figures> transfers;  ///< the most time first
  std::vector<layer_figures> layers;        ///< the most time first
  pipeline_figures pipeline;                ///< of a training in stages
  double images_per_second = 0;             ///< of all ranks, from the median step; 0: the batch size is not told
  bool arrivals_inferred =
      false;  ///< who arrived last was found from the begin of the spans, as the trace does not tell
  std::vector<verdict> verdicts;
  std::vector<std::string> cautions;  ///< what makes figures uncertain: dropped spans, clocks, what was not understood

  /// Sums over ranks.
  double sum(double rank_figures::*which) const;
  double sum_in_steps(activity which) const;
  double sum_in_run(activity which) const;
};

/// The figures and the verdicts of a trace.
analysis analyse(const trace& from);

namespace detail {
/// When all ranks had arrived at a transfer, as the trace tells or as the begins of the others' spans tell.
struct arrival {
  double time = 0;
  int last_rank = -1;  ///< -1: not known
};
/// By rank, for each span of the track of transfers.
using arrivals = std::vector<std::vector<arrival>>;
/// @param inferred  set if the trace does not tell and spans had to do
arrivals find_arrivals(const trace& from, bool& inferred);
/// When each rank stands still in its steps for messages between stages; empty for a trace without a pipeline.
using stage_waits = std::vector<intervals>;
/// Fills the figures of a training in stages.
stage_waits find_pipeline(const trace& from, const std::vector<activity_line>& lines, const arrivals& arrived,
                          analysis& result);
/// Fills what the ranks wait for and the blames. Waits for stages belong to the bubble and are left out.
void attribute_waiting(const trace& from, const std::vector<activity_line>& lines, const arrivals& arrived,
                       const stage_waits& for_stages, analysis& result);
/// Adds the verdict on the bubble of a pipeline.
void judge_pipeline(const trace& from, analysis& result);
/// Fills the cautions, from all other figures.
void caution(const trace& from, analysis& result);
/// Fills the verdicts and the cautions, from all other figures.
void judge(const trace& from, const std::vector<activity_line>& lines, analysis& result);
}  // namespace detail

}  // namespace gradus::report
