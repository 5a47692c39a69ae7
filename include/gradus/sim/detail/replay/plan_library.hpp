// SPDX-License-Identifier: BSL-1.0
//
// The message plans of the arrays of a step, each made once; and which ranks stand for all.
#pragma once

#include <algorithm>  // std::max
#include <cstddef>    // std::size_t
#include <map>        // std::map
#include <optional>   // std::optional
#include <span>       // std::span
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/comm/call.hpp"
#include "gradus/comm/message_schedule.hpp"
#include "gradus/core/index.hpp"
#include "gradus/sim/cluster.hpp"
#include "gradus/sim/data_parallel_options.hpp"
#include "gradus/sim/detail/replay/message_plan.hpp"

namespace gradus::sim::detail {

/// Ranks that stand for all: those of a host, or of a switch where uplinks are shared. All ranks if nothing is the
/// same.
[[nodiscard]] inline int unit_of(const cluster& of, int ranks) noexcept {
  const bool several = of.hosts_per_switch > 0 && ranks > of.hosts_per_switch * of.ranks_per_host;
  const int unit = of.ranks_per_host * (several ? of.hosts_per_switch : 1);
  return unit < ranks && ranks % unit == 0 ? unit : ranks;
}

/// The message plans of arrays of several sizes, each made once.
class plan_library {
 public:
  plan_library(const cluster& of, std::vector<int> group, const data_parallel& how, index_t element_bytes, int ranks)
      : of_{of}, group_{std::move(group)}, how_{&how}, element_bytes_{element_bytes}, ranks_{ranks} {}

  /// Makes the plans of arrays with these numbers of elements. @return  false if the simulated ranks cannot stand for
  /// all
  bool make(std::span<const index_t> counts, int simulated, bool roughly = false) {
    plans_.clear();
    for (const index_t count : counts) {
      if (plans_.find(count) == plans_.end()) {
        std::optional<message_plan> one =
            message_plan::make(of_, shape_of(count), group_, element_bytes_, {simulated}, ranks_, roughly);
        if (!one) {
          return false;
        }
        plans_.emplace(count, std::move(*one));
      }
    }
    return true;
  }

  /// @pre made
  [[nodiscard]] const message_plan& of(index_t count) const { return plans_.at(count); }
  /// The plans by number of elements.
  [[nodiscard]] std::map<index_t, message_plan> take() { return std::move(plans_); }

  [[nodiscard]] comm::collective_shape shape_of(index_t count) const {
    const comm::all_reduce_rule& rule = comm::choose(how_->rules, count, element_bytes_);
    return {.kind = comm::call_kind::all_reduce,
            .algorithm = rule.algorithm,
            .rings = rule.rings,
            .count = count,
            .segment = std::max<index_t>(how_->segment_bytes / element_bytes_, 1)};
  }

  /// Messages of arrays of these sizes on all ranks, as if all sent as many as the first rank.
  [[nodiscard]] double messages(std::span<const index_t> counts) const {
    std::map<index_t, double> known;
    double sum = 0;
    for (const index_t count : counts) {
      const auto found = known.try_emplace(count, 0.0);
      if (found.second) {
        const std::vector<int> nodes = nodes_of(count);
        found.first->second = static_cast<double>(
            comm::message_schedule_of(shape_of(count), group_, static_cast<int>(group_.size()) - 1, nodes)
                ->sends()
                .size());
      }
      sum += found.first->second * static_cast<double>(group_.size());
    }
    return sum;
  }

 private:
  [[nodiscard]] std::vector<int> nodes_of(index_t count) const {
    std::vector<int> nodes;
    if (comm::is_hierarchical(shape_of(count).algorithm)) {
      for (const int rank : group_) {
        nodes.push_back(of_.host_of(rank));
      }
    }
    return nodes;
  }

  cluster of_;
  std::vector<int> group_;
  const data_parallel* how_;
  index_t element_bytes_;
  int ranks_;
  std::map<index_t, message_plan> plans_;
};

}  // namespace gradus::sim::detail
