// SPDX-License-Identifier: BSL-1.0
//
// A pipeline schedule run without a network: is it complete, does it end, how long does it take, what does it store?
#pragma once

#include <algorithm>    // std::max
#include <array>        // std::array
#include <cmath>        // std::lround
#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/text.hpp"
#include "gradus/pipeline/schedule.hpp"

namespace gradus::parallel {

/// What the passes of one micro-batch through a stage take, in seconds or any other unit of time.
struct pipeline_costs {
  double forward = 1;           ///< all layers of the stage
  double input_gradients = 1;   ///< the first half of backward
  double weight_gradients = 1;  ///< the second half of backward
  double transfer = 0;          ///< of values to the next stage, or of gradients back: from pass to pass

  /// Of one pass.
  [[nodiscard]] double of(pipeline_pass pass) const noexcept {
    switch (pass) {
      case pipeline_pass::forward:
        return forward;
      case pipeline_pass::input_gradients:
        return input_gradients;
      case pipeline_pass::weight_gradients:
        return weight_gradients;
      case pipeline_pass::backward:
        break;
    }
    return input_gradients + weight_gradients;
  }
};

/// When an action runs.
struct pipeline_span {
  pipeline_action action;  ///< what runs
  double begin = 0;        ///< in the unit of the costs
  double end = 0;          ///< likewise
};

/// The result of simulate_schedule.
struct simulated_pipeline {
  double makespan = 0;                            ///< until the last rank has ended
  double bubble = 0;                              ///< the share of ranks x makespan in which ranks wait, 0 to 1
  std::vector<int> stored;                        ///< most micro-batches whose values each stage stores at a time
  std::vector<std::vector<pipeline_span>> ranks;  ///< the actions of each rank
};

namespace detail {

/// "backward of micro-batch 2 in stage 1".
inline std::string action_text(const pipeline_action& action) {
  constexpr std::array<std::string_view, 4> names{"forward", "backward", "input_gradients", "weight_gradients"};
  return join({names[static_cast<std::size_t>(action.pass)], " of micro-batch ", action.micro_batch, " in stage ",
               action.stage});
}

/// When each pass of each micro-batch in each stage has ended; below 0: not yet.
class pipeline_progress {
 public:
  explicit pipeline_progress(const pipeline_schedule& schedule)
      : stages_{schedule.stages()},
        micro_batches_{schedule.micro_batches()},
        ends_(4 * static_cast<std::size_t>(stages_) * static_cast<std::size_t>(micro_batches_), -1.0) {}

  [[nodiscard]] bool covers(const pipeline_action& action) const noexcept {
    return static_cast<std::size_t>(action.pass) < 4 && action.stage >= 0 && action.stage < stages_ &&
           action.micro_batch >= 0 && action.micro_batch < micro_batches_;
  }

  [[nodiscard]] double& end_of(const pipeline_action& action) noexcept {
    const auto stage = static_cast<std::size_t>(action.stage);
    const std::size_t index =
        stage * static_cast<std::size_t>(micro_batches_) + static_cast<std::size_t>(action.micro_batch);
    return ends_[4 * index + static_cast<std::size_t>(action.pass)];
  }
  [[nodiscard]] bool done(const pipeline_action& action) noexcept { return end_of(action) >= 0; }

  /// The end of the gradients of the stage's inputs, split or not.
  [[nodiscard]] double input_gradients(int stage, int micro_batch) noexcept {
    return std::max(end_of({pipeline_pass::backward, stage, micro_batch}),
                    end_of({pipeline_pass::input_gradients, stage, micro_batch}));
  }

  /// The earliest time at which an action may begin; below 0 when something that it needs has not ended.
  /// @param costs    of each stage
  /// @param missing  then set to what it needs
  [[nodiscard]] double ready(const pipeline_action& action, std::span<const pipeline_costs> costs,
                             pipeline_action& missing) noexcept {
    double time = 0;
    const auto needs = [&](double end, double more, const pipeline_action& what) {
      if (time >= 0 && end < 0) {
        missing = what;
      }
      time = time < 0 || end < 0 ? -1.0 : std::max(time, end + more);
    };
    const int stage = action.stage;
    const int micro_batch = action.micro_batch;
    const auto transfer_behind = [&](int first) { return costs[static_cast<std::size_t>(first)].transfer; };
    switch (action.pass) {
      case pipeline_pass::forward:
        if (stage > 0) {
          const pipeline_action before{pipeline_pass::forward, stage - 1, micro_batch};
          needs(end_of(before), transfer_behind(stage - 1), before);
        }
        break;
      case pipeline_pass::weight_gradients: {
        const pipeline_action before{pipeline_pass::input_gradients, stage, micro_batch};
        needs(end_of(before), 0, before);
        break;
      }
      case pipeline_pass::backward:
      case pipeline_pass::input_gradients: {
        const pipeline_action own{pipeline_pass::forward, stage, micro_batch};
        needs(end_of(own), 0, own);
        if (stage + 1 < stages_) {
          needs(input_gradients(stage + 1, micro_batch), transfer_behind(stage),
                {pipeline_pass::backward, stage + 1, micro_batch});
        }
        break;
      }
    }
    return time;
  }

 private:
  int stages_;
  int micro_batches_;
  std::vector<double> ends_;
};

/// A simulation on its way.
class pipeline_run {
 public:
  pipeline_run(const pipeline_schedule& schedule, std::span<const pipeline_costs> costs)
      : schedule_{schedule},
        costs_{costs},
        operation_{join({"pipeline schedule '", schedule.name(), "'"})},
        progress_{schedule},
        holding_(static_cast<std::size_t>(schedule.stages()), 0) {
    result_.stored.assign(holding_.size(), 0);
    result_.ranks.resize(static_cast<std::size_t>(schedule.ranks()));
    next_.assign(result_.ranks.size(), 0);
    if (costs.size() != holding_.size()) {
      raise<configuration_error>(operation_, {"the times of ", holding_.size(), " stages"}, {costs.size()});
    }
    for (const pipeline_costs& each : costs) {
      const double times[] = {each.forward, each.input_gradients, each.weight_gradients, each.transfer};
      for (const double time : times) {
        if (!is_finite(time) || time < 0) {
          raise<configuration_error>(operation_, "times of at least 0", {time});
        }
      }
    }
  }

  simulated_pipeline run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int rank = 0; rank < schedule_.ranks(); ++rank) {
        while (advance(rank)) {
          moved = true;
        }
      }
    }
    require_end();
    double busy = 0;
    for (const auto& spans : result_.ranks) {
      for (const pipeline_span& each : spans) {
        busy += each.end - each.begin;
        result_.makespan = std::max(result_.makespan, each.end);
      }
    }
    const double all = result_.makespan * static_cast<double>(result_.ranks.size());
    result_.bubble = all > 0 ? std::max(0.0, 1 - busy / all) : 0.0;
    count_stored();
    return std::move(result_);
  }

 private:
  /// Runs the next action of a rank, if there is one and it may begin.
  bool advance(int rank) {
    std::size_t& next = next_[static_cast<std::size_t>(rank)];
    auto& spans = result_.ranks[static_cast<std::size_t>(rank)];
    const auto& actions = schedule_.of_rank(rank);
    if (next == actions.size()) {
      return false;
    }
    const pipeline_action& action = actions[next];
    require_valid(action, rank);
    pipeline_action missing;
    const double ready = progress_.ready(action, costs_, missing);
    if (ready < 0) {
      return false;
    }
    const double begin = std::max(ready, spans.empty() ? 0.0 : spans.back().end);
    const double end = begin + costs_[static_cast<std::size_t>(action.stage)].of(action.pass);
    progress_.end_of(action) = end;
    spans.push_back({action, begin, end});
    ++next;
    return true;
  }

  void require_valid(const pipeline_action& action, int rank) {
    if (!progress_.covers(action) || schedule_.rank_of(action.stage) != rank) {
      raise<configuration_error>(operation_,
                                 {"stages 0 to ", schedule_.stages() - 1, ", each on rank stage mod ",
                                  schedule_.ranks(), ", and micro-batches 0 to ", schedule_.micro_batches() - 1},
                                 {action_text(action), " on rank ", rank});
    }
    const bool again = progress_.done(action) ||
                       ((action.pass == pipeline_pass::backward || action.pass == pipeline_pass::input_gradients) &&
                        progress_.input_gradients(action.stage, action.micro_batch) >= 0);
    if (again) {
      raise<configuration_error>(operation_, "each pass once", {action_text(action), " twice"});
    }
  }

  /// All ranks are at their end, and everything is there.
  void require_end() {
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      const auto& actions = schedule_.of_rank(rank);
      if (const std::size_t next = next_[static_cast<std::size_t>(rank)]; next < actions.size()) {
        pipeline_action missing;
        static_cast<void>(progress_.ready(actions[next], costs_, missing));
        raise<configuration_error>(operation_, "an order in which no rank waits forever",
                                   {"rank ", rank, " waiting at ", action_text(actions[next]), " for ",
                                    action_text(missing), " on rank ", schedule_.rank_of(missing.stage)});
      }
    }
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      for (int micro_batch = 0; micro_batch < schedule_.micro_batches(); ++micro_batch) {
        require_done({pipeline_pass::forward, stage, micro_batch});
        if (!progress_.done({pipeline_pass::backward, stage, micro_batch})) {
          require_done({pipeline_pass::input_gradients, stage, micro_batch});
          require_done({pipeline_pass::weight_gradients, stage, micro_batch});
        }
      }
    }
  }

  void require_done(const pipeline_action& action) {
    if (!progress_.done(action)) {
      raise<configuration_error>(operation_, "all passes of all micro-batches", {"no ", action_text(action)});
    }
  }

  /// In the order of each rank: what a stage stores does not depend on the times.
  void count_stored() {
    for (const auto& spans : result_.ranks) {
      for (const pipeline_span& each : spans) {
        const auto stage = static_cast<std::size_t>(each.action.stage);
        if (each.action.pass == pipeline_pass::forward) {
          result_.stored[stage] = std::max(result_.stored[stage], ++holding_[stage]);
        } else if (each.action.pass != pipeline_pass::input_gradients) {
          --holding_[stage];
        }
      }
    }
  }

  const pipeline_schedule& schedule_;
  std::span<const pipeline_costs> costs_;
  std::string operation_;
  pipeline_progress progress_;
  std::vector<int> holding_;
  std::vector<std::size_t> next_;
  simulated_pipeline result_;
};

}  // namespace detail

/// Runs a schedule in which each rank does one thing at a time, in its order, and sends never wait. What comes back is
/// complete: a schedule that is not, or that does not end, is an error.
/// @param costs  of each stage
/// @throws configuration_error  when an action is on the wrong rank or there twice, when one is missing, or when ranks
///         wait for each other forever: says which rank waits at which action for what; when a time is negative
inline simulated_pipeline simulate_schedule(const pipeline_schedule& schedule, std::span<const pipeline_costs> costs) {
  return detail::pipeline_run{schedule, costs}.run();
}
/// The same with the same times for every stage.
inline simulated_pipeline simulate_schedule(const pipeline_schedule& schedule, const pipeline_costs& costs = {}) {
  const std::vector<pipeline_costs> of_stages(static_cast<std::size_t>(std::max(schedule.stages(), 0)), costs);
  return simulate_schedule(schedule, of_stages);
}

/// A picture of a simulated schedule: a line for each rank and a column for each unit of time; F forward, B backward,
/// I gradients of the inputs, W of the weights, with the last digit of the micro-batch; dots where a rank waits.
/// @param unit  what one column takes; by default 1, as the passes of pipeline_costs{}
inline std::string schedule_picture(const simulated_pipeline& simulated, double unit = 1) {
  std::string text;
  const auto columns = [&](double time) { return static_cast<std::size_t>(std::lround(time / unit)); };
  for (std::size_t rank = 0; rank < simulated.ranks.size(); ++rank) {
    std::string line(2 * columns(simulated.makespan), '.');
    for (const pipeline_span& each : simulated.ranks[rank]) {
      constexpr std::string_view letters = "FBIW";
      for (std::size_t column = columns(each.begin); column < columns(each.end); ++column) {
        line[2 * column] = letters[static_cast<std::size_t>(each.action.pass)];
        line[2 * column + 1] = static_cast<char>('0' + each.action.micro_batch % 10);
      }
    }
    append_text(text, {"rank ", rank, " ", line, "\n"});
  }
  return text;
}

}  // namespace gradus::parallel
