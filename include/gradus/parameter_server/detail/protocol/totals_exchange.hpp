// SPDX-License-Identifier: BSL-1.0
//
// Servers bring their sums of squares together, where the update rule clips by the norm of all gradients.
#pragma once

#include <algorithm>    // std::copy
#include <chrono>       // std::chrono::milliseconds
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/parameter_server/detail/protocol/client.hpp"
#include "gradus/parameter_server/detail/protocol/links.hpp"
#include "gradus/parameter_server/detail/protocol/messages.hpp"
#include "gradus/parameter_server/detail/protocol/missing_workers.hpp"
#include "gradus/parameter_server/detail/protocol/variable_store.hpp"
#include "gradus/parameter_server/mode.hpp"
#include "gradus/parameter_server/plan.hpp"

namespace gradus::parallel::detail {

/// Each server that has variables sends its totals of the gradients (parameter_update::totals) to all others, once a
/// step. The sums are the same bits on all servers. What it is constructed from outlives it.
class totals_exchange {
 public:
  /// @pre the server has variables
  totals_exchange(server_links& links, const parameter_server_plan& plan, int server, variable_store& store)
      : links_{&links}, store_{&store}, everyone_(plan.who.workers.size(), std::uint8_t{1}) {
    dynamic_array<int> parts(plan.who.servers.size());
    for (const server_part& each : plan.parts) {
      ++parts[static_cast<std::size_t>(each.server)];
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] != 0) {
        own_ = static_cast<int>(i) == server ? ranks_.size() : own_;
        ranks_.push_back(plan.who.servers[i]);
      }
    }
    parts_ = static_cast<std::size_t>(parts[static_cast<std::size_t>(server)]);
    sent_ = dynamic_array<double>(store.totals().size());
    totals_ = dynamic_array<double>(ranks_.size() * sent_.size());
    incoming_ = dynamic_array<transfer>(ranks_.size());
    outgoing_ = dynamic_array<transfer>(ranks_.size());
    for (const int each : ranks_) {
      links.reserve(each, 2);
    }
  }

  /// When all gradients of a step have come, adds them up, and sums the totals over the servers. Returns whether that
  /// is done, once a step: then the store can update.
  [[nodiscard]] bool is_known(std::span<const server_client> clients) {
    if (!under_way_ && !begin(clients)) {
      return false;
    }
    for (transfer& each : incoming_) {
      if (each.active() && !links_->arrived(each)) {
        return false;
      }
    }
    under_way_ = false;
    added_up_ = false;
    const std::span<double> sums = store_->totals();
    for (std::size_t k = 0; k < sums.size(); ++k) {
      double sum = 0;
      for (std::size_t i = 0; i < ranks_.size(); ++i) {
        sum += of_server(i)[k];
      }
      sums[k] = sum;
    }
    store_->use_totals();
    return true;
  }

  /// @param silent  the ranks that do not answer
  /// @throws communication_error if it waits for another server
  void raise_missing(std::chrono::milliseconds patience, const dynamic_array<int>& silent) const {
    dynamic_array<int> missing;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (incoming_[i].active()) {
        missing.push_back(ranks_[i]);
      }
    }
    if (!missing.empty()) {
      raise<communication_error>("parameter_server: totals of other servers, for the norm of the gradients", {},
                                 missing_text(missing, silent, patience), "set_time_limit allows longer waits");
    }
  }

 private:
  /// False if a gradient has not come, or the messages of the last step have not gone yet.
  bool begin(std::span<const server_client> clients) {
    for (std::size_t part = 0; part < parts_; ++part) {
      if (!have_all(clients, part)) {
        return false;
      }
    }
    for (std::size_t part = 0; part < parts_ && !added_up_; ++part) {
      store_->add_up(part, {everyone_.data(), everyone_.size()});
    }
    added_up_ = true;
    bool gone = true;
    for (transfer& each : outgoing_) {
      gone = (!each.active() || links_->arrived(each)) && gone;
    }
    if (!gone) {
      return false;
    }
    const std::span<const double> own = store_->totals();
    std::copy(own.begin(), own.end(), sent_.begin());
    std::copy(own.begin(), own.end(), of_server(own_));
    const std::size_t bytes = own.size_bytes();
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (i != own_) {
        links_->receive(incoming_[i], ranks_[i], {reinterpret_cast<std::uint8_t*>(of_server(i)), bytes},
                        message_tag::totals);
        links_->send(outgoing_[i], ranks_[i], {reinterpret_cast<const std::uint8_t*>(sent_.data()), bytes},
                     message_tag::totals);
      }
    }
    under_way_ = true;
    return true;
  }

  [[nodiscard]] double* of_server(std::size_t i) noexcept { return totals_.data() + i * sent_.size(); }

  server_links* links_;
  variable_store* store_;
  dynamic_array<std::uint8_t> everyone_;  // by worker: all contribute
  dynamic_array<int> ranks_;              // of servers that have variables
  dynamic_array<double> totals_;          // (of each, the numbers of a sum)
  dynamic_array<transfer> incoming_;      // from each but this one
  dynamic_array<transfer> outgoing_;      // to each but this one
  std::size_t parts_ = 0;                 // of this server
  std::size_t own_ = 0;                   // this server, in ranks_
  dynamic_array<double> sent_;            // of this server
  bool under_way_ = false;
  bool added_up_ = false;
};

/// @throws configuration_error if servers cannot apply the rule: they never have the gradients of one step together, or
///         the loss is scaled, by workers that do not see the scale
template <class Element>
void require_rule_of_servers(const server_settings& settings, const optim::parameter_update<Element>& rule) {
  if (rule.scales_loss()) {
    raise<configuration_error>("parallel::parameter_server", "an update rule that does not scale the loss",
                               {"'", rule.description(), "'"},
                               "workers do not see the scale of the servers: train with parallel::all_reduce or "
                               "parallel::sharded_update");
  }
  if (rule.clips_norm() && (settings.mode != server_mode::synchronous || settings.backup_workers > 0)) {
    raise<configuration_error>(
        "parallel::parameter_server",
        {"synchronous servers without backup workers for an update that clips by the norm of all "
         "gradients of a step"},
        settings.describe(), ".clip_value of optim::update clips in every mode");
  }
}

}  // namespace gradus::parallel::detail
