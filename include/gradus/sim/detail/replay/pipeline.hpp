// SPDX-License-Identifier: BSL-1.0
//
// Replays the schedule of a pipeline: passes of micro-batches, messages between stages, sums over replicas.
#pragma once

#include <algorithm>  // std::max, std::min
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint32_t
#include <map>        // std::map
#include <span>       // std::span
#include <utility>    // std::move, std::pair
#include <vector>     // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/parallel/bucket.hpp"
#include "gradus/pipeline/schedule.hpp"
#include "gradus/sim/cluster.hpp"
#include "gradus/sim/detail/replay/message_plan.hpp"
#include "gradus/sim/detail/replay/ports.hpp"
#include "gradus/sim/detail/replay/replay.hpp"
#include "gradus/sim/pipeline_training_options.hpp"
#include "gradus/sim/replayed_step.hpp"
#include "gradus/sim/workload.hpp"

namespace gradus::sim::detail {

/// Elements of the buckets into which the gradients of a rank of a pipeline are cut.
[[nodiscard]] inline std::vector<index_t> pipeline_buckets(const pipeline_training& how, int rank) {
  index_t elements = 0;
  for (int stage = rank; stage < how.schedule.stages(); stage += how.schedule.ranks()) {
    elements += how.stages[static_cast<std::size_t>(stage)].elements;
  }
  const index_t limit = how.gradients.gradients.bucket_bytes / how.element_bytes;
  const index_t count = limit < 1 || elements == 0 ? 1 : std::min<index_t>((elements + limit - 1) / limit, 64);
  std::vector<index_t> buckets;
  for (index_t i = 0; i < count && how.replicas > 1 && elements > 0; ++i) {
    buckets.push_back(elements * (i + 1) / count - elements * i / count);
  }
  return buckets;
}

/// Ranks that follow the schedule of a pipeline.
class pipeline_replay final : public replay {
 public:
  /// @param plans  of each rank of a replica, of the buckets of its gradients
  pipeline_replay(const cluster& of, const pipeline_training& how,
                  std::span<const std::vector<const message_plan*>> plans, int simulated, const replay_options& options)
      : replay{of, simulated},
        how_{&how},
        plans_{plans},
        options_{options},
        width_{how.schedule.ranks()},
        ranks_{how.schedule.ranks() * how.replicas},
        variation_{how.variation, options.seed},
        state_(static_cast<std::size_t>(simulated)) {
    const std::size_t slots = static_cast<std::size_t>(how.schedule.stages() / width_ + 1) *
                              static_cast<std::size_t>(how.schedule.micro_batches());
    for (rank_state& each : state_) {
      each.values.assign(slots, 0);
      each.gradients.assign(slots, 0);
      each.stored.assign(slots, 0);
    }
  }

  replayed_step run() {
    for (int rank = 0; rank < simulated(); ++rank) {
      begin_step(0, rank);
      go_on(0, rank);
    }
    run_events();
    for (int rank = 0; rank < simulated(); ++rank) {
      if (!of(rank).over) {
        raise<configuration_error>({"sim::pipeline_training, schedule '", how_->schedule.name(), "'"},
                                   "a schedule in which no rank waits for ever",
                                   {"rank ", rank, " waits with its action ", of(rank).next});
      }
    }
    return result();
  }

 private:
  enum message : std::uint32_t { value, gradient, kinds };
  enum clock_of : std::uint32_t { pass, update, bucket };

  struct rank_state {
    int step = -1;
    std::size_t next = 0;  // action
    bool computes = false;
    bool blocked = false;
    bool over = false;
    std::size_t summed = 0;  // buckets
    double factor = 1;
    double since = 0;
    double computing = 0;
    double computed = 0;
    double step_begin = 0;
    std::vector<int> values;     // of each chunk and micro-batch: steps whose values have come
    std::vector<int> gradients;  // likewise
    std::vector<int> stored;     // likewise: steps in which forward has run
    std::vector<double> bucket_begin;
    std::vector<double> step_ends;
    std::vector<double> step_computed;
    step_shares shares;
  };

  [[nodiscard]] rank_state& of(int rank) noexcept { return state_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int column(int rank) const noexcept { return rank % width_; }
  [[nodiscard]] const std::vector<parallel::pipeline_action>& actions(int rank) const noexcept {
    return how_->schedule.of_rank(column(rank));
  }
  [[nodiscard]] std::size_t slot(int stage, int micro_batch) const noexcept {
    return static_cast<std::size_t>(stage / width_) * static_cast<std::size_t>(how_->schedule.micro_batches()) +
           static_cast<std::size_t>(micro_batch);
  }
  [[nodiscard]] const stage_work& stage(int number) const noexcept {
    return how_->stages[static_cast<std::size_t>(number)];
  }
  [[nodiscard]] double counted(const rank_state& own, double seconds) const noexcept {
    return own.step > 0 || options_.steps == 1 ? seconds : 0.0;
  }
  [[nodiscard]] std::size_t buckets(int rank) const noexcept {
    return plans_[static_cast<std::size_t>(column(rank))].size();
  }

  void begin_step(double now, int rank) {
    rank_state& own = of(rank);
    ++own.step;
    own.step_begin = now;
    own.factor = simulated() < ranks_ ? variation_.largest(ranks_, own.step) : variation_.of(rank, own.step);
    own.next = 0;
    own.summed = 0;
    own.bucket_begin.assign(buckets(rank), 0);
  }

  /// Whether what an action needs has come.
  [[nodiscard]] bool may_begin(const rank_state& own, const parallel::pipeline_action& action) const noexcept {
    const std::size_t at = slot(action.stage, action.micro_batch);
    switch (action.pass) {
      case parallel::pipeline_pass::forward:
        return action.stage == 0 || own.values[at] > own.step;
      case parallel::pipeline_pass::weight_gradients:
        return own.stored[at] > own.step;
      case parallel::pipeline_pass::backward:
      case parallel::pipeline_pass::input_gradients:
        break;
    }
    return own.stored[at] > own.step && (action.stage + 1 == how_->schedule.stages() || own.gradients[at] > own.step);
  }

  void go_on(double now, int rank) {
    rank_state& own = of(rank);
    const auto& list = actions(rank);
    if (own.over || own.computes) {
      return;
    }
    if (own.next < list.size()) {
      const parallel::pipeline_action& action = list[own.next];
      if (!may_begin(own, action)) {
        return block(now, own);
      }
      unblock(now, own, rank);
      compute(now, rank, stage(action.stage).costs.of(action.pass), pass);
      if (own.next + 1 == list.size()) {  // gradients of the last pass come one bucket after another
        for (std::size_t i = 0; i < buckets(rank); ++i) {
          const double share = static_cast<double>(i + 1) / static_cast<double>(buckets(rank));
          timer(now + share * own.computing, rank, bucket + static_cast<std::uint32_t>(i));
        }
      }
      return;
    }
    if (own.summed < buckets(rank)) {
      return block(now, own);
    }
    unblock(now, own, rank);
    double seconds = 0;
    for (int each = column(rank); each < how_->schedule.stages(); each += width_) {
      seconds += stage(each).update;
    }
    compute(now, rank, seconds, update);
  }

  void block(double now, rank_state& own) noexcept {
    if (!own.blocked) {
      own.blocked = true;
      own.since = now;
    }
  }

  void unblock(double now, rank_state& own, int rank) {
    if (own.blocked) {
      own.blocked = false;
      own.shares.exposed += counted(own, now - own.since);
      note({.rank = rank, .what = activity::wait, .begin = own.since, .end = now});
    }
  }

  void note(activity_span one) {
    if (options_.spans && one.end > one.begin) {
      one.step = of(one.rank).step;
      spans_.push_back(one);
    }
  }

  void compute(double now, int rank, double seconds, clock_of ends) {
    rank_state& own = of(rank);
    own.computes = true;
    own.since = now;
    own.computing = seconds * own.factor;
    own.computed += own.computing;
    take_stolen(rank);
    set_computes(rank, true);
    timer(now + own.computing, rank, ends);
  }

  void on_timer(double now, int rank, std::uint32_t item) override {
    rank_state& own = of(rank);
    if (item >= bucket) {
      const std::size_t number = item - bucket;
      own.bucket_begin[number] = now;
      enter(now, run_of(own.step, column(rank), number), rank);
      return;
    }
    if (const double taken = take_stolen(rank); taken > 0) {
      own.shares.stolen += counted(own, taken);
      timer(now + taken, rank, item);
      return;
    }
    set_computes(rank, false);
    own.computes = false;
    if (item == update) {
      own.shares.update += counted(own, own.computing);
      note({.rank = rank, .what = activity::update, .begin = own.since, .end = now});
      note({.rank = rank, .what = activity::step, .begin = own.step_begin, .end = now});
      own.step_ends.push_back(now);
      own.step_computed.push_back(own.computed);
      own.computed = 0;
      own.over = own.step + 1 == options_.steps;
      if (!own.over) {
        begin_step(now, rank);
      }
    } else {
      end_pass(now, rank, actions(rank)[own.next++]);
    }
    go_on(now, rank);
  }

  void end_pass(double now, int rank, const parallel::pipeline_action& action) {
    rank_state& own = of(rank);
    const bool forward = action.pass == parallel::pipeline_pass::forward;
    (forward ? own.shares.forward : own.shares.backward) += counted(own, own.computing);
    note({.rank = rank,
          .what = forward ? activity::forward : activity::backward,
          .begin = own.since,
          .end = now,
          .item = action.micro_batch,
          .stage = action.stage});
    if (forward) {
      own.stored[slot(action.stage, action.micro_batch)] = own.step + 1;
      if (action.stage + 1 < how_->schedule.stages()) {
        pass_on(now, rank, action.stage + 1, action.micro_batch, value, stage(action.stage).sent_bytes);
      }
    } else if (action.pass != parallel::pipeline_pass::weight_gradients && action.stage > 0) {
      pass_on(now, rank, action.stage - 1, action.micro_batch, gradient, stage(action.stage - 1).sent_bytes);
    }
  }

  /// To the rank of a stage of the same replica.
  void pass_on(double now, int rank, int to_stage, int micro_batch, message kind, double bytes) {
    const int to = rank - column(rank) + to_stage % width_;
    const std::uint32_t item =
        static_cast<std::uint32_t>(slot(to_stage, micro_batch)) * kinds + static_cast<std::uint32_t>(kind);
    if (to == rank) {
      return take(rank, item);
    }
    send(now, rank, to, port_table::route_of(description(), rank, to), bytes, item, false, false);
  }

  void take(int rank, std::uint32_t item) {
    rank_state& own = of(rank);
    // Messages of the next step may come before a rank has ended its own.
    ++(item % kinds == value ? own.values : own.gradients)[item / kinds];
  }

  void on_message(double now, int to, int /*sender*/, std::uint32_t item) override {
    take(to, item);
    if (of(to).blocked) {
      go_on(now, to);
    }
  }
  void on_sent(double /*now*/, int /*from*/, int /*to*/, std::uint32_t /*item*/) override {}

  void on_collective(double now, int rank, std::uint32_t item) override {
    rank_state& own = of(rank);
    ++own.summed;
    note({.rank = rank,
          .what = activity::transfer,
          .begin = own.bucket_begin[item],
          .end = now,
          .item = static_cast<int>(item)});
    if (own.blocked) {
      go_on(now, rank);
    }
  }

  std::uint32_t run_of(int step, int of_column, std::size_t number) {
    const auto found = open_.try_emplace({step, {of_column, number}}, opened{});
    opened& one = found.first->second;
    if (found.second) {
      one.run =
          open_collective(*plans_[static_cast<std::size_t>(of_column)][number], static_cast<std::uint32_t>(number));
    }
    const std::uint32_t run = one.run;
    if (++one.entered == state_.size() / static_cast<std::size_t>(width_)) {
      open_.erase(found.first);
    }
    return run;
  }

  [[nodiscard]] replayed_step result() {
    replayed_step found;
    found.simulated_ranks = simulated();
    found.events = events();
    found.spans = std::move(spans_);
    std::vector<const std::vector<double>*> ends;
    for (rank_state& each : state_) {
      ends.push_back(&each.step_ends);
      found.shares.add(each.shares);
    }
    found.set_seconds(ends);
    found.shares.scale(1.0 / (static_cast<double>(state_.size()) * std::max(1, options_.steps - 1)));
    for (int rank = 0; rank < width_; ++rank) {
      double bytes = 0;
      for (const message_plan* const each : plans_[static_cast<std::size_t>(rank)]) {
        bytes += each->sent_bytes(rank);
      }
      for (int each = rank; each < how_->schedule.stages(); each += width_) {
        bytes += how_->schedule.micro_batches() * ((each + 1 < how_->schedule.stages() ? stage(each).sent_bytes : 0) +
                                                   (each > 0 ? stage(each - 1).sent_bytes : 0));
      }
      found.sent_bytes = std::max(found.sent_bytes, bytes);
    }
    return found;
  }

  struct opened {
    std::uint32_t run = 0;
    std::size_t entered = 0;
  };

  const pipeline_training* how_;
  std::span<const std::vector<const message_plan*>> plans_;
  replay_options options_;
  int width_;  // ranks of a replica
  int ranks_;
  compute_variation variation_;
  std::vector<rank_state> state_;
  std::map<std::pair<int, std::pair<int, std::size_t>>, opened> open_;
  std::vector<activity_span> spans_;
};

}  // namespace gradus::sim::detail
