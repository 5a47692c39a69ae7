// SPDX-License-Identifier: BSL-1.0
//
// Replays steps of parallel::all_reduce: buckets, parts, order and credit as the strategy has them, and the message
// schedules of the collectives.
#pragma once

#include <map>      // std::map
#include <utility>  // std::move
#include <vector>   // std::vector

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/parallel/bucket.hpp"
#include "gradus/sim/cluster.hpp"
#include "gradus/sim/data_parallel_options.hpp"
#include "gradus/sim/detail/replay/data_parallel.hpp"
#include "gradus/sim/detail/replay/message_plan.hpp"
#include "gradus/sim/detail/replay/plan_library.hpp"
#include "gradus/sim/detail/replay/step_outline.hpp"
#include "gradus/sim/replayed_step.hpp"
#include "gradus/sim/workload.hpp"

namespace gradus::sim {

/// A training by parallel::all_reduce on `ranks` ranks of a cluster, ready to be replayed with several speeds of links
/// and several times of layers: the message schedules are made once.
///
/// Every message of every collective is an event, begun and processed as comm's executor of schedules does it. Where
/// all ranks do the same (rings, and hierarchical algorithms with rings) and a step has more than options.most_messages
/// messages, the ranks of one host or switch stand for all, and all compute as long as the slowest: a step ends when
/// the slowest rank's gradients have passed through all ranks. With more than options.most_exact_messages this also
/// holds for halving and doubling on a power of two of ranks and for segmented hierarchical algorithms, whose ranks
/// differ only in the order of the segments of a message.
class data_parallel_model {
 public:
  /// @throws configuration_error for a cluster, workload or options that make no sense, and for more than 2e7 messages
  ///         of a step that cannot be folded
  data_parallel_model(const cluster& of, const workload& work, data_parallel how, int ranks,
                      const replay_options& options = {})
      : of_{of}, how_{std::move(how)}, ranks_{ranks}, simulated_{ranks} {
    of.check();
    work.check();
    comm::require_all_reduce_rules(how_.rules);
    if (ranks < 1 || ranks > 65536 || how_.segment_bytes < 1) {
      raise<configuration_error>("sim::data_parallel_model", "1 to 65536 ranks and segment_bytes of at least 1",
                                 {ranks, " ranks and ", how_.segment_bytes, " bytes"});
    }
    const detail::step_outline outline{work, how_.gradients};
    for (const parallel::part& each : outline.plan.parts) {
      if (ranks > 1) {
        counts_.push_back(each.size());
      }
    }
    if (counts_.empty()) {
      return;
    }
    std::vector<int> group;
    for (int rank = 0; rank < ranks; ++rank) {
      group.push_back(rank);
    }
    detail::plan_library plans{of, std::move(group), how_, work.element_bytes, ranks};
    messages_ = plans.messages(counts_);
    const int unit = detail::unit_of(of, ranks);
    const bool folds = !options.every_rank && unit < ranks && messages_ > options.most_messages;
    if (folds && plans.make(counts_, unit)) {
      simulated_ = unit;
    } else if (folds && messages_ > options.most_exact_messages && plans.make(counts_, unit, true)) {
      simulated_ = unit;
      rough_ = true;
    } else if (messages_ > 2e7) {
      raise<configuration_error>("sim::data_parallel_model", "at most 2e7 messages a step", {messages_},
                                 "take a number of ranks that fills hosts and switches, or another algorithm");
    } else {
      plans.make(counts_, ranks);
    }
    plans_ = plans.take();
  }

  /// Replays steps.
  /// @param of    hosts and switches as in the constructor, with any speeds
  /// @param work  parameters as in the constructor, with any times
  /// @throws configuration_error if they are others, or a rank would wait for ever
  [[nodiscard]] replayed_step replay(const cluster& of, const workload& work,
                                     const replay_options& options = {}) const {
    of.check();
    work.check();
    const detail::step_outline outline{work, how_.gradients};
    if (of.ranks_per_host != of_.ranks_per_host || of.hosts_per_switch != of_.hosts_per_switch ||
        (ranks_ > 1 && outline.plan.parts.size() != counts_.size()) || options.steps < 1) {
      raise<configuration_error>(
          "sim::data_parallel_model", "the hosts and parameters of the constructor, and a step",
          {of.ranks_per_host, " ranks a host, ", outline.plan.parts.size(), " parts, ", options.steps, " steps"});
    }
    std::vector<const detail::message_plan*> of_parts;
    for (const index_t count : counts_) {
      of_parts.push_back(&plans_.at(count));
    }
    detail::data_parallel_replay replay{of, work, how_.gradients, outline, of_parts, ranks_, simulated_, options};
    replayed_step found = replay.run();
    found.rough = rough_;
    return found;
  }

  /// Messages of a step on all ranks, roughly: as if all sent as many as one.
  [[nodiscard]] double messages() const noexcept { return messages_; }
  /// Ranks that are replayed.
  [[nodiscard]] int simulated_ranks() const noexcept { return simulated_; }

 private:
  cluster of_;
  data_parallel how_;
  int ranks_;
  int simulated_;
  bool rough_ = false;
  double messages_ = 0;
  std::vector<index_t> counts_;  // elements of each part, in the order of travel
  std::map<index_t, detail::message_plan> plans_;
};

}  // namespace gradus::sim
