// SPDX-License-Identifier: BSL-1.0
//
// What all ranks of an all-reduce do in a step, from the plan of the strategy and the times of the layers.
#pragma once

#include <algorithm>  // std::max, std::min
#include <cstddef>    // std::size_t
#include <vector>     // std::vector

#include "gradus/core/config.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/bucket.hpp"
#include "gradus/parallel/transfer_plan.hpp"
#include "gradus/sim/workload.hpp"

namespace gradus::sim::detail {

/// A run of layers of forward, and how many parts must have been taken before it.
struct forward_piece {
  double seconds = 0;
  std::size_t take = 0;
};

/// What all ranks do in a step, from the plan of the strategy.
struct step_outline {
  parallel::transfer_plan plan;
  std::vector<forward_piece> forward;
  std::vector<double> backward;        ///< seconds until each bucket is complete, from the one before
  double after_backward = 0;           ///< seconds of layers in front of the first with parameters
  double all_updates = 0;              ///< seconds of the update of all parameters
  std::vector<double> update;          ///< seconds of each bucket
  std::vector<std::size_t> last_part;  ///< of each bucket, the last in the order of travel, plus one

  step_outline(const workload& work, const parallel::all_reduce& options)
      : plan{parallel::plan_transfers(options, work.segments, work.elements, work.element_bytes)} {
    const std::size_t buckets = plan.buckets.size();
    last_part.assign(buckets, 0);
    for (std::size_t i = 0; i < plan.parts.size(); ++i) {
      last_part[plan.parts[i].bucket] = i + 1;
    }
    std::vector<std::size_t> needs(work.layers.size(), 0);  // parts that must be taken before a layer
    std::size_t next = work.layers.size();
    double passed = work.other;
    for (const parallel::bucket& each : plan.buckets) {
      // The bucket is complete when backward has passed the layer of its last segment.
      std::size_t lowest = next;
      for (std::size_t s = each.first_segment; s < each.end_segment(); ++s) {
        lowest = std::min(lowest, work.layer_of_segment[s]);
        std::size_t& need = needs[work.layer_of_segment[s]];
        need = std::max(need, last_part[plan.parts.empty() ? 0 : bucket_of(each)]);
      }
      while (next > lowest) {
        passed += work.layers[--next].backward;
      }
      backward.push_back(passed);
      passed = 0;
      update.push_back(
          work.elements > 0 ? work.update * static_cast<double>(each.size()) / static_cast<double>(work.elements) : 0);
    }
    while (next > 0) {
      passed += work.layers[--next].backward;
    }
    after_backward = passed;
    all_updates = work.update;
    make_forward(work, options.overlap_forward ? needs : std::vector<std::size_t>(needs.size(), 0));
  }

 private:
  [[nodiscard]] std::size_t bucket_of(const parallel::bucket& one) const noexcept {
    return static_cast<std::size_t>(&one - plan.buckets.data());
  }

  void make_forward(const workload& work, const std::vector<std::size_t>& needs) {
    forward.push_back({});
    for (std::size_t i = 0; i < work.layers.size(); ++i) {
      if (needs[i] > forward.back().take) {
        forward.push_back({.seconds = 0, .take = needs[i]});
      }
      forward.back().seconds += work.layers[i].forward;
    }
  }
};

}  // namespace gradus::sim::detail
