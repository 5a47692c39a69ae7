// SPDX-License-Identifier: BSL-1.0
//
// Finds the passes of stages in a trace.
#include "pipeline_passes.hpp"

#include <algorithm>  // std::max, std::min
#include <utility>    // std::move

namespace gradus::report::detail {
namespace {

using parallel::pipeline_pass;

pipeline_pass pass_of(const label& its) {
  return its.what == category::forward        ? pipeline_pass::forward
         : its.name == "gradients of inputs"  ? pipeline_pass::input_gradients
         : its.name == "gradients of weights" ? pipeline_pass::weight_gradients
                                              : pipeline_pass::backward;
}

/// What the program computes inside a pass: the sums of gradients that it exchanges there are no part of the pass.
double computes_in(const activity_line& line, const span& pass) {
  const times inside = line.between(pass.start, pass.end());
  return of(inside, activity::forward) + of(inside, activity::backward);
}

/// The passes inside each step. What begins inside another pass is a part of it.
std::vector<recorded_step> passes_of(const trace& from, int rank, const activity_line& line,
                                     const std::vector<step_figures>& steps) {
  constexpr double rounding = 0.01;  // microseconds: times of a file have three digits
  std::vector<recorded_step> result;
  double end_of_last = 0;
  std::size_t next = 0;
  for (const span& each : from.track(rank, tracks::step)) {
    const label& its = from.labels[each.label];
    if (!its.is_pass() || each.start < end_of_last - rounding) {
      continue;
    }
    while (next < steps.size() && steps[next].end <= each.start + rounding) {
      ++next;
    }
    if (next == steps.size() || each.start < steps[next].begin - rounding || each.end() > steps[next].end + rounding) {
      continue;
    }
    end_of_last = each.end();
    if (result.empty() || result.back().begin != steps[next].begin) {
      result.push_back({steps[next].begin, steps[next].end, {}, 0});
    }
    result.back().passes.push_back(
        {each.start, each.end(), computes_in(line, each), {pass_of(its), its.stage, its.micro_batch}});
  }
  return result;
}

/// By stage, how many passes of each kind.
std::map<int, std::array<int, 4>> count_passes(const recorded_step& step) {
  std::map<int, std::array<int, 4>> counts;
  for (const recorded_pass& each : step.passes) {
    ++counts[each.action.stage][static_cast<std::size_t>(each.action.pass)];
  }
  return counts;
}

/// The number of micro-batches, if all stages have all their passes, otherwise 0.
int micro_batches_of(const std::map<int, std::array<int, 4>>& counts) {
  const auto of_it = [](const std::array<int, 4>& all, pipeline_pass which) {
    return all[static_cast<std::size_t>(which)];
  };
  const int forwards = counts.empty() ? 0 : of_it(counts.begin()->second, pipeline_pass::forward);
  for (const auto& [stage, all] : counts) {
    const int inputs = of_it(all, pipeline_pass::input_gradients);
    if (of_it(all, pipeline_pass::forward) != forwards || of_it(all, pipeline_pass::weight_gradients) != inputs ||
        of_it(all, pipeline_pass::backward) + inputs != forwards) {
      return 0;
    }
  }
  return forwards;
}

int most_frequent(const std::vector<rank_passes>& ranks) {
  std::map<int, std::size_t> counts;
  for (const rank_passes& rank : ranks) {
    for (const recorded_step& each : rank.steps) {
      ++counts[each.micro_batches];
    }
  }
  int result = 0;
  std::size_t most = 0;
  for (const auto& [micro_batches, count] : counts) {
    if (micro_batches > 0 && count >= most) {
      most = count;
      result = micro_batches;
    }
  }
  return result;
}

/// Keeps the steps that count, and adds up their times.
void keep_regular(rank_passes& rank, int micro_batches, std::int64_t& left_out) {
  std::vector<recorded_step> kept;
  for (recorded_step& each : rank.steps) {
    if (each.micro_batches == micro_batches && micro_batches > 0) {
      kept.push_back(std::move(each));
    } else {
      ++left_out;
    }
  }
  rank.steps = std::move(kept);
  for (const recorded_step& step : rank.steps) {
    rank.step_time += step.end - step.begin;
    for (const recorded_pass& each : step.passes) {
      mean_time& its = rank.by_stage[each.action.stage][static_cast<std::size_t>(each.action.pass)];
      its.sum += each.computes;
      its.count += 1;
      rank.computes += each.computes;
    }
  }
  for (const auto& [stage, times] : rank.by_stage) {
    rank.stages.push_back(stage);
  }
}

/// Ranks with the same stages are at the same position of different replicas.
void find_positions(pipeline_passes& all) {
  std::map<std::vector<int>, std::vector<std::size_t>> groups;
  std::map<int, int> stages;
  for (std::size_t i = 0; i < all.ranks.size(); ++i) {
    groups[all.ranks[i].stages].push_back(i);
    for (const int stage : all.ranks[i].stages) {
      stages[stage] = 1;
    }
  }
  all.stages = static_cast<int>(stages.size());
  for (auto& [own, members] : groups) {
    all.positions.push_back(std::move(members));
  }
  const std::size_t ranks = all.positions.size(), replicas = all.positions[0].size();
  const std::size_t per_rank = all.ranks[all.positions[0][0]].stages.size();
  all.stages_per_rank = static_cast<int>(per_rank);
  all.regular = true;
  for (std::size_t position = 0; position < ranks && all.regular; ++position) {
    const std::vector<int>& own = all.ranks[all.positions[position][0]].stages;
    all.regular = all.positions[position].size() == replicas && own.size() == per_rank;
    for (std::size_t k = 0; k < own.size() && all.regular; ++k) {
      all.regular = static_cast<std::size_t>(own[k]) == position + k * ranks;
    }
  }
}

}  // namespace

pipeline_passes find_passes(const trace& from, const std::vector<activity_line>& lines,
                            const std::vector<step_figures>& steps) {
  pipeline_passes result;
  std::vector<std::vector<step_figures>> steps_of(static_cast<std::size_t>(from.ranks));
  for (const step_figures& each : steps) {
    steps_of[static_cast<std::size_t>(each.rank)].push_back(each);
  }
  for (int rank = 0; rank < from.ranks; ++rank) {
    rank_passes next;
    next.rank = rank;
    const auto index = static_cast<std::size_t>(rank);
    next.steps = passes_of(from, rank, lines[index], steps_of[index]);
    for (recorded_step& each : next.steps) {
      each.micro_batches = micro_batches_of(count_passes(each));
    }
    if (!next.steps.empty()) {
      result.ranks.push_back(std::move(next));
    }
  }
  result.micro_batches = most_frequent(result.ranks);
  std::vector<rank_passes> kept;
  for (rank_passes& each : result.ranks) {
    keep_regular(each, result.micro_batches, result.left_out);
    if (!each.steps.empty()) {
      kept.push_back(std::move(each));
    }
  }
  result.ranks = std::move(kept);
  if (!result.ranks.empty()) {
    find_positions(result);
  }
  return result;
}

}  // namespace gradus::report::detail
