// SPDX-License-Identifier: BSL-1.0
//
// Replays messages and message schedules on a cluster: the part that all strategies share.
#pragma once

#include <algorithm>  // std::max
#include <cstddef>    // std::size_t
#include <cstdint>    // std::int32_t, std::uint32_t, std::uint64_t
#include <string>     // std::string
#include <vector>     // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/sim/cluster.hpp"
#include "gradus/sim/detail/replay/events.hpp"
#include "gradus/sim/detail/replay/message_plan.hpp"
#include "gradus/sim/detail/replay/ports.hpp"

namespace gradus::sim::detail {

/// One collective under way on all simulated ranks.
struct collective_run {
  struct rank_state {
    std::uint32_t begun = 0;      // sends
    std::uint32_t processed = 0;  // receives
    bool entered = false;
    bool busy = false;     // a receive is being processed
    bool retries = false;  // an event will try again
    bool done = false;
  };

  const message_plan* plan = nullptr;
  std::vector<rank_state> ranks;
  std::vector<double> sent_until;  // of each send: it and those before it have been sent
  std::vector<char> arrived;       // of each receive
  std::size_t open = 0;            // members that are not done
  std::uint32_t item = 0;          // what it is to the strategy
};

/// Ranks, their threads that carry transfers, and messages between them. A strategy derives from it.
class replay {
 public:
  replay(const replay&) = delete;
  replay& operator=(const replay&) = delete;

 protected:
  static constexpr std::uint32_t no_run = ~std::uint32_t{0};

  /// @param simulated  ranks 0 to simulated - 1 of the job are replayed
  replay(const cluster& of, int simulated)
      : of_{of},
        ports_{of, simulated},
        queue_{static_cast<std::size_t>(simulated) * lanes_of_a_rank},
        carrier_free_(static_cast<std::size_t>(simulated), 0),
        stolen_(static_cast<std::size_t>(simulated), 0),
        computes_(static_cast<std::size_t>(simulated), 0) {}
  ~replay() = default;

  /// A rank has waited until the time that it asked for.
  virtual void on_timer(double now, int rank, std::uint32_t item) = 0;
  /// A collective is complete on a rank.
  virtual void on_collective(double now, int rank, std::uint32_t item) = 0;
  /// A message of send() has arrived and its receiver's thread has taken it. @param sender  a simulated rank
  virtual void on_message(double now, int to, int sender, std::uint32_t item) = 0;
  /// The last byte of a message of send() has left.
  virtual void on_sent(double now, int from, int to, std::uint32_t item) = 0;

  void timer(double when, int rank, std::uint32_t item) {
    queue_.push(event_queue::no_lane, when, static_cast<std::uint32_t>(what::timer), static_cast<std::uint32_t>(rank),
                0, item);
  }

  /// Sends a message that belongs to no collective.
  /// @param adds  the receiver adds it to something
  void send(double now, int from, int to, route way, double bytes, std::uint32_t item, bool tell_sent, bool adds) {
    const double left = post(now, from, to, way, bytes, no_run, static_cast<std::int32_t>(item), adds);
    if (tell_sent) {
      queue_.push(lane(from, leaving), left, static_cast<std::uint32_t>(what::sent), static_cast<std::uint32_t>(from),
                  static_cast<std::uint32_t>(to), item);
    }
  }

  /// A new collective. @param item  what on_collective says of it
  std::uint32_t open_collective(const message_plan& plan, std::uint32_t item) {
    std::uint32_t number = 0;
    if (idle_.empty()) {
      number = static_cast<std::uint32_t>(runs_.size());
      runs_.emplace_back();
    } else {
      number = idle_.back();
      idle_.pop_back();
    }
    collective_run& one = runs_[number];
    one.plan = &plan;
    one.ranks.assign(carrier_free_.size(), {});
    one.sent_until.assign(plan.all_sends(), 0);
    one.arrived.assign(plan.all_receives(), 0);
    one.open = plan.members().size();
    one.item = item;
    return number;
  }

  /// A rank begins with its part of a collective.
  void enter(double now, std::uint32_t number, int rank) {
    runs_[number].ranks[static_cast<std::size_t>(rank)].entered = true;
    begin_sends(now, number, rank);
    process(now, number, rank);
    finish(now, number, rank);
  }

  /// Replays until nothing happens any more.
  void run_events() {
    while (!queue_.empty()) {
      const event next = queue_.pop();
      now_ = next.time;
      dispatch(next);
    }
  }

  /// The thread that carries transfers of a rank works for so long. @return  when it is done
  double carry(double now, int rank, double seconds) noexcept {
    double& free = carrier_free_[static_cast<std::size_t>(rank)];
    free = std::max(now, free) + seconds;
    stolen_[static_cast<std::size_t>(rank)] += seconds * of_.stolen_share;
    return free;
  }

  /// What the carrying thread has taken from computing since the last call, in seconds.
  double take_stolen(int rank) noexcept {
    const double taken = stolen_[static_cast<std::size_t>(rank)];
    stolen_[static_cast<std::size_t>(rank)] = 0;
    return taken;
  }

  void set_computes(int rank, bool computes) noexcept { computes_[static_cast<std::size_t>(rank)] = computes ? 1 : 0; }

  [[nodiscard]] const cluster& description() const noexcept { return of_; }
  [[nodiscard]] int simulated() const noexcept { return static_cast<int>(carrier_free_.size()); }
  [[nodiscard]] std::uint64_t events() const noexcept { return queue_.pushed(); }
  /// The time of the last event.
  [[nodiscard]] double now() const noexcept { return now_; }

 private:
  /// Events of a rank that come in the order of time, for the queue: messages reach receivers in the order in which
  /// they leave their rail, arrive as the rail of the receiver is free, and its thread takes one after another.
  enum lane_of : std::uint32_t { reaching, arriving, leaving, processing, lanes_of_a_rank };
  [[nodiscard]] static std::uint32_t lane(int rank, lane_of which) noexcept {
    return static_cast<std::uint32_t>(rank) * lanes_of_a_rank + which;
  }

  enum class what : std::uint32_t { timer, reach, arrive, processed, retry, complete, sent, taken };

  /// A message between its beginning and its arrival.
  struct message_in_flight {
    flight at;
    double bytes = 0;
    std::int32_t from = 0;
    std::int32_t to = 0;
    std::uint32_t run = no_run;
    std::int32_t item = 0;  // the receive, or what the strategy calls it
    route way = route::network;
    bool adds = false;
  };

  [[nodiscard]] double carried(double bytes) const noexcept {
    return of_.carried_bytes_per_second > 0 ? bytes / of_.carried_bytes_per_second : 0.0;
  }

  /// @return  when the last byte has left
  double post(double now, int from, int to, route way, double bytes, std::uint32_t run, std::int32_t item, bool adds) {
    const double begins = carry(now, from, of_.message_seconds);
    const double moved = carry(begins, from, way == route::inside ? 0.0 : carried(bytes));
    std::uint32_t slot = 0;
    if (free_slots_.empty()) {
      slot = static_cast<std::uint32_t>(travels_.size());
      travels_.emplace_back();
    } else {
      slot = free_slots_.back();
      free_slots_.pop_back();
    }
    message_in_flight& one = travels_[slot];
    one = {.at = ports_.leave(begins, from, way, bytes),
           .bytes = bytes,
           .from = from,
           .to = to,
           .run = run,
           .item = item,
           .way = way,
           .adds = adds};
    one.at.end = std::max(one.at.end, moved + (way == route::inside ? of_.inside.latency : of_.network.latency));
    queue_.push(way == route::inside ? event_queue::no_lane : lane(from, reaching),
                way == route::inside ? one.at.end : one.at.reaches,
                static_cast<std::uint32_t>(way == route::inside ? what::arrive : what::reach),
                static_cast<std::uint32_t>(to), slot);
    return std::max(one.at.sent, moved);
  }

  void dispatch(const event& next) {
    const int rank = static_cast<int>(next.rank);
    switch (static_cast<what>(next.kind)) {
      case what::timer:
        return on_timer(next.time, rank, next.item);
      case what::reach: {
        const message_in_flight& one = travels_[next.run];
        queue_.push(lane(one.to, arriving), ports_.arrive(one.to, one.way, one.bytes, one.at),
                    static_cast<std::uint32_t>(what::arrive), next.rank, next.run);
        return;
      }
      case what::arrive:
        return arrive(next.time, next.run);
      case what::taken: {
        const message_in_flight one = travels_[next.run];
        free_slots_.push_back(next.run);
        return on_message(next.time, one.to, one.from, static_cast<std::uint32_t>(one.item));
      }
      case what::processed: {
        collective_run::rank_state& own = runs_[next.run].ranks[next.rank];
        own.busy = false;
        ++own.processed;
        return advance(next.time, next.run, rank);
      }
      case what::retry:
        runs_[next.run].ranks[next.rank].retries = false;
        return advance(next.time, next.run, rank);
      case what::complete:
        return leave(next.time, next.run, rank);
      case what::sent:
        return on_sent(next.time, rank, static_cast<int>(next.run), next.item);
    }
  }

  void advance(double now, std::uint32_t number, int rank) {
    begin_sends(now, number, rank);
    process(now, number, rank);
    finish(now, number, rank);
  }

  [[nodiscard]] double taking(const message_in_flight& one) const noexcept {
    return of_.message_seconds + (one.way == route::inside ? 0.0 : carried(one.bytes)) +
           (one.adds ? one.bytes / of_.adding : 0.0);
  }

  [[nodiscard]] double notices(double now, int rank) const noexcept {
    return computes_[static_cast<std::size_t>(rank)] != 0 ? now + of_.poll_seconds : now;
  }

  void arrive(double now, std::uint32_t slot) {
    const message_in_flight one = travels_[slot];
    if (one.run == no_run) {
      queue_.push(lane(one.to, processing), carry(notices(now, one.to), one.to, taking(one)),
                  static_cast<std::uint32_t>(what::taken), static_cast<std::uint32_t>(one.to), slot);
      return;
    }
    free_slots_.push_back(slot);
    collective_run& run = runs_[one.run];
    run.arrived[run.plan->first_receive(one.to) + static_cast<std::size_t>(one.item)] =
        one.way == route::inside ? 2 : 1;
    process(now, one.run, one.to);
    finish(now, one.run, one.to);
  }

  void begin_sends(double now, std::uint32_t number, int rank) {
    collective_run::rank_state* own = &runs_[number].ranks[static_cast<std::size_t>(rank)];
    if (!own->entered) {
      return;
    }
    const message_plan& plan = *runs_[number].plan;
    const auto sends = plan.sends(rank);
    const std::size_t first = plan.first_send(rank);
    while (own->begun < sends.size() && static_cast<std::uint32_t>(sends[own->begun].after) <= own->processed) {
      const planned_send& each = sends[own->begun];
      const bool adds = plan.receives(each.to)[static_cast<std::size_t>(each.receive)].adds;
      const double left =
          post(now, rank, each.to, each.way, static_cast<double>(each.bytes), number, each.receive, adds);
      std::vector<double>& until = runs_[number].sent_until;
      until[first + own->begun] = own->begun == 0 ? left : std::max(left, until[first + own->begun - 1]);
      ++own->begun;
    }
  }

  /// Processes the next receive if it has come and the sends of the elements that it changes are complete.
  void process(double now, std::uint32_t number, int rank) {
    collective_run& run = runs_[number];
    collective_run::rank_state& own = run.ranks[static_cast<std::size_t>(rank)];
    const auto receives = run.plan->receives(rank);
    const std::size_t first = run.plan->first_receive(rank);
    if (!own.entered || own.busy || own.retries || own.processed == receives.size() ||
        run.arrived[first + own.processed] == 0) {
      return;
    }
    const planned_receive& next = receives[own.processed];
    const auto after = static_cast<std::uint32_t>(next.after);
    if (after > own.begun) {
      return;  // a send that waits for it would have been refused by the schedule's test; others begin by themselves
    }
    const double sent = after == 0 ? 0.0 : run.sent_until[run.plan->first_send(rank) + after - 1];
    if (sent > now) {
      own.retries = true;
      queue_.push(event_queue::no_lane, sent, static_cast<std::uint32_t>(what::retry), static_cast<std::uint32_t>(rank),
                  number);
      return;
    }
    own.busy = true;
    const bool inside = run.arrived[first + own.processed] == 2;
    const double bytes = static_cast<double>(next.bytes);
    const double seconds =
        of_.message_seconds + (inside ? 0.0 : carried(bytes)) + (next.adds ? bytes / of_.adding : 0.0);
    queue_.push(lane(rank, processing), carry(notices(now, rank), rank, seconds),
                static_cast<std::uint32_t>(what::processed), static_cast<std::uint32_t>(rank), number);
  }

  void finish(double now, std::uint32_t number, int rank) {
    collective_run& run = runs_[number];
    collective_run::rank_state& own = run.ranks[static_cast<std::size_t>(rank)];
    const auto sends = run.plan->sends(rank);
    if (!own.entered || own.done || own.begun < sends.size() || own.processed < run.plan->receives(rank).size()) {
      return;
    }
    own.done = true;
    const double sent = sends.empty() ? now : run.sent_until[run.plan->first_send(rank) + sends.size() - 1];
    queue_.push(event_queue::no_lane, std::max(now, sent), static_cast<std::uint32_t>(what::complete),
                static_cast<std::uint32_t>(rank), number);
  }

  void leave(double now, std::uint32_t number, int rank) {
    collective_run& run = runs_[number];
    const std::uint32_t item = run.item;
    if (--run.open == 0) {
      idle_.push_back(number);
    }
    on_collective(now, rank, item);
  }

  cluster of_;
  port_table ports_;
  event_queue queue_;
  std::vector<double> carrier_free_;
  std::vector<double> stolen_;
  std::vector<char> computes_;
  std::vector<collective_run> runs_;
  std::vector<std::uint32_t> idle_;
  std::vector<message_in_flight> travels_;
  std::vector<std::uint32_t> free_slots_;
  double now_ = 0;
};

}  // namespace gradus::sim::detail
