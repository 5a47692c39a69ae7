// SPDX-License-Identifier: BSL-1.0
//
// The schedules of the steps of a pipeline, and what its stages store in them.
#pragma once

#include <algorithm>  // std::max
#include <cstddef>    // std::size_t
#include <vector>     // std::vector

#include "gradus/pipeline/rule.hpp"
#include "gradus/pipeline/schedule.hpp"
#include "gradus/pipeline/simulated_schedule.hpp"

namespace gradus::parallel::detail {

/// The schedules of steps of 1, 2, ..., `most` micro-batches, checked, and what each stage stores.
class schedules_of_steps {
 public:
  /// @throws configuration_error when a schedule is not complete, or its ranks would wait for each other forever
  schedules_of_steps(const pipeline_rule& rule, int ranks, int most, int stages_per_rank)
      : stored_(static_cast<std::size_t>(ranks * stages_per_rank)) {
    for (int micro_batches = 1; micro_batches <= most; ++micro_batches) {
      const pipeline_schedule& made = schedules_.emplace_back(rule.make(ranks, micro_batches, stages_per_rank));
      const std::vector<int> stored = simulate_schedule(made).stored;
      for (std::size_t s = 0; s < stored_.size(); ++s) {
        stored_[s] = std::max(stored_[s], static_cast<std::size_t>(stored[s]));
      }
    }
  }

  /// Of a step. @pre 0 < micro_batches <= most
  [[nodiscard]] const pipeline_schedule& of(int micro_batches) const noexcept {
    return schedules_[static_cast<std::size_t>(micro_batches) - 1];
  }
  /// Micro-batches that a stage stores at a time, at most.
  [[nodiscard]] std::size_t stored(std::size_t stage) const noexcept { return stored_[stage]; }

 private:
  std::vector<pipeline_schedule> schedules_;
  std::vector<std::size_t> stored_;
};

}  // namespace gradus::parallel::detail
