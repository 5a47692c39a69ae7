// SPDX-License-Identifier: BSL-1.0
//
// The stages of a training, the bubbles of their ranks, and the causes, by simulating the schedule.
#include "pipeline.hpp"

#include <algorithm>  // std::clamp, std::lower_bound, std::max, std::min, std::sort
#include <map>        // std::map
#include <set>        // std::set
#include <utility>    // std::move, std::pair

#include "pipeline_model.hpp"
#include "pipeline_passes.hpp"

namespace gradus::report::detail {
namespace {

using parallel::pipeline_pass;

/// The ranks that run other stages than a rank: those it exchanges values and gradients with.
class neighbours {
 public:
  neighbours(int ranks, const pipeline_passes& all) : positions_(static_cast<std::size_t>(ranks), -1) {
    for (std::size_t position = 0; position < all.positions.size(); ++position) {
      for (const std::size_t index : all.positions[position]) {
        positions_[static_cast<std::size_t>(all.ranks[index].rank)] = static_cast<int>(position);
      }
    }
  }
  /// -1: runs no stage
  int position_of(int rank) const { return positions_[static_cast<std::size_t>(rank)]; }
  /// The message is one between stages.
  bool is_between_stages(int rank, const label& its) const {
    return its.point_to_point() && position_of(rank) >= 0 && position_of(its.peer) >= 0 &&
           position_of(rank) != position_of(its.peer);
  }

 private:
  std::vector<int> positions_;
};

/// When a rank stands still in its steps for messages between stages.
intervals waits_of(const trace& from, int rank, const activity_line& line, const neighbours& near,
                   const intervals& steps) {
  std::set<std::string> names;
  intervals under_way, passes, named, unnamed;
  for (const span& each : from.track(rank, tracks::communicate)) {
    const label& its = from.labels[each.label];
    if (near.is_between_stages(rank, its)) {
      names.insert(its.bucket);
      under_way.push_back({each.start, each.end()});
    }
  }
  under_way = unite(std::move(under_way));
  for (const span& each : from.track(rank, tracks::step)) {
    const label& its = from.labels[each.label];
    if (its.is_pass()) {
      passes.push_back({each.start, each.end()});
    } else if (its.what == category::wait) {
      if (its.waits_for.empty()) {
        unnamed.push_back({each.start, each.end()});
      } else if (names.count(its.waits_for) != 0) {
        named.push_back({each.start, each.end()});
      }
    }
  }
  // Standing still in a transfer has no span of its own.
  for (const interval& each : line.when({activity::communicate})) {
    unnamed.push_back(each);
  }
  for (const interval& each : intersect(unite(std::move(unnamed)), under_way)) {
    named.push_back(each);
  }
  const intervals still = intersect(line.when({activity::wait, activity::communicate}), steps);
  return subtract(intersect(still, unite(std::move(named))), unite(std::move(passes)));
}

/// The first and the last layer that ran inside a stage's forward pass of a micro-batch, and how many did.
void find_layers(const trace& from, int rank, const recorded_pass& pass, stage_figures& stage) {
  const std::vector<span>& spans = from.track(rank, tracks::compute);
  auto each = std::lower_bound(spans.begin(), spans.end(), pass.begin,
                               [](const span& one, double time) { return one.start < time; });
  for (; each != spans.end() && each->start < pass.end; ++each) {
    const label& its = from.labels[each->label];
    const std::string& name = its.layer.empty() ? its.name : its.layer;
    if (stage.layers == 0) {
      stage.first_layer = name;
    }
    stage.last_layer = name;
    ++stage.layers;
  }
}

/// Waiting of one rank or of one position in all replicas, microseconds over all its steps.
struct waiting {
  double step_time = 0, all = 0, filling = 0, unequal = 0;

  void operator+=(const waiting& other) {
    step_time += other.step_time;
    all += other.all;
    filling += other.filling;
    unequal += other.unequal;
  }
  bubble_figures shares() const {
    if (step_time <= 0) {
      return {};
    }
    const double parts = std::min(all, filling + unequal);
    return {all / step_time, filling / step_time, unequal / step_time, (all - parts) / step_time};
  }
};

class pipeline_finder {
 public:
  pipeline_finder(const trace& from, pipeline_passes& all, const stage_waits& waits, pipeline_figures& result)
      : from_{from}, all_{all}, waits_{waits}, result_{result}, by_rank_(all.ranks.size()) {}

  void find(const arrivals& arrived, const neighbours& near) {
    result_.micro_batches = all_.micro_batches;
    result_.left_out = all_.left_out;
    result_.ranks_of_replica = static_cast<int>(all_.positions.size());
    result_.stages_per_rank = all_.stages_per_rank;
    result_.replicas = static_cast<int>(all_.positions[0].size());
    for (const std::vector<std::size_t>& members : all_.positions) {
      result_.replicas = std::min(result_.replicas, static_cast<int>(members.size()));
    }
    for (const rank_passes& rank : all_.ranks) {
      result_.steps = std::max(result_.steps, static_cast<std::int64_t>(rank.steps.size()));
    }
    find_stages();
    measure();
    if (all_.regular) {
      schedule_ = find_schedule(all_, result_.splits_backward);
    }
    if (schedule_.made) {
      result_.schedule = schedule_.made->name();
      explain();
    }
    fill();
    choose_worst();
    find_cuts(arrived, near);
  }

 private:
  void find_stages() {
    std::map<int, std::pair<stage_figures, pass_times>> stages;
    for (const rank_passes& rank : all_.ranks) {
      for (const auto& [number, times] : rank.by_stage) {
        auto& [its, sums] = stages[number];
        its.stage = number;
        its.ranks.push_back(rank.rank);
        for (std::size_t k = 0; k < times.size(); ++k) {
          sums[k].sum += times[k].sum;
          sums[k].count += times[k].count;
        }
      }
      for (const recorded_pass& each : rank.steps[0].passes) {
        stage_figures& its = stages[each.action.stage].first;
        if (each.action.pass == pipeline_pass::forward && each.action.micro_batch == 0 && its.layers == 0) {
          find_layers(from_, rank.rank, each, its);
        }
      }
    }
    for (auto& [number, both] : stages) {
      auto& [its, sums] = both;
      its.forward = of(sums, pipeline_pass::forward).mean();
      its.input_gradients = of(sums, pipeline_pass::input_gradients).mean();
      its.weight_gradients = of(sums, pipeline_pass::weight_gradients).mean();
      its.backward = of(sums, pipeline_pass::backward).mean() + its.input_gradients + its.weight_gradients;
      result_.splits_backward = result_.splits_backward || of(sums, pipeline_pass::input_gradients).count > 0;
      result_.stages.push_back(std::move(its));
    }
  }

  /// How long ranks stand still in the steps that count.
  void measure() {
    for (std::size_t i = 0; i < all_.ranks.size(); ++i) {
      const rank_passes& rank = all_.ranks[i];
      intervals steps;
      for (const recorded_step& each : rank.steps) {
        steps.push_back({each.begin, each.end});
      }
      by_rank_[i].step_time = rank.step_time;
      by_rank_[i].all = length(intersect(waits_[static_cast<std::size_t>(rank.rank)], unite(std::move(steps))));
    }
  }

  /// The parts of the bubbles, replica by replica. What the simulation waits more than the rank did is left out.
  void explain() {
    for (std::size_t replica = 0; replica < all_.positions[0].size(); ++replica) {
      stage_costs costs{all_};
      for (const std::vector<std::size_t>& members : all_.positions) {
        costs.add(all_.ranks[members[replica]]);
      }
      const std::vector<double> equal = waits_in(*schedule_.made, costs.equal());
      const std::vector<double> measured = waits_in(*schedule_.made, costs.measured());
      for (std::size_t position = 0; position < all_.positions.size(); ++position) {
        const std::size_t index = all_.positions[position][replica];
        const double steps = all_.ranks[index].steps_count();
        waiting& its = by_rank_[index];
        its.filling = std::min(its.all, steps * std::min(equal[position], measured[position]));
        its.unequal = std::min(its.all - its.filling, steps * std::max(0.0, measured[position] - equal[position]));
      }
    }
  }

  void fill() {
    by_position_.resize(all_.positions.size());
    for (std::size_t position = 0; position < all_.positions.size(); ++position) {
      for (const std::size_t index : all_.positions[position]) {
        by_position_[position] += by_rank_[index];
      }
    }
    std::map<int, std::pair<double, double>> computes;  // by stage: inside passes, and the time of the steps
    for (std::size_t position = 0; position < all_.positions.size(); ++position) {
      int replica = 0;
      for (const std::size_t index : all_.positions[position]) {
        const rank_passes& rank = all_.ranks[index];
        for (const auto& [stage, times] : rank.by_stage) {
          for (const mean_time& each : times) {
            computes[stage].first += each.sum;
          }
          computes[stage].second += rank.step_time;
          stage_of(stage).bubble = by_position_[position].shares();
        }
        result_.ranks.push_back({rank.rank, replica++, rank.stages, static_cast<std::int64_t>(rank.steps.size()),
                                 rank.step_time, part_of(rank.computes, rank.step_time), by_rank_[index].shares()});
      }
    }
    for (const auto& [stage, times] : computes) {
      stage_of(stage).computes = part_of(times.first, times.second);
    }
    std::sort(result_.ranks.begin(), result_.ranks.end(),
              [](const stage_rank_figures& a, const stage_rank_figures& b) { return a.rank < b.rank; });
  }
  static double part_of(double time, double steps) { return steps > 0 ? time / steps : 0; }
  stage_figures& stage_of(int stage) {
    return *std::lower_bound(result_.stages.begin(), result_.stages.end(), stage,
                             [](const stage_figures& its, int number) { return its.stage < number; });
  }

  /// The position with the largest bubble: an example, and what more micro-batches would do.
  void choose_worst() {
    for (std::size_t position = 1; position < by_position_.size(); ++position) {
      if (by_position_[position].shares().all > by_position_[result_.worst].shares().all) {
        result_.worst = position;
      }
    }
    result_.worst_bubble = by_position_[result_.worst].shares();
    const rank_passes& rank = all_.ranks[all_.positions[result_.worst][0]];
    std::vector<interval> steps;
    for (const recorded_step& each : rank.steps) {
      steps.push_back({each.begin, each.end});
    }
    std::sort(steps.begin(), steps.end(), [](const interval& a, const interval& b) {
      return a.end - a.begin != b.end - b.begin ? a.end - a.begin < b.end - b.begin : a.begin < b.begin;
    });
    result_.example_rank = rank.rank;
    result_.example_begin = steps[steps.size() / 2].begin;
    result_.example_end = steps[steps.size() / 2].end;
    if (schedule_.rule != nullptr) {
      predict();
    }
  }

  /// The same batch in more micro-batches: a pass takes less in the same ratio. What the simulation explains changes as
  /// the simulation does, and the rest stays.
  void predict() {
    stage_costs costs{all_};
    for (const rank_passes& rank : all_.ranks) {
      costs.add(rank);
    }
    const waiting& its = by_position_[result_.worst];
    const double now = waits_in(*schedule_.made, costs.measured())[result_.worst];
    const double explained = std::min(its.all, its.filling + its.unequal);
    if (now <= 0 || its.step_time <= 0) {
      return;
    }
    for (const int factor : {2, 4, 8}) {
      const int more = factor * all_.micro_batches;
      if (!may_simulate(result_.ranks_of_replica, all_.stages_per_rank, more) ||
          (from_.batch_size > 0 && more > from_.batch_size)) {
        return;
      }
      const parallel::pipeline_schedule schedule =
          schedule_.rule->make(result_.ranks_of_replica, more, all_.stages_per_rank);
      const double then = waits_in(schedule, costs.measured(1.0 / factor))[result_.worst];
      const double bubble = explained * then / now + its.all - explained;
      result_.predictions.push_back({more, bubble / (its.step_time - its.all + bubble)});
      if (result_.predictions.back().bubble < few_bubbles) {
        return;
      }
    }
  }

  /// The messages that ranks receive from other stages in the steps that count.
  void find_cuts(const arrivals& arrived, const neighbours& near) {
    std::map<std::pair<int, int>, cut_figures> cuts;
    double steps = 0;
    for (const rank_passes& rank : all_.ranks) {
      steps += rank.steps_count() / static_cast<double>(all_.positions.size());
      const std::vector<span>& spans = from_.track(rank.rank, tracks::communicate);
      std::size_t step = 0;
      for (std::size_t i = 0; i < spans.size(); ++i) {
        const label& its = from_.labels[spans[i].label];
        while (step < rank.steps.size() && rank.steps[step].end <= spans[i].start) {
          ++step;
        }
        if (step == rank.steps.size() || spans[i].start < rank.steps[step].begin || !its.incoming() ||
            !near.is_between_stages(rank.rank, its)) {
          continue;
        }
        const int own = near.position_of(rank.rank), other = near.position_of(its.peer);
        cut_figures& cut = cuts[{std::min(own, other), std::max(own, other)}];
        const arrival& sent = arrived[static_cast<std::size_t>(rank.rank)][i];
        cut.messages += 1;
        cut.bytes += static_cast<double>(std::max<std::int64_t>(its.bytes, 0));
        cut.time += spans[i].end() -
                    (sent.last_rank >= 0 ? std::clamp(sent.time, spans[i].start, spans[i].end()) : spans[i].start);
      }
    }
    for (auto& [positions, cut] : cuts) {
      result_.cuts.push_back(
          {positions.first, positions.second, cut.messages / steps, cut.bytes / steps, cut.time / steps});
    }
  }

  const trace& from_;
  pipeline_passes& all_;
  const stage_waits& waits_;
  pipeline_figures& result_;
  found_schedule schedule_;
  std::vector<waiting> by_rank_;  // by index in all_.ranks
  std::vector<waiting> by_position_;
};

}  // namespace

stage_waits find_pipeline(const trace& from, const std::vector<activity_line>& lines, const arrivals& arrived,
                          analysis& result) {
  pipeline_passes all = find_passes(from, lines, result.steps);
  result.pipeline.left_out = all.left_out;
  if (all.ranks.empty()) {
    return {};
  }
  const neighbours near{from.ranks, all};
  stage_waits waits(static_cast<std::size_t>(from.ranks));
  std::vector<intervals> steps(waits.size());
  for (const step_figures& each : result.steps) {
    steps[static_cast<std::size_t>(each.rank)].push_back({each.begin, each.end});
  }
  for (const rank_passes& each : all.ranks) {
    const auto rank = static_cast<std::size_t>(each.rank);
    waits[rank] = waits_of(from, each.rank, lines[rank], near, unite(std::move(steps[rank])));
    result.ranks[rank].waits_for_stages = length(waits[rank]);
  }
  pipeline_finder{from, all, waits, result.pipeline}.find(arrived, near);
  return waits;
}

}  // namespace gradus::report::detail
