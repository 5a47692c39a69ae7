// SPDX-License-Identifier: BSL-1.0
//
// Replays workers and parameter servers: what they compute, send, and wait for.
#pragma once

#include <algorithm>  // std::max, std::min
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint32_t
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/core/error.hpp"
#include "gradus/parameter_server/mode.hpp"
#include "gradus/sim/cluster.hpp"
#include "gradus/sim/detail/replay/ports.hpp"
#include "gradus/sim/detail/replay/replay.hpp"
#include "gradus/sim/detail/replay/server_outline.hpp"
#include "gradus/sim/detail/replay/shares.hpp"
#include "gradus/sim/replayed_step.hpp"
#include "gradus/sim/server_training_options.hpp"
#include "gradus/sim/workload.hpp"

namespace gradus::sim::detail {

/// Workers and servers that follow an outline.
class server_replay final : public replay {
 public:
  server_replay(const cluster& of, const workload& work, const server_training& how, const server_outline& outline,
                int ranks, const replay_options& options)
      : replay{of, ranks},
        outline_{&outline},
        how_{&how},
        options_{options},
        adding_{1 / of.adding},
        variation_{work.variation, options.seed},
        workers_(outline.plan.who.workers.size()),
        servers_(outline.plan.who.servers.size()),
        worker_of_rank_(static_cast<std::size_t>(ranks), none),
        server_of_rank_(static_cast<std::size_t>(ranks), none),
        pushes_(workers_.size() * servers_.size()),
        pulls_(workers_.size() * servers_.size()),
        missing_(workers_.size() * outline.forward.size(), 0) {
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      workers_[w].rank = outline.plan.who.workers[w];
      worker_of_rank_[static_cast<std::size_t>(workers_[w].rank)] = w;
    }
    for (std::size_t s = 0; s < servers_.size(); ++s) {
      server_state& each = servers_[s];
      each.rank = outline.plan.who.servers[s];
      server_of_rank_[static_cast<std::size_t>(each.rank)] = s;
      each.came.assign(outline.plan.parts.size(), 0);
      each.ended.assign(workers_.size(), 0);
      each.own.assign(at_once() ? workers_.size() : 0, {});
    }
  }

  replayed_step run() {
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      begin_step(0, w);
      go_on(0, w);
    }
    run_events();
    for (const worker_state& each : workers_) {
      if (!each.over) {
        raise<configuration_error>("sim::server_training", "a plan in which no rank waits for ever",
                                   {"worker ", each.rank, " waits in step ", each.step});
      }
    }
    return result();
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  enum class phase : unsigned char { forward, backward, finish };
  enum message : std::uint32_t { gradient, value, end, kinds };
  enum clock_of : std::uint32_t { computing, updated };

  struct worker_state {
    int rank = 0;
    int step = -1;
    phase now = phase::forward;
    std::size_t piece = 0;
    std::size_t ready = 0;   // parts complete
    std::size_t unsent = 0;  // parts of this step whose messages have not left
    bool blocked = false;
    bool over = false;
    double factor = 1;
    double since = 0;
    double computing = 0;
    double step_begin = 0;
    double computed = 0;
    std::vector<double> step_ends;
    std::vector<double> step_computed;
    step_shares shares;
  };

  struct server_state {
    int rank = 0;
    std::vector<std::uint32_t> came;                // gradients of each part in this round
    std::vector<char> ended;                        // workers whose round has ended
    std::size_t ends = 0;                           // of them
    std::size_t updated = 0;                        // parts, in this round
    std::vector<std::size_t> due;                   // parts in the order in which values may go, of a round of all
    std::vector<std::vector<std::size_t>> own;      // the same of each worker, where they do not wait for each other
    std::vector<std::vector<std::size_t>> batches;  // parts of updates that are being computed
    std::vector<std::size_t> batch_worker;
    double received = 0;
  };

  /// Messages between one worker and one server in one direction.
  struct queue_state {
    std::uint32_t next = 0;
    std::uint32_t under_way = 0;
  };

  [[nodiscard]] bool at_once() const noexcept { return how_->mode == parallel::server_mode::asynchronous; }
  [[nodiscard]] double counted(const worker_state& own, double seconds) const noexcept {
    return own.step > 0 || options_.steps == 1 ? seconds : 0.0;
  }
  [[nodiscard]] queue_state& pair(std::vector<queue_state>& list, std::size_t w, std::size_t s) noexcept {
    return list[w * servers_.size() + s];
  }
  [[nodiscard]] std::uint32_t& missing(std::size_t w, std::size_t piece) noexcept {
    return missing_[w * outline_->forward.size() + piece];
  }

  void note(int rank, activity kind, double begin, double ends, int step, int item = -1, int peer = -1,
            double bytes = 0) {
    if (options_.spans && ends > begin) {
      spans_.push_back({.rank = rank,
                        .what = kind,
                        .begin = begin,
                        .end = ends,
                        .step = step,
                        .item = item,
                        .peer = peer,
                        .bytes = bytes});
    }
  }

  void begin_step(double now, std::size_t w) {
    worker_state& own = workers_[w];
    ++own.step;
    own.step_begin = now;
    own.factor = variation_.of(own.rank, own.step);
    own.now = phase::forward;
    own.piece = 0;
  }

  void compute(double now, std::size_t w, double seconds) {
    worker_state& own = workers_[w];
    own.since = now;
    own.computing = seconds * own.factor;
    own.computed += own.computing;
    take_stolen(own.rank);
    set_computes(own.rank, true);
    timer(now + own.computing, own.rank, computing);
  }

  void on_timer(double now, int rank, std::uint32_t item) override {
    if (item >= updated) {
      return on_updated(now, server_of_rank_[static_cast<std::size_t>(rank)], item - updated);
    }
    const std::size_t w = worker_of_rank_[static_cast<std::size_t>(rank)];
    worker_state& own = workers_[w];
    if (const double taken = take_stolen(rank); taken > 0) {
      own.shares.stolen += counted(own, taken);
      timer(now + taken, rank, computing);
      return;
    }
    set_computes(rank, false);
    if (own.now == phase::forward) {
      own.shares.forward += counted(own, own.computing);
      note(rank, activity::forward, own.since, now, own.step);
      ++own.piece;
    } else {
      own.shares.backward += counted(own, own.computing);
      note(rank, activity::backward, own.since, now, own.step);
      const std::size_t before = own.ready;
      own.ready = outline_->backward[own.piece++].parts;
      for (std::size_t part = before; part < own.ready; ++part) {
        push(now, w, server_of(part));
      }
    }
    go_on(now, w);
  }

  [[nodiscard]] std::size_t server_of(std::size_t part) const noexcept {
    return static_cast<std::size_t>(outline_->plan.parts[part].server);
  }

  void go_on(double now, std::size_t w) {
    worker_state& own = workers_[w];
    while (!own.over) {
      switch (own.now) {
        case phase::forward:
          if (own.piece < outline_->forward.size()) {
            if (missing(w, own.piece) != 0) {
              return block(now, own);
            }
            unblock(now, own);
            return compute(now, w, outline_->forward[own.piece]);
          }
          own.now = phase::backward;
          own.piece = 0;
          own.ready = 0;
          own.unsent = outline_->plan.parts.size();
          for (std::size_t s = 0; s < servers_.size(); ++s) {
            pair(pushes_, w, s) = {};
          }
          break;
        case phase::backward:
          if (own.piece < outline_->backward.size()) {
            return compute(now, w, outline_->backward[own.piece].seconds);
          }
          own.now = phase::finish;
          for (std::size_t piece = 0; piece < outline_->forward.size(); ++piece) {
            missing(w, piece) = static_cast<std::uint32_t>(outline_->parts_of_piece[piece]);
          }
          for (std::size_t s = 0; s < servers_.size(); ++s) {
            pair(pulls_, w, s) = {};
            transmit(now, own.rank, servers_[s].rank, 16, end, 0, false);
          }
          break;
        case phase::finish:
          // The next backward pass writes the gradients: they must be gone by then.
          if (own.unsent != 0 || (outline_->forward.size() == 1 && missing(w, 0) != 0)) {
            return block(now, own);
          }
          unblock(now, own);
          end_step(now, w);
          break;
      }
    }
  }

  void block(double now, worker_state& own) noexcept {
    if (!own.blocked) {
      own.blocked = true;
      own.since = now;
    }
  }

  void unblock(double now, worker_state& own) {
    if (own.blocked) {
      own.blocked = false;
      own.shares.exposed += counted(own, now - own.since);
      note(own.rank, activity::wait, own.since, now, own.step);
    }
  }

  void end_step(double now, std::size_t w) {
    worker_state& own = workers_[w];
    note(own.rank, activity::step, own.step_begin, now, own.step);
    own.step_ends.push_back(now);
    own.step_computed.push_back(own.computed);
    own.computed = 0;
    own.over = own.step + 1 == options_.steps;
    if (!own.over) {
      begin_step(now, w);
    }
  }

  void transmit(double now, int from, int to, double bytes, message kind, std::size_t part, bool tell) {
    send(now, from, to, port_table::route_of(description(), from, to), bytes,
         static_cast<std::uint32_t>(part) * kinds + kind, tell, false);
  }

  /// Sends gradients to a server, in order, as far as they are complete and the window allows.
  void push(double now, std::size_t w, std::size_t s) {
    worker_state& own = workers_[w];
    queue_state& queue = pair(pushes_, w, s);
    const std::vector<std::size_t>& parts = outline_->of_server[s];
    while (queue.next < parts.size() && parts[queue.next] < own.ready &&
           queue.under_way < static_cast<std::uint32_t>(how_->window)) {
      const std::size_t part = parts[queue.next++];
      ++queue.under_way;
      transmit(now, own.rank, servers_[s].rank, outline_->bytes[part], gradient, part, true);
    }
  }

  void on_sent(double now, int from, int to, std::uint32_t item) override {
    if (item % kinds == gradient) {
      const std::size_t w = worker_of_rank_[static_cast<std::size_t>(from)];
      const std::size_t s = server_of_rank_[static_cast<std::size_t>(to)];
      --pair(pushes_, w, s).under_way;
      --workers_[w].unsent;
      push(now, w, s);
      if (workers_[w].blocked) {
        go_on(now, w);
      }
    } else {
      const std::size_t w = worker_of_rank_[static_cast<std::size_t>(to)];
      const std::size_t s = server_of_rank_[static_cast<std::size_t>(from)];
      --pair(pulls_, w, s).under_way;
      hand_out(now, w, s);
    }
  }

  void on_message(double now, int to, int sender, std::uint32_t item) override {
    const std::size_t part = item / kinds;
    const auto kind = static_cast<message>(item % kinds);
    if (kind == value) {
      const std::size_t w = worker_of_rank_[static_cast<std::size_t>(to)];
      --missing(w, outline_->piece_of_part[part]);
      if (workers_[w].blocked) {
        go_on(now, w);
      }
      return;
    }
    const std::size_t s = server_of_rank_[static_cast<std::size_t>(to)];
    const std::size_t w = worker_of_rank_[static_cast<std::size_t>(sender)];
    server_state& own = servers_[s];
    if (kind == end) {
      own.ended[w] = 1;
      ++own.ends;
    } else {
      ++own.came[part];
      own.received += outline_->bytes[part];
      if (how_->applies_as_they_come) {
        carry(now, to, outline_->bytes[part] * adding_ + outline_->update[part]);
      }
    }
    at_once() ? update_of(now, s, w, part, kind) : update_together(now, s, part, kind);
  }

  /// A part is updated when all workers have ended their rounds and its gradients have come.
  void update_together(double now, std::size_t s, std::size_t part, message kind) {
    server_state& own = servers_[s];
    if (own.ends < workers_.size()) {
      return;
    }
    std::vector<std::size_t> batch;
    if (kind == end) {  // all that have come while some worker was still computing
      for (const std::size_t each : outline_->pulls[s]) {
        if (own.came[each] == workers_.size()) {
          batch.push_back(each);
        }
      }
    } else if (own.came[part] == workers_.size()) {
      batch.push_back(part);
    }
    const bool empty = outline_->of_server[s].empty();
    if (empty) {
      own.ends = 0;
    }
    if (batch.empty() && !empty) {
      return;
    }
    const double steps = how_->mode == parallel::server_mode::compat ? static_cast<double>(workers_.size()) : 1.0;
    begin_update(now, s, std::move(batch), none, static_cast<double>(workers_.size()) * adding_, steps);
  }

  /// Of a worker that waits for no other.
  void update_of(double now, std::size_t s, std::size_t w, std::size_t part, message kind) {
    server_state& own = servers_[s];
    std::vector<std::size_t> batch;
    if (kind == end) {
      // Gradients travel in order, so those in front of the window have come; later ones come one by one.
      own.own[w].clear();
      for (const std::size_t each : outline_->of_server[s]) {
        if (arrived(w, each) != 0) {
          batch.push_back(each);
        }
      }
    } else if (own.ended[w] != 0) {
      batch.push_back(part);
    } else {
      arrived(w, part) = 1;
    }
    for (const std::size_t each : batch) {
      arrived(w, each) = 0;
    }
    if (!batch.empty()) {
      begin_update(now, s, std::move(batch), w, adding_, 1);
    }
  }

  [[nodiscard]] char& arrived(std::size_t w, std::size_t part) {
    if (arrived_.empty()) {
      arrived_.assign(workers_.size() * outline_->plan.parts.size(), 0);
    }
    return arrived_[w * outline_->plan.parts.size() + part];
  }

  /// @param seconds_per_byte  of adding
  void begin_update(double now, std::size_t s, std::vector<std::size_t> batch, std::size_t w, double seconds_per_byte,
                    double steps) {
    server_state& own = servers_[s];
    double seconds = 0;
    for (const std::size_t each : batch) {
      own.came[each] = 0;
      seconds += outline_->bytes[each] * seconds_per_byte + outline_->update[each] * steps;
    }
    const double begins = now;
    const double ends = carry(now, own.rank, how_->applies_as_they_come ? 0.0 : seconds);
    note(own.rank, activity::serve, begins, ends, -1);
    own.batches.push_back(std::move(batch));
    own.batch_worker.push_back(w);
    timer(ends, own.rank, updated + static_cast<std::uint32_t>(own.batches.size() - 1));
  }

  void on_updated(double now, std::size_t s, std::uint32_t number) {
    server_state& own = servers_[s];
    const std::vector<std::size_t> batch = std::move(own.batches[number]);
    const std::size_t w = own.batch_worker[number];
    if (number + 1 == own.batches.size()) {
      own.batches.pop_back();
      own.batch_worker.pop_back();
    }
    if (w != none) {
      own.own[w].insert(own.own[w].end(), batch.begin(), batch.end());
      if (own.own[w].size() == outline_->of_server[s].size()) {
        own.ended[w] = 0;
      }
      return hand_out(now, w, s);
    }
    if (own.updated == 0) {
      own.due.clear();
    }
    own.due.insert(own.due.end(), batch.begin(), batch.end());
    own.updated += batch.size();
    const bool all = own.updated == outline_->of_server[s].size();
    if (all) {
      own.ends = 0;
      own.updated = 0;
    }
    if (!how_->applies_as_they_come) {
      for (std::size_t each = 0; each < workers_.size(); ++each) {
        hand_out(now, each, s);
      }
    } else if (all && ++servers_done_ == servers_.size()) {
      servers_done_ = 0;
      for (std::size_t server = 0; server < servers_.size(); ++server) {
        for (std::size_t each = 0; each < workers_.size(); ++each) {
          hand_out(now, each, server);
        }
      }
    }
  }

  void hand_out(double now, std::size_t w, std::size_t s) {
    server_state& own = servers_[s];
    const std::vector<std::size_t>& parts = at_once() ? own.own[w] : own.due;
    queue_state& queue = pair(pulls_, w, s);
    if (how_->applies_as_they_come && parts.size() < outline_->of_server[s].size()) {
      return;
    }
    while (queue.next < parts.size() && queue.under_way < static_cast<std::uint32_t>(how_->window)) {
      const std::size_t part = parts[queue.next++];
      ++queue.under_way;
      transmit(now, own.rank, workers_[w].rank, outline_->bytes[part], value, part, true);
    }
  }

  void on_collective(double /*now*/, int /*rank*/, std::uint32_t /*item*/) override {}

  [[nodiscard]] replayed_step result() {
    replayed_step found;
    found.simulated_ranks = simulated();
    found.events = events();
    found.spans = std::move(spans_);
    collect_shares(found, workers_, options_.steps, !at_once());
    if (at_once()) {  // workers take steps of their own
      double rate = 0;
      for (const worker_state& each : workers_) {
        rate += std::max(1, options_.steps - 1) /
                (each.step_ends.back() - (options_.steps > 1 ? each.step_ends.front() : 0.0));
      }
      found.seconds = static_cast<double>(workers_.size()) / rate;
    }
    for (const double each : outline_->bytes) {
      found.sent_bytes += each;
    }
    for (const server_state& each : servers_) {
      found.busiest_in = std::max(found.busiest_in, each.received / options_.steps);
    }
    found.sent_bytes = std::max(found.sent_bytes, found.busiest_in);
    return found;
  }

  const server_outline* outline_;
  const server_training* how_;
  replay_options options_;
  double adding_;
  compute_variation variation_;
  std::vector<worker_state> workers_;
  std::vector<server_state> servers_;
  std::vector<std::size_t> worker_of_rank_;
  std::vector<std::size_t> server_of_rank_;
  std::vector<queue_state> pushes_;     // by worker and server
  std::vector<queue_state> pulls_;      // by worker and server
  std::vector<std::uint32_t> missing_;  // parts, by worker and piece of forward
  std::vector<char> arrived_;           // by worker and part, where workers do not wait for each other
  std::size_t servers_done_ = 0;
  std::vector<activity_span> spans_;
};

}  // namespace gradus::sim::detail
