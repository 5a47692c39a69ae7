// SPDX-License-Identifier: BSL-1.0
//
// Simulates pipelines with the library's own schedules.
#include "pipeline_model.hpp"

#include <algorithm>  // std::max
#include <utility>    // std::move

#include "gradus/core/error.hpp"

namespace gradus::report::detail {

using parallel::pipeline_costs;
using parallel::pipeline_pass;
using parallel::pipeline_schedule;

bool may_simulate(int ranks, int stages_per_rank, int micro_batches) {
  constexpr int most = 1 << 15;            // of each number: schedules have no more
  constexpr double most_passes = 1 << 20;  // their memory
  constexpr double most_visits = 1 << 24;  // ranks are asked in turn whether they can go on
  const double passes = static_cast<double>(ranks) * stages_per_rank * micro_batches;
  return ranks <= most && stages_per_rank <= most && micro_batches <= most && passes <= most_passes &&
         passes * ranks <= most_visits;
}

found_schedule find_schedule(const pipeline_passes& all, bool splits_backward) {
  found_schedule result;
  const auto ranks = static_cast<int>(all.positions.size());
  if (!may_simulate(ranks, all.stages_per_rank, all.micro_batches)) {
    return result;
  }
  std::vector<std::vector<parallel::pipeline_action>> recorded;
  for (const std::vector<std::size_t>& members : all.positions) {
    recorded.emplace_back();
    for (const recorded_pass& each : all.ranks[members[0]].steps[0].passes) {
      recorded.back().push_back(each.action);
    }
  }
  // The default first: with few micro-batches several rules make the same order.
  std::vector<const parallel::pipeline_rule*> rules{&parallel::one_f_one_b};
  for (const parallel::pipeline_rule& each : parallel::pipeline_rules) {
    if (each != parallel::one_f_one_b) {
      rules.push_back(&each);
    }
  }
  for (const parallel::pipeline_rule* const rule : rules) {
    if (rule->splits_backward != splits_backward || (all.stages_per_rank > 1 && *rule != parallel::one_f_one_b)) {
      continue;
    }
    pipeline_schedule made = rule->make(ranks, all.micro_batches, all.stages_per_rank);
    bool same = true;
    for (int rank = 0; rank < ranks && same; ++rank) {
      same = made.of_rank(rank) == recorded[static_cast<std::size_t>(rank)];
    }
    if (same) {
      return {rule, std::move(made)};
    }
  }
  pipeline_schedule own{recorded_schedule, all.stages, all.micro_batches, std::move(recorded)};
  try {
    static_cast<void>(parallel::simulate_schedule(own));
    result.made = std::move(own);
  } catch (const error&) {  // a pass is there twice, or ranks would wait for each other forever
  }
  return result;
}

void stage_costs::add(const rank_passes& rank) {
  for (const auto& [stage, times] : rank.by_stage) {
    for (std::size_t k = 0; k < times.size(); ++k) {
      sums_[static_cast<std::size_t>(stage)][k].sum += times[k].sum;
      sums_[static_cast<std::size_t>(stage)][k].count += times[k].count;
    }
  }
}

std::vector<pipeline_costs> stage_costs::measured(double factor) const {
  std::vector<pipeline_costs> result;
  for (const pass_times& each : sums_) {
    const double whole = of(each, pipeline_pass::backward).mean();
    result.push_back({.forward = factor * of(each, pipeline_pass::forward).mean(),
                      .input_gradients = factor * (whole + of(each, pipeline_pass::input_gradients).mean()),
                      .weight_gradients = factor * of(each, pipeline_pass::weight_gradients).mean(),
                      .transfer = 0});
  }
  return result;
}

std::vector<pipeline_costs> stage_costs::equal() const {
  std::vector<pipeline_costs> result = measured();
  pipeline_costs mean{.forward = 0, .input_gradients = 0, .weight_gradients = 0, .transfer = 0};
  const auto count = static_cast<double>(result.size());
  for (const pipeline_costs& each : result) {
    mean.forward += each.forward / count;
    mean.input_gradients += each.input_gradients / count;
    mean.weight_gradients += each.weight_gradients / count;
  }
  return std::vector<pipeline_costs>(result.size(), mean);
}

std::vector<double> waits_in(const pipeline_schedule& schedule, const std::vector<pipeline_costs>& costs) {
  const parallel::simulated_pipeline done = parallel::simulate_schedule(schedule, costs);
  std::vector<double> result;
  for (const auto& spans : done.ranks) {
    double busy = 0;
    for (const parallel::pipeline_span& each : spans) {
      busy += each.end - each.begin;
    }
    result.push_back(std::max(0.0, done.makespan - busy));
  }
  return result;
}

}  // namespace gradus::report::detail
