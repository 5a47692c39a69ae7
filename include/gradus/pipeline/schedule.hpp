// SPDX-License-Identifier: BSL-1.0
//
// The schedules of a pipeline as data: which rank runs which pass of which micro-batch, in which order.
#pragma once

#include <algorithm>    // std::max, std::min
#include <cstddef>      // std::ptrdiff_t, std::size_t
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/nn/network/phase.hpp"

namespace gradus::parallel {

/// A pass of a stage over one micro-batch.
using pipeline_pass = nn::stage_pass;

/// One entry of a schedule.
struct pipeline_action {
  pipeline_pass pass = pipeline_pass::forward;  ///< what is done
  int stage = 0;                                ///< from 0, the one with the input
  int micro_batch = 0;                          ///< from 0

  friend bool operator==(const pipeline_action&, const pipeline_action&) = default;
};

/// One step of a pipeline: what each rank does, in order. Stage s is on rank s mod ranks().
///
/// Values go from a stage to the next as soon as they are there, and a rank waits only where its next action needs
/// values of another one; sends never wait for receives. All functions that make schedules give the micro-batches of
/// each stage in ascending order.
class pipeline_schedule {
 public:
  /// A schedule of one's own: simulate_schedule checks it.
  /// @param name     for messages
  /// @param actions  of each rank, in order
  pipeline_schedule(std::string_view name, int stages, int micro_batches,
                    std::vector<std::vector<pipeline_action>> actions)
      : name_{name}, stages_{stages}, micro_batches_{micro_batches}, actions_{std::move(actions)} {}

  /// For messages.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// The number of ranks.
  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(actions_.size()); }
  /// The number of stages of all ranks.
  [[nodiscard]] int stages() const noexcept { return stages_; }
  /// The number of micro-batches of a step.
  [[nodiscard]] int micro_batches() const noexcept { return micro_batches_; }
  /// The actions of a rank, in order. @pre 0 <= rank < ranks()
  [[nodiscard]] const std::vector<pipeline_action>& of_rank(int rank) const noexcept {
    return actions_[static_cast<std::size_t>(rank)];
  }
  /// The rank that runs a stage.
  [[nodiscard]] int rank_of(int stage) const noexcept { return stage % ranks(); }

 private:
  std::string name_;
  int stages_;
  int micro_batches_;
  std::vector<std::vector<pipeline_action>> actions_;
};

namespace detail {

inline void require_pipeline(std::string_view name, int ranks, int micro_batches, int stages_per_rank = 1) {
  constexpr int most = 1 << 15;
  const auto within = [](int number) { return number >= 1 && number <= most; };
  if (!within(ranks) || !within(micro_batches) || !within(stages_per_rank)) {
    raise<configuration_error>(
        {"parallel::", name}, {"1 to ", most, " ranks, micro-batches and stages of a rank"},
        {ranks, " ranks, ", micro_batches, " micro-batches and ", stages_per_rank, " stages of a rank"});
  }
}

/// The passes of a rank in the order of "warm_up forwards, then one forward and one backward by turns, then the
/// backwards that are left".
inline std::vector<pipeline_action> one_by_one(const std::vector<pipeline_action>& forwards,
                                               const std::vector<pipeline_action>& backwards, std::size_t warm_up) {
  std::vector<pipeline_action> actions(
      forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(std::min(warm_up, forwards.size())));
  std::size_t next = actions.size();
  for (const pipeline_action& backward : backwards) {
    if (next < forwards.size()) {
      actions.push_back(forwards[next++]);
    }
    actions.push_back(backward);
  }
  return actions;
}

/// One pass of all micro-batches of a stage.
inline std::vector<pipeline_action> passes(pipeline_pass pass, int stage, int micro_batches) {
  std::vector<pipeline_action> actions;
  for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    actions.push_back({pass, stage, micro_batch});
  }
  return actions;
}

}  // namespace detail

/// GPipe (Huang et al., "GPipe: efficient training of giant neural networks using pipeline parallelism", 2019): all
/// forwards, then all backwards. A rank stores the values of all micro-batches.
/// @throws configuration_error for numbers below 1
inline pipeline_schedule gpipe_schedule(int ranks, int micro_batches) {
  detail::require_pipeline("gpipe_schedule", ranks, micro_batches);
  std::vector<std::vector<pipeline_action>> actions;
  for (int rank = 0; rank < ranks; ++rank) {
    actions.push_back(detail::passes(pipeline_pass::forward, rank, micro_batches));
    for (const pipeline_action& each : detail::passes(pipeline_pass::backward, rank, micro_batches)) {
      actions.back().push_back(each);
    }
  }
  return {"gpipe", ranks, micro_batches, std::move(actions)};
}

/// 1F1B (Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", 2019, with a flush at the
/// end of the step): a rank goes on to the next forward only when a backward has freed its memory. As long as GPipe's
/// step, but rank r stores the values of at most min(micro_batches, ranks - r) micro-batches.
/// @throws configuration_error for numbers below 1
inline pipeline_schedule one_f_one_b_schedule(int ranks, int micro_batches) {
  detail::require_pipeline("one_f_one_b_schedule", ranks, micro_batches);
  std::vector<std::vector<pipeline_action>> actions;
  for (int rank = 0; rank < ranks; ++rank) {
    actions.push_back(detail::one_by_one(detail::passes(pipeline_pass::forward, rank, micro_batches),
                                         detail::passes(pipeline_pass::backward, rank, micro_batches),
                                         static_cast<std::size_t>(ranks - rank - 1)));
  }
  return {"one_f_one_b", ranks, micro_batches, std::move(actions)};
}

/// Interleaved 1F1B (Narayanan et al., "Efficient large-scale language model training on GPU clusters using
/// Megatron-LM", 2021, section 2.2): a rank has several stages, ranks() apart. The bubble of 1F1B is divided by
/// stages_per_rank; more values are sent, and more are stored.
///
/// Micro-batches go in groups of about ranks; when ranks does not divide their number, the first groups are larger by
/// one, and the bubble is larger too.
/// @throws configuration_error for numbers below 1
inline pipeline_schedule interleaved_schedule(int ranks, int micro_batches, int stages_per_rank) {
  detail::require_pipeline("interleaved_schedule", ranks, micro_batches, stages_per_rank);
  const int groups = std::max(1, micro_batches / ranks);
  const int largest = (micro_batches + groups - 1) / groups;
  std::vector<std::vector<pipeline_action>> actions;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<pipeline_action> forwards;
    std::vector<pipeline_action> backwards;
    int begin = 0;
    for (int group = 0; group < groups; ++group) {
      const int end = begin + micro_batches / groups + (group < micro_batches % groups ? 1 : 0);
      for (int chunk = 0; chunk < stages_per_rank; ++chunk) {
        for (int micro_batch = begin; micro_batch < end; ++micro_batch) {
          forwards.push_back({pipeline_pass::forward, chunk * ranks + rank, micro_batch});
          backwards.push_back({pipeline_pass::backward, (stages_per_rank - 1 - chunk) * ranks + rank, micro_batch});
        }
      }
      begin = end;
    }
    const int warm_up = 2 * (ranks - rank - 1) + (stages_per_rank - 1) * largest;
    actions.push_back(detail::one_by_one(forwards, backwards, static_cast<std::size_t>(warm_up)));
  }
  return {"interleaved", ranks * stages_per_rank, micro_batches, std::move(actions)};
}

/// ZB1P (Qi et al., "Zero bubble pipeline parallelism", 2024, the schedule ZB-H1): 1F1B in which backward is split, and
/// gradients of the weights fill the gaps. With passes of equal length it has a third of 1F1B's bubble. A rank stores
/// the values of at most min(micro_batches, ranks) micro-batches.
/// @throws configuration_error for numbers below 1
inline pipeline_schedule zero_bubble_schedule(int ranks, int micro_batches) {
  detail::require_pipeline("zero_bubble_schedule", ranks, micro_batches);
  std::vector<std::vector<pipeline_action>> actions;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<pipeline_action>& mine = actions.emplace_back();
    int forwards = 0;
    int weights = 0;
    const auto forward = [&] { mine.push_back({pipeline_pass::forward, rank, forwards++}); };
    const auto weight_gradients = [&] { mine.push_back({pipeline_pass::weight_gradients, rank, weights++}); };
    while (forwards < std::min(micro_batches, ranks - rank)) {
      forward();
    }
    for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      mine.push_back({pipeline_pass::input_gradients, rank, micro_batch});
      if (micro_batch - weights >= rank) {  // later ranks have their gaps later
        weight_gradients();
      }
      if (forwards < micro_batches) {
        forward();
      }
    }
    while (weights < micro_batches) {
      weight_gradients();
    }
  }
  return {"zero_bubble", ranks, micro_batches, std::move(actions)};
}

}  // namespace gradus::parallel
