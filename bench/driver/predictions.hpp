// SPDX-License-Identifier: BSL-1.0
//
// A training with one strategy as the simulator replays it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/sim/cluster.hpp"
#include "gradus/sim/network_text.hpp"
#include "gradus/sim/prediction.hpp"
#include "gradus/sim/replayed_step.hpp"
#include "gradus/trace/recorder.hpp"
#include "input.hpp"
#include "pipeline.hpp"
#include "profile.hpp"
#include "settings.hpp"
#include "training.hpp"

namespace driver {

/// A network that is not compiled, with what it was made from.
struct forecast_network {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::trace::recorder unused{{.capacity = 1, .enabled = false}};
  std::unique_ptr<input_set> images;
  std::unique_ptr<training> trained;
};

/// What all predictions share.
struct prediction_inputs {
  settings chosen;  // completed
  step_source source;
  gradus::sim::described_network network;
  std::shared_ptr<const forecast_network> forecast{};
  std::optional<pipeline_forecast> stages{};      // with --stages
  std::vector<gradus::index_t> layer_elements{};  // parameters of each layer
};

/// Reads --network: a description, or a file that has one.
/// @throws std::invalid_argument
[[nodiscard]] gradus::sim::described_network network_of(const settings& chosen);

/// The numbers of --ranks: "4..128" or "4,8,16". @throws std::invalid_argument
[[nodiscard]] std::vector<int> rank_numbers(const std::string& text);

/// The algorithm of a strategy that reduces by messages, such as "ring".
[[nodiscard]] std::optional<gradus::comm::all_reduce_algorithm> all_reduce_algorithm_of(const std::string& strategy);

/// The strategies that were asked for, or those that the options suggest. @throws std::invalid_argument
[[nodiscard]] std::vector<std::string> strategies_of(const settings& chosen);

/// Why a number of ranks cannot run a strategy; empty if it can.
[[nodiscard]] std::string obstacle(const prediction_inputs& given, const std::string& strategy, int ranks);

/// @param spans  keep what the ranks do
/// @pre there is no obstacle
[[nodiscard]] gradus::sim::prediction predict_one(const prediction_inputs& given, const std::string& strategy,
                                                  int ranks, bool spans = false);

/// Fits the rows of --calibrate and prints what follows.
/// @param work  of one device
/// @throws std::invalid_argument when the file is not what it should be
void calibrate(const settings& chosen, const gradus::sim::workload& work);

}  // namespace driver
