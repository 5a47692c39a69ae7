// SPDX-License-Identifier: BSL-1.0
//
// When a parameter server updates its variables, by its mode.
#pragma once

#include <algorithm>  // std::min
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint64_t, std::uint8_t
#include <optional>   // std::optional

#include "gradus/core/dynamic_array.hpp"
#include "gradus/parameter_server/detail/protocol/client.hpp"
#include "gradus/parameter_server/detail/protocol/links.hpp"
#include "gradus/parameter_server/detail/protocol/messages.hpp"
#include "gradus/parameter_server/detail/protocol/missing_workers.hpp"
#include "gradus/parameter_server/detail/protocol/totals_exchange.hpp"
#include "gradus/parameter_server/detail/protocol/variable_store.hpp"
#include "gradus/parameter_server/mode.hpp"
#include "gradus/parameter_server/plan.hpp"
#include "gradus/parameter_server/summary.hpp"

namespace gradus::parallel::detail {

/// The variables of a server and the gradients that its workers have sent. What it is constructed from outlives it.
class server_updates {
 public:
  server_updates(const server_updates&) = delete;
  server_updates& operator=(const server_updates&) = delete;

  [[nodiscard]] const server_summary& summary() const noexcept { return summary_; }

 protected:
  using phase = server_client::phase;

  server_updates(server_links& links, const parameter_server_plan& plan, int server, const server_settings& settings,
                 variable_store& store)
      : settings_{settings}, store_{&store}, clients_(plan.who.workers.size()), contributes_(plan.who.workers.size()) {
    for (std::size_t i = 0; i < plan.parts.size(); ++i) {
      if (plan.parts[i].server == server) {
        part_numbers_.push_back(i);
      }
    }
    versions_ = dynamic_array<std::uint64_t>(parts());
    if (store.needs_all_gradients() && parts() != 0) {
      totals_.emplace(links, plan, server, store);
    }
  }
  ~server_updates() = default;

  [[nodiscard]] std::size_t parts() const noexcept { return part_numbers_.size(); }

  /// Updates what the gradients that are here allow. Whether something moved.
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

  [[nodiscard]] std::size_t needed() const noexcept {
    return pushes_needed({clients_.data(), clients_.size()}, static_cast<std::size_t>(settings_.backup_workers));
  }

  server_settings settings_;
  variable_store* store_;
  dynamic_array<server_client> clients_;     // by worker
  dynamic_array<std::size_t> part_numbers_;  // of this server's parts, in the plan
  dynamic_array<std::uint64_t> versions_;    // by part
  std::optional<totals_exchange> totals_;    // where a step needs all gradients
  std::uint64_t round_ = 0;                  // steps with backup workers
  bool initialized_ = false;
  server_summary summary_;

 private:
  void hand_out_all(server_client& to) noexcept {
    for (std::size_t part = 0; part < parts(); ++part) {
      to.make_due(part, round_);
    }
    to.stage = phase::outgoing;
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

  dynamic_array<std::uint8_t> contributes_;  // by worker
};

}  // namespace gradus::parallel::detail
