// SPDX-License-Identifier: BSL-1.0
//
// What one parameter server does: takes gradients, updates its variables, hands out values.
#pragma once

#include <algorithm>  // std::min, std::none_of
#include <chrono>     // std::chrono
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint64_t, std::uint8_t
#include <cstring>    // std::memcpy
#include <optional>   // std::optional
#include <span>       // std::span

#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/parameter_server/detail/protocol/client.hpp"
#include "gradus/parameter_server/detail/protocol/links.hpp"
#include "gradus/parameter_server/detail/protocol/messages.hpp"
#include "gradus/parameter_server/detail/protocol/missing_workers.hpp"
#include "gradus/parameter_server/detail/protocol/state_rounds.hpp"
#include "gradus/parameter_server/detail/protocol/totals_exchange.hpp"
#include "gradus/parameter_server/detail/protocol/variable_store.hpp"
#include "gradus/parameter_server/mode.hpp"
#include "gradus/parameter_server/plan.hpp"
#include "gradus/parameter_server/summary.hpp"

namespace gradus::parallel::detail {

/// The server's side of all its workers. poll() does what can be done and returns; one thread calls it again and again.
/// A worker's rounds follow one another: header, gradients, end; then values go out; then comes the next header. What
/// it is constructed from outlives it.
class server_loop {
 public:
  server_loop(server_links& links, const parameter_server_plan& plan, int server, const server_settings& settings,
              variable_store& store)
      : links_{&links},
        plan_{&plan},
        settings_{settings},
        store_{&store},
        // A server gives up before its workers do, so that the message names the rank that is missing.
        patience_{links.channel().time_limit() * 3 / 4},
        clients_(plan.who.workers.size()),
        contributes_(plan.who.workers.size()) {
    for (std::size_t i = 0; i < plan.parts.size(); ++i) {
      if (plan.parts[i].server == server) {
        part_numbers_.push_back(i);
      }
    }
    for (const std::size_t i : plan.pull_order) {
      for (std::size_t part = 0; part < part_numbers_.size(); ++part) {
        if (part_numbers_[part] == i) {
          order_.push_back(part);
        }
      }
    }
    versions_ = dynamic_array<std::uint64_t>(parts());
    if (store.needs_all_gradients() && parts() != 0) {
      totals_.emplace(links, plan, server, store);
    }
    summary_.variable_bytes = static_cast<std::uint64_t>(plan.placed.server_bytes[static_cast<std::size_t>(server)]);
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      server_client& each = clients_[i];
      each.index = i;
      each.rank = plan.who.workers[i];
      each.set_parts(parts());
      links.reserve(each.rank, 3 + 2 * parts());  // header, end, summary; gradients, values
      each.heard = clock::now();
      expect_header(each);
    }
    moved_at_ = clock::now();
  }

  server_loop(const server_loop&) = delete;
  server_loop& operator=(const server_loop&) = delete;

  /// Whether something moved.
  /// @throws communication_error when a rank fails, or does not come and cannot be done without
  bool poll() {
    const bool moved = move_forward();
    if (!moved) {
      look_at_time();
    }
    return moved;
  }

  /// All workers have left, or are lost.
  [[nodiscard]] bool done() const noexcept {
    for (const server_client& each : clients_) {
      if (each.stage != phase::left && !each.lost) {
        return false;
      }
    }
    return true;
  }

  /// Since when nothing moved.
  [[nodiscard]] comm::clock::time_point moved_at() const noexcept { return moved_at_; }
  [[nodiscard]] const server_summary& summary() const noexcept { return summary_; }

 private:
  using clock = comm::clock;
  using phase = server_client::phase;

  bool move_forward() {
    now_ = clock::now();
    bool moved = false;
    for (server_client& each : clients_) {
      moved = take(each) || moved;
    }
    moved = update_what_can_be() || moved;
    for (server_client& each : clients_) {
      moved = hand_out(each) || moved;
    }
    if (moved) {
      moved_at_ = now_;
    }
    return moved;
  }

  [[nodiscard]] std::size_t parts() const noexcept { return part_numbers_.size(); }

  void expect_header(server_client& from) {
    from.stage = phase::idle;
    links_->receive(from.header_transfer, from.rank, bytes_to_receive(from.header), message_tag::header);
  }

  /// Takes what has come from a worker.
  bool take(server_client& from) {
    bool moved = false;
    if (from.stage == phase::idle && links_->arrived(from.header_transfer)) {
      moved = true;
      begin_round(from);
    }
    if (from.stage == phase::incoming) {
      for (std::size_t part = 0; part < parts(); ++part) {
        if (links_->arrived(from.incoming[part])) {
          moved = true;
          from.has[part] = 1;
          ++from.unused;
          ++from.arrived;
          summary_.received_bytes += store_->values(part).size();
        }
      }
      if (links_->arrived(from.end_transfer)) {
        moved = true;
        from.ended = true;
      }
      if (from.ended && (from.arrived == parts() || from.header.kind == round_kind::join)) {
        moved = true;
        end_of_round(from);
      }
    }
    if (from.stage == phase::report && links_->arrived(from.summary_transfer)) {
      moved = true;
      expect_header(from);
    }
    if (state_is_sent(*links_, from)) {
      moved = true;
      expect_header(from);
    }
    if (moved) {
      heard(from);
    }
    return moved;
  }

  void heard(server_client& from) {
    from.heard = now_;
    if (from.lost) {
      from.lost = false;
      tell_back(links_->channel().rank(), from.rank);
    }
  }

  void begin_round(server_client& from) {
    from.arrived = 0;
    from.ended = false;
    switch (from.header.kind) {
      case round_kind::push:
      case round_kind::initial:
      case round_kind::store:
        for (std::size_t part = 0; part < parts(); ++part) {
          links_->receive(from.incoming[part], from.rank, store_->incoming(from.index, part),
                          message_tag::gradients(part_numbers_[part]));
        }
        [[fallthrough]];
      case round_kind::join:
        links_->receive(from.end_transfer, from.rank, bytes_to_receive(from.end), message_tag::end);
        from.stage = phase::incoming;
        return;
      case round_kind::summary:
        from.report = summary_;
        from.report.steps = store_->updates();
        links_->send(from.summary_transfer, from.rank, bytes_to_send(from.report), message_tag::summary);
        from.stage = phase::report;
        return;
      case round_kind::fetch:
        send_state(*links_, *store_, from, {part_numbers_.data(), parts()});
        return;
      case round_kind::leave:
        from.stage = phase::left;
        ++summary_.left_workers;
        return;
    }
    raise<communication_error>("parameter_server", "a round of a worker",
                               {"one of an unknown kind from rank ", from.rank},
                               "start all ranks with the same program");
  }

  void end_of_round(server_client& from) {
    if (from.end.valid == 0) {  // the worker goes on with another round, or leaves
      from.forget_gradients();
      ++summary_.dropped;
      expect_header(from);
      return;
    }
    from.stage = phase::waiting;
    if (from.header.kind == round_kind::store) {
      keep_state(*store_, from);
      expect_header(from);
    } else if (from.header.kind == round_kind::initial) {
      keep_state(*store_, from);
      initialized_ = true;
    } else if (from.header.kind == round_kind::push) {
      ++from.pushes;
    }
  }

  bool update_what_can_be() {
    bool moved = false;
    for (server_client& each : clients_) {  // first values
      if (each.stage == phase::waiting && each.header.kind != round_kind::push && initialized_) {
        hand_out_all(each);
        moved = true;
      }
    }
    switch (settings_.mode) {
      case server_mode::synchronous:
        return (settings_.backup_workers > 0 ? update_with_the_first() : update_together(false)) || moved;
      case server_mode::compat:
        return update_together(true) || moved;
      case server_mode::asynchronous:
      case server_mode::bounded_staleness:
        return update_at_once() || moved;
    }
    return moved;
  }

  /// Each part as soon as all workers' gradients of it are there.
  bool update_together(bool one_by_one) {
    bool all_ended = true;
    for (const server_client& each : clients_) {
      all_ended = all_ended && each.is_pushing() && each.ended && each.end.valid != 0;
    }
    if (!all_ended || (totals_ && !totals_->is_known({clients_.data(), clients_.size()}))) {
      return false;
    }
    bool moved = false;
    for (std::size_t part = 0; part < parts(); ++part) {
      if (!have_all({clients_.data(), clients_.size()}, part)) {
        continue;
      }
      for (std::size_t i = 0; i < clients_.size(); ++i) {
        contributes_[i] = one_by_one ? 0 : 1;
        count_staleness(clients_[i], part);
      }
      if (one_by_one) {
        for (std::size_t i = 0; i < clients_.size(); ++i) {
          contributes_[i] = 1;
          update(part, static_cast<double>(clients_.size()), clients_[i].end.learning_rate);
          contributes_[i] = 0;
        }
      } else if (totals_) {
        store_->update_added_up(part, clients_[0].end.learning_rate);
        ++summary_.updates;
      } else {
        update(part, 1.0, clients_[0].end.learning_rate);
      }
      ++versions_[part];
      for (server_client& each : clients_) {
        each.use_up(part);
        each.make_due(part, round_);
      }
      moved = true;
    }
    return moved;
  }

  /// A step with the first whole pushes that a step needs; later ones are dropped.
  bool update_with_the_first() {
    bool moved = false;
    std::size_t complete = 0;
    for (server_client& each : clients_) {
      if (!each.waits_with_push() || each.unused == 0) {
        continue;
      }
      if (each.round < round_) {
        each.forget_gradients();
        ++summary_.dropped;
        hand_out_all(each);
        moved = true;
      } else {
        ++complete;
      }
    }
    if (complete == 0 || complete < needed()) {
      return moved;
    }
    double rate = 0;
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      const server_client& each = clients_[i];
      contributes_[i] = each.waits_with_push() && each.unused != 0;
      rate = contributes_[i] != 0 ? each.end.learning_rate : rate;
    }
    ++round_;
    for (std::size_t part = 0; part < parts(); ++part) {
      update(part, static_cast<double>(clients_.size()) / static_cast<double>(complete), rate);
      for (std::size_t i = 0; i < clients_.size(); ++i) {
        if (contributes_[i] != 0) {
          count_staleness(clients_[i], part);
        }
      }
      ++versions_[part];
    }
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      if (contributes_[i] != 0) {
        clients_[i].forget_gradients();
        hand_out_all(clients_[i]);
      }
    }
    return true;
  }

  [[nodiscard]] std::size_t needed() const noexcept {
    return pushes_needed({clients_.data(), clients_.size()}, static_cast<std::size_t>(settings_.backup_workers));
  }

  bool update_at_once() {
    bool moved = false;
    for (server_client& each : clients_) {
      if (!each.is_pushing() || !each.ended || each.end.valid == 0 || each.unused == 0) {
        continue;
      }
      for (std::size_t part = 0; part < parts(); ++part) {
        if (each.has[part] == 0) {
          continue;
        }
        for (std::uint8_t& contributes : contributes_) {
          contributes = 0;
        }
        contributes_[each.index] = 1;
        const std::uint64_t staleness = count_staleness(each, part);
        const double rate = each.end.learning_rate;
        update(part, static_cast<double>(clients_.size()),
               settings_.scale_by_staleness ? rate / (1.0 + static_cast<double>(staleness)) : rate);
        ++versions_[part];
        each.use_up(part);
        if (settings_.mode == server_mode::asynchronous) {
          each.make_due(part, round_);
        }
        moved = true;
      }
    }
    if (settings_.mode == server_mode::bounded_staleness) {
      const std::uint64_t slowest = fewest_pushes({clients_.data(), clients_.size()});
      for (server_client& each : clients_) {
        if (each.waits_with_push() && each.unused == 0 &&
            each.pushes <= slowest + static_cast<std::uint64_t>(settings_.staleness_bound)) {
          hand_out_all(each);
          moved = true;
        }
      }
    }
    return moved;
  }

  void update(std::size_t part, double scale, double rate) {
    store_->update(part, {contributes_.data(), contributes_.size()}, scale, rate);
    ++summary_.updates;
  }

  std::uint64_t count_staleness(const server_client& of, std::size_t part) noexcept {
    const std::uint64_t used = of.header.lag == 0 ? of.given[part] : of.given_before[part];
    const std::uint64_t staleness = versions_[part] - used;
    ++summary_.staleness[std::min<std::uint64_t>(staleness, staleness_bins - 1)];
    return staleness;
  }

  void hand_out_all(server_client& to) noexcept {
    for (std::size_t part = 0; part < parts(); ++part) {
      to.make_due(part, round_);
    }
    to.stage = phase::outgoing;
  }

  /// Sends values that are due, in the order of pulls if there is one.
  bool hand_out(server_client& to) {
    if (to.stage == phase::left || (to.queued == 0 && to.stage != phase::outgoing && to.stage != phase::waiting)) {
      return false;
    }
    bool moved = false;
    for (std::size_t part = 0; part < parts(); ++part) {
      if (links_->arrived(to.outgoing[part])) {
        ++to.sent;
        summary_.sent_bytes += store_->values(part).size();
        moved = true;
      }
    }
    while (to.begun < to.queued && to.begun - to.sent < static_cast<std::size_t>(settings_.window)) {
      const std::size_t part = to.next_due({order_.data(), order_.size()});
      to.due[part] = 0;
      ++to.begun;
      std::span<const std::uint8_t> values = store_->values(part);
      if (settings_.survives_lost_workers()) {
        // Other workers' pushes may change the values while they travel: they go from where the gradient came.
        const std::span<std::uint8_t> copy = store_->incoming(to.index, part);
        if (!values.empty()) {
          std::memcpy(copy.data(), values.data(), values.size());
        }
        values = copy;
      }
      to.given_before[part] = to.given[part];
      to.given[part] = versions_[part];
      links_->send(to.outgoing[part], to.rank, values, message_tag::values(part_numbers_[part]));
      moved = true;
    }
    // A server without parts has nothing to say to a push: it is answered as soon as it has come.
    const bool all_due = to.stage == phase::outgoing ||
                         (to.stage == phase::waiting && (parts() != 0 || to.header.kind == round_kind::push));
    if (all_due && to.unused == 0 && to.queued == parts() && to.sent == parts()) {
      to.queued = 0;
      to.begun = 0;
      to.sent = 0;
      expect_header(to);
      moved = true;
    }
    if (moved) {
      heard(to);
    }
    return moved;
  }

  /// Nothing has moved: checks whether a rank is missing.
  void look_at_time() {
    if (settings_.survives_lost_workers()) {
      for (server_client& each : clients_) {
        const bool its_turn = each.stage != phase::waiting && each.stage != phase::left;
        if (its_turn && !each.lost && now_ - each.heard > patience_) {
          each.lost = true;
          ++summary_.lost_workers;
          tell_lost(links_->channel().rank(), each.rank, patience_);
        }
      }
      if (settings_.backup_workers == 0) {
        return;
      }
      std::size_t there = 0;
      bool open = false;
      for (const server_client& each : clients_) {
        there += each.stage != phase::left && !each.lost ? 1 : 0;
        open = open || (each.stage == phase::waiting && each.unused != 0);
      }
      if (!open || there >= needed()) {
        return;
      }
    } else {
      if (now_ - moved_at_ <= patience_ ||
          std::none_of(clients_.begin(), clients_.end(), [](const auto& each) { return each.in_round(); })) {
        return;
      }
    }
    raise_missing();
  }

  /// Raises an error, unless messages have come while the ranks were asked.
  void raise_missing() {
    const dynamic_array<int> silent = links_->channel().silent_ranks("parameter_server: gradients of the workers");
    if (move_forward()) {
      return;
    }
    if (totals_) {
      totals_->raise_missing(patience_, silent);
    }
    const missing_workers who = find_missing({clients_.data(), clients_.size()}, parts());
    const bool nothing = parts() == 0;
    raise<communication_error>({"parameter_server: ", who.pull ? "pull of the values" : "push of the gradient", " of '",
                                nothing ? "no variable" : plan_->names[part_numbers_[who.part]], "', step ",
                                nothing ? round_ : versions_[who.part]},
                               {}, missing_text(who.ranks, silent, patience_),
                               settings_.mode == server_mode::synchronous
                                   ? "backup_workers lets a step go on without some; set_time_limit allows longer waits"
                                   : "set_time_limit allows longer waits");
  }

  server_links* links_;
  const parameter_server_plan* plan_;
  server_settings settings_;
  variable_store* store_;
  std::chrono::milliseconds patience_;
  dynamic_array<server_client> clients_;     // by worker
  dynamic_array<std::uint8_t> contributes_;  // by worker
  dynamic_array<std::size_t> part_numbers_;  // of this server's parts, in the plan
  dynamic_array<std::size_t> order_;         // of pulls, parts of this server
  dynamic_array<std::uint64_t> versions_;    // by part
  std::optional<totals_exchange> totals_;    // where a step needs all gradients
  std::uint64_t round_ = 0;                  // steps with backup workers
  bool initialized_ = false;
  clock::time_point now_{};
  clock::time_point moved_at_{};
  server_summary summary_;
};

}  // namespace gradus::parallel::detail
