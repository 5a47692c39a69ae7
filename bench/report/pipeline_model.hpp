// SPDX-License-Identifier: BSL-1.0
//
// The schedule that was followed, and what ranks wait in it by the times of passes.
#pragma once

#include <optional>  // std::optional
#include <vector>    // std::vector

#include "gradus/pipeline/rule.hpp"
#include "gradus/pipeline/schedule.hpp"
#include "gradus/pipeline/simulated_schedule.hpp"
#include "pipeline_passes.hpp"

namespace gradus::report::detail {

/// False for pipelines whose simulation would take too much time or memory.
bool may_simulate(int ranks, int stages_per_rank, int micro_batches);

/// The schedule that the ranks followed.
struct found_schedule {
  const parallel::pipeline_rule* rule = nullptr;    ///< that makes it; null: it is the recorded order
  std::optional<parallel::pipeline_schedule> made;  ///< empty: the recorded order is none that ranks could run
};
/// Compares the first steps that count with what each rule makes. @pre all.regular
found_schedule find_schedule(const pipeline_passes& all, bool splits_backward);

/// What each stage costs: the means of the ranks that were added.
class stage_costs {
 public:
  explicit stage_costs(const pipeline_passes& all) : sums_(static_cast<std::size_t>(all.stages)) {}

  void add(const rank_passes& rank);
  /// The measured means, times a factor.
  std::vector<parallel::pipeline_costs> measured(double factor = 1) const;
  /// The mean of all stages, for each of them.
  std::vector<parallel::pipeline_costs> equal() const;

 private:
  std::vector<pass_times> sums_;
};

/// How long each rank waits until the last one is done, microseconds; transfers take no time.
std::vector<double> waits_in(const parallel::pipeline_schedule& schedule,
                             const std::vector<parallel::pipeline_costs>& costs);

}  // namespace gradus::report::detail
