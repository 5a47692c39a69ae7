// SPDX-License-Identifier: BSL-1.0
//
// A training in stages as the simulator sees it: a schedule, the times of the stages, and what they send.
#pragma once

#include <vector>  // std::vector

#include "gradus/core/index.hpp"
#include "gradus/pipeline/schedule.hpp"
#include "gradus/pipeline/simulated_schedule.hpp"
#include "gradus/sim/data_parallel_options.hpp"

namespace gradus::sim {

/// One stage of a pipeline.
struct stage_work {
  parallel::pipeline_costs costs{};  ///< seconds of the passes of one micro-batch; `transfer` is not used
  double sent_bytes = 0;             ///< of one micro-batch to the next stage, and of its gradients back
  index_t elements = 0;              ///< of its gradients
  double update = 0;                 ///< seconds of its update
};

/// Replicas of a pipeline, as a trainer with parallel::hybrid has them: ranks 0 to schedule.ranks() - 1 are the first
/// replica.
struct pipeline_training {
  parallel::pipeline_schedule schedule;  ///< as parallel::pipeline_rule::make gives it
  std::vector<stage_work> stages{};      ///< schedule.stages() of them
  int replicas = 1;                      ///< of the pipeline
  data_parallel gradients{};             ///< how gradients are summed over the replicas of a stage
  index_t element_bytes = 4;             ///< of a gradient
  std::vector<double> variation{};       ///< workload::variation
};

}  // namespace gradus::sim
