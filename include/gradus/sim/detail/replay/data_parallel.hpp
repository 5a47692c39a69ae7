// SPDX-License-Identifier: BSL-1.0
//
// Replays the ranks of an all-reduce: what they compute, the parts that they send, and what they wait for.
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
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/bucket.hpp"
#include "gradus/sim/cluster.hpp"
#include "gradus/sim/detail/replay/message_plan.hpp"
#include "gradus/sim/detail/replay/replay.hpp"
#include "gradus/sim/detail/replay/shares.hpp"
#include "gradus/sim/detail/replay/step_outline.hpp"
#include "gradus/sim/replayed_step.hpp"
#include "gradus/sim/workload.hpp"

namespace gradus::sim::detail {

/// Ranks that follow an outline.
class data_parallel_replay final : public replay {
 public:
  /// @param plans  of the collective of each part, in the order of travel; without several ranks empty
  data_parallel_replay(const cluster& of, const workload& work, const parallel::all_reduce& how,
                       const step_outline& outline, std::span<const message_plan* const> plans, int ranks,
                       int simulated, const replay_options& options)
      : replay{of, simulated},
        outline_{&outline},
        how_{&how},
        plans_{plans},
        options_{options},
        ranks_{ranks},
        element_bytes_{work.element_bytes},
        variation_{work.variation, options.seed},
        state_(static_cast<std::size_t>(simulated)) {}

  replayed_step run() {
    for (int rank = 0; rank < simulated(); ++rank) {
      begin_step(0, rank);
      go_on(0, rank);
    }
    run_events();
    for (int rank = 0; rank < simulated(); ++rank) {
      if (!of(rank).over) {
        raise<configuration_error>("sim::data_parallel", "schedules in which no rank waits for ever",
                                   {"rank ", rank, " waits for part ", of(rank).taken, " in step ", of(rank).step});
      }
    }
    return result();
  }

 private:
  enum class phase : unsigned char { forward, backward, finish };

  struct rank_state {
    int step = -1;
    int parts_step = -1;  // whose gradients travel
    phase now = phase::forward;
    std::size_t piece = 0;  // of forward or backward
    bool updates = false;   // computes an update
    bool blocked = false;   // waits for part `taken`
    bool late = false;      // parts of the step before are still taken
    bool over = false;
    std::size_t ready = 0;  // buckets that are complete in this step
    std::size_t begun = 0;  // parts
    std::size_t done = 0;   // parts complete, and all before
    std::size_t taken = 0;  // parts
    index_t under_way = 0;  // bytes
    std::vector<char> complete;
    std::vector<double> part_begin;
    double factor = 1;
    double since = 0;      // of what it does now
    double computing = 0;  // seconds of it without what is stolen
    double computed = 0;   // seconds of the step until now
    std::vector<double> step_ends;
    std::vector<double> step_computed;
    step_shares shares;
  };

  [[nodiscard]] std::size_t parts() const noexcept { return plans_.size(); }
  [[nodiscard]] rank_state& of(int rank) noexcept { return state_[static_cast<std::size_t>(rank)]; }
  /// The first of several steps counts in no mean.
  [[nodiscard]] double counted(const rank_state& own, double seconds) const noexcept {
    return own.step > 0 || options_.steps == 1 ? seconds : 0.0;
  }

  void note(int rank, activity kind, double begin, double end, int item = -1, double bytes = 0) {
    if (options_.spans && end > begin) {
      spans_.push_back({.rank = rank,
                        .what = kind,
                        .begin = begin,
                        .end = end,
                        .step = of(rank).step,
                        .item = item,
                        .bytes = bytes});
    }
  }

  void begin_step(double now, int rank) {
    rank_state& own = of(rank);
    ++own.step;
    own.factor = simulated() < ranks_ ? variation_.largest(ranks_, own.step) : variation_.of(rank, own.step);
    own.now = phase::forward;
    own.piece = 0;
    step_begin_.resize(state_.size());
    step_begin_[static_cast<std::size_t>(rank)] = now;
  }

  void end_step(double now, int rank) {
    rank_state& own = of(rank);
    note(rank, activity::step, step_begin_[static_cast<std::size_t>(rank)], now);
    own.step_ends.push_back(now);
    own.step_computed.push_back(own.computed);
    own.computed = 0;
    own.late = how_->overlap_forward && parts() > 0;
    own.over = own.step + 1 == options_.steps;
    if (!own.over) {
      begin_step(now, rank);
    }
  }

  /// Computes for some seconds, longer if the carrying thread takes a processor meanwhile.
  void compute(double now, int rank, double seconds) {
    rank_state& own = of(rank);
    own.since = now;
    own.computing = seconds * own.factor;
    own.computed += own.computing;
    take_stolen(rank);
    set_computes(rank, true);
    timer(now + own.computing, rank, 0);
  }

  void on_timer(double now, int rank, std::uint32_t /*item*/) override {
    rank_state& own = of(rank);
    if (const double taken = take_stolen(rank); taken > 0) {
      own.shares.stolen += counted(own, taken);
      timer(now + taken, rank, 0);
      return;
    }
    set_computes(rank, false);
    if (own.updates) {
      own.updates = false;
      own.shares.update += counted(own, own.computing);
      note(rank, activity::update, own.since, now);
    } else if (own.now == phase::forward) {
      own.shares.forward += counted(own, own.computing);
      note(rank, activity::forward, own.since, now);
      ++own.piece;
    } else {
      own.shares.backward += counted(own, own.computing);
      note(rank, activity::backward, own.since, now);
      ++own.piece;
      own.ready = std::min(own.piece, outline_->plan.buckets.size());
      if (how_->overlap) {
        begin_parts(now, rank);
      }
    }
    go_on(now, rank);
  }

  /// The next thing that the program's thread does.
  void go_on(double now, int rank) {
    rank_state& own = of(rank);
    while (!own.over) {
      switch (own.now) {
        case phase::forward:
          if (own.piece < outline_->forward.size()) {
            const forward_piece& next = outline_->forward[own.piece];
            if (own.late && !take(now, rank, next.take)) {
              return;
            }
            return compute(now, rank, next.seconds);
          }
          if (own.late && !take(now, rank, parts())) {
            return;
          }
          begin_backward(own);
          break;
        case phase::backward: {
          const std::size_t buckets = outline_->backward.size();
          if (own.piece <= buckets) {
            return compute(now, rank,
                           own.piece < buckets ? outline_->backward[own.piece]
                                               : outline_->after_backward + (parts() == 0 ? outline_->all_updates : 0));
          }
          own.now = phase::finish;
          begin_parts(now, rank);
          break;
        }
        case phase::finish:
          if (!(how_->overlap_forward && parts() > 0) && !take(now, rank, parts())) {
            return;
          }
          end_step(now, rank);
          break;
      }
    }
  }

  void begin_backward(rank_state& own) {
    own.now = phase::backward;
    own.parts_step = own.step;
    own.piece = 0;
    own.late = false;
    own.ready = own.begun = own.done = own.taken = 0;
    own.under_way = 0;
    own.complete.assign(parts(), 0);
    own.part_begin.assign(parts(), 0);
  }

  /// Takes parts below `until` and updates. @return  false if the rank waits or computes
  bool take(double now, int rank, std::size_t until) {
    rank_state& own = of(rank);
    while (own.taken < until) {
      if (own.complete[own.taken] == 0) {
        if (!own.blocked) {
          own.blocked = true;
          own.since = now;
        }
        return false;
      }
      if (own.blocked) {
        own.blocked = false;
        own.shares.exposed += counted(own, now - own.since);
        note(rank, activity::wait, own.since, now, static_cast<int>(own.taken));
      }
      const std::size_t part = own.taken++;
      const std::size_t bucket = outline_->plan.parts[part].bucket;
      if (outline_->last_part[bucket] == part + 1 && outline_->update[bucket] > 0) {
        own.updates = true;
        compute(now, rank, outline_->update[bucket]);
        return false;
      }
    }
    return true;
  }

  [[nodiscard]] index_t bytes_of(std::size_t part) const noexcept {
    return outline_->plan.parts[part].size() * element_bytes_;
  }

  /// As parallel::detail::bucket_exchange begins them: in one order, when complete, as far as there is credit.
  void begin_parts(double now, int rank) {
    rank_state& own = of(rank);
    while (own.begun < parts() && outline_->plan.parts[own.begun].bucket < own.ready &&
           parallel::has_credit(own.under_way, bytes_of(own.begun), how_->credit_bytes)) {
      const std::size_t part = own.begun++;
      own.under_way += bytes_of(part);
      own.part_begin[part] = now;
      enter(now, run_of(own.parts_step, part), rank);
    }
  }

  /// The collective of a part in a step: the first rank that comes opens it.
  std::uint32_t run_of(int step, std::size_t part) {
    const auto found = open_.try_emplace({step, part}, opened{});
    opened& one = found.first->second;
    if (found.second) {
      one.run = open_collective(*plans_[part], static_cast<std::uint32_t>(part));
    }
    const std::uint32_t run = one.run;
    if (++one.entered == state_.size()) {
      open_.erase(found.first);
    }
    return run;
  }

  void on_collective(double now, int rank, std::uint32_t item) override {
    rank_state& own = of(rank);
    own.complete[item] = 1;
    note(rank, activity::transfer, own.part_begin[item], now, static_cast<int>(item),
         static_cast<double>(bytes_of(item)));
    while (own.done < own.begun && own.complete[own.done] != 0) {
      own.under_way -= bytes_of(own.done++);
    }
    if (how_->overlap || own.now != phase::backward) {
      begin_parts(now, rank);
    }
    if (own.blocked && own.complete[own.taken] != 0) {
      go_on(now, rank);
    }
  }

  void on_message(double /*now*/, int /*to*/, int /*sender*/, std::uint32_t /*item*/) override {}
  void on_sent(double /*now*/, int /*from*/, int /*to*/, std::uint32_t /*item*/) override {}

  [[nodiscard]] replayed_step result() {
    replayed_step found;
    found.simulated_ranks = simulated();
    found.events = events();
    found.spans = std::move(spans_);
    collect_shares(found, state_, options_.steps, true);
    for (std::size_t part = 0; part < parts(); ++part) {
      found.sent_bytes += plans_[part]->sent_bytes(plans_[part]->members()[0]);
    }
    return found;
  }

  struct opened {
    std::uint32_t run = 0;
    std::size_t entered = 0;
  };

  const step_outline* outline_;
  const parallel::all_reduce* how_;
  std::span<const message_plan* const> plans_;
  replay_options options_;
  int ranks_;
  index_t element_bytes_;
  compute_variation variation_;
  std::vector<rank_state> state_;
  std::vector<double> step_begin_;
  std::map<std::pair<int, std::size_t>, opened> open_;
  std::vector<activity_span> spans_;
};

}  // namespace gradus::sim::detail
