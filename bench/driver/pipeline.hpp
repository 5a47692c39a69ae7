// SPDX-License-Identifier: BSL-1.0
//
// Trainings in stages: their options, what a rank needs of the others, and what a dry run says.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/pipeline/network_layers.hpp"
#include "gradus/pipeline/strategy.hpp"
#include "result.hpp"
#include "settings.hpp"

namespace driver {

/// The stages of a network before it takes memory.
struct pipeline_forecast {
  gradus::parallel::network_stages cut;
  std::vector<gradus::nn::memory_forecast> memory;  // of each stage; without the state of the update rule
};

/// The strategy that was asked for. @pre completed
[[nodiscard]] gradus::parallel::hybrid pipeline_options(const settings& chosen);

/// @throws std::invalid_argument for what a pipeline cannot do, before anything has begun
void require_supported_pipeline(const settings& chosen);

/// @throws std::invalid_argument unless ranks form whole replicas
void require_whole_replicas(const settings& chosen, int ranks);

/// Bytes that rank 0 may take to measure the layers of the whole network: the limit of a rank, and not more than half
/// of the machine's memory.
[[nodiscard]] std::size_t memory_for_measuring(const settings& chosen);

/// What a result says of the pipeline. @param bubble  of the predicted step
[[nodiscard]] pipeline_properties properties_of(const settings& chosen, double bubble);

/// The lines of a dry run: a table of the stages, their memory, and the step that follows.
/// @param replicas  of the pipeline
void print_stages(const settings& chosen, const gradus::nn::graph& network, const pipeline_forecast& found,
                  int replicas);

}  // namespace driver
