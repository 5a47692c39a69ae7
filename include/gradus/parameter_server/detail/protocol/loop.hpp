// SPDX-License-Identifier: BSL-1.0
//
// What one parameter server does with its workers: takes gradients and hands out values.
#pragma once

#include <algorithm>  // std::none_of
#include <chrono>     // std::chrono
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint64_t, std::uint8_t
#include <cstring>    // std::memcpy
#include <span>       // std::span

#include "gradus/comm/wait.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/parameter_server/detail/protocol/client.hpp"
#include "gradus/parameter_server/detail/protocol/links.hpp"
#include "gradus/parameter_server/detail/protocol/messages.hpp"
#include "gradus/parameter_server/detail/protocol/missing_workers.hpp"
#include "gradus/parameter_server/detail/protocol/state_rounds.hpp"
#include "gradus/parameter_server/detail/protocol/updates.hpp"
#include "gradus/parameter_server/detail/protocol/variable_store.hpp"
#include "gradus/parameter_server/mode.hpp"
#include "gradus/parameter_server/plan.hpp"
#include "gradus/parameter_server/summary.hpp"

namespace gradus::parallel::detail {

/// The server's side of all its workers. poll() does what can be done and returns; one thread calls it again and again.
/// A worker's rounds follow one another: header, gradients, end; then values go out; then comes the next header. What
/// it is constructed from outlives it.
class server_loop : public server_updates {
 public:
  server_loop(server_links& links, const parameter_server_plan& plan, int server, const server_settings& settings,
              variable_store& store)
      : server_updates{links, plan, server, settings, store},
        links_{&links},
        plan_{&plan},
        // A server gives up before its workers do, so that the message names the rank that is missing.
        patience_{links.channel().time_limit() * 3 / 4} {
    for (const std::size_t i : plan.pull_order) {
      for (std::size_t part = 0; part < part_numbers_.size(); ++part) {
        if (part_numbers_[part] == i) {
          order_.push_back(part);
        }
      }
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

 private:
  using clock = comm::clock;

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
  std::chrono::milliseconds patience_;
  dynamic_array<std::size_t> order_;  // of pulls, parts of this server
  clock::time_point now_{};
  clock::time_point moved_at_{};
};

}  // namespace gradus::parallel::detail
