// SPDX-License-Identifier: BSL-1.0
//
// A network as pipeline/stages.hpp cuts it, and its stages by the options of parallel::hybrid.
#pragma once

#include <algorithm>  // std::max
#include <cstddef>    // std::size_t
#include <optional>   // std::optional
#include <span>       // std::span
#include <string>     // std::string
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/network/compiled_network.hpp"
#include "gradus/nn/network/stage_forecast.hpp"
#include "gradus/nn/plan/compile_options.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/plan/stage_cuts.hpp"
#include "gradus/nn/plan/stage_layer.hpp"
#include "gradus/nn/plan/stage_plan.hpp"
#include "gradus/parallel/transfer_order/step_graph.hpp"
#include "gradus/pipeline/schedule.hpp"
#include "gradus/pipeline/stages.hpp"
#include "gradus/pipeline/strategy.hpp"

namespace gradus::parallel {

/// The layers of a network for a micro-batch. Times are estimates, in multiply-adds: a layer's two halves of backward
/// take as long as forward, and a pass over an element as long as 16 multiply-adds.
/// @param options  of compile; micro_batch_size is that of the pipeline
/// @throws configuration_error as network::compile_stages
template <class Element, class Device>
[[nodiscard]] std::vector<pipeline_layer> pipeline_layers(nn::compiled_network<Element, Device>& network,
                                                          const nn::compile_options& options) {
  const dynamic_array<nn::stage_layer> described = nn::stage_forecast<Element, Device>{network, options}.layers();
  const nn::graph& graph = network.structure();
  const index_t examples =
      options.micro_batch_size.examples > 0 ? options.micro_batch_size.examples : options.max_batch_size;
  std::vector<pipeline_layer> layers(described.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const nn::stage_layer& from = described[i];
    const double time = from.work * static_cast<double>(examples);
    pipeline_layer& to = layers[i];
    to.name = graph.name(i);
    to.inputs.assign(graph.nodes()[i].inputs.begin(), graph.nodes()[i].inputs.end());
    to.forward = time;
    to.input_gradients = from.runs_backward ? time : 0;
    to.weight_gradients = from.trained_bytes > 0 && from.runs_backward ? time : 0;
    // Values, gradients, sums of gradients, and one buffer of the update rule.
    to.state_bytes = from.parameter_bytes + 3 * from.trained_bytes + from.buffer_bytes;
    to.stored_bytes = from.stored_bytes;
    to.output_bytes = from.output_bytes;
    to.may_begin = from.may_begin;
  }
  return layers;
}

/// Puts measured times in the place of estimates.
/// @throws configuration_error unless there is one of each layer, finite and not below 0
inline void use_times(std::vector<pipeline_layer>& layers, std::span<const step_profile::layer> times) {
  if (times.size() != layers.size()) {
    raise<configuration_error>("parallel::hybrid", {"layer_times of the ", layers.size(), " layers of the network"},
                               {times.size()});
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const step_profile::layer& from = times[i];
    pipeline_layer& to = layers[i];
    if (!(from.forward >= 0 && from.backward >= 0 && is_finite(from.forward) && is_finite(from.backward))) {
      raise<configuration_error>("parallel::hybrid", {"times in seconds, layer_times, of layer '", to.name, "'"},
                                 {from.forward, " and ", from.backward});
    }
    to.forward = from.forward;
    const bool split = to.input_gradients > 0 && to.weight_gradients > 0;
    to.input_gradients = to.input_gradients > 0 ? from.backward / (split ? 2 : 1) : 0;
    to.weight_gradients = to.weight_gradients > 0 ? from.backward / (split ? 2 : 1) : 0;
  }
}

/// The options with which hybrid compiles a network: its own, or those of a network that is compiled, with the
/// micro-batches of the pipeline.
/// @throws configuration_error when there are none, or the network is compiled for inference
template <class Network>
[[nodiscard]] nn::compile_options compile_options_of(const hybrid& options, const Network& network) {
  if (network.inference()) {
    raise<configuration_error>("parallel::hybrid", "a network to train", "one that is compiled for inference");
  }
  if (!network.compiled() && !options.compile) {
    raise<configuration_error>("parallel::hybrid", "a compiled network, or the options to compile it", "neither",
                               "write parallel::hybrid{.stages = ..., .compile = nn::compile_options{.max_batch_size "
                               "= ...}}; net.compile takes memory for all layers");
  }
  nn::compile_options result = options.compile ? *options.compile : network.structure().options();
  if (result.max_batch_size < 1) {
    raise<configuration_error>("parallel::hybrid", "compile with a max_batch_size of at least 1",
                               {result.max_batch_size});
  }
  result.micro_batch_size = (result.max_batch_size - 1) / options.micro_batches + 1;
  return result;
}

/// The stages of a network: where it is cut, and what follows.
struct network_stages {
  nn::stage_cuts cuts;     ///< without the stages of a rank
  pipeline_stages stages;  ///< their times, memory and step
  std::string text;        ///< a table for people
};

namespace detail {

[[nodiscard]] inline network_stages stages_of_network(std::span<const pipeline_layer> layers, pipeline_stages stages) {
  network_stages result;
  result.stages = std::move(stages);
  for (const pipeline_stage& each : result.stages.stages) {
    result.cuts.first_layers.push_back(each.first);
  }
  result.text = stages_text(layers, result.stages);
  return result;
}

/// The layers, with measured times where there are.
template <class Network>
[[nodiscard]] std::vector<pipeline_layer> layers_of(Network& network, const hybrid& options,
                                                    const nn::compile_options& compiled) {
  std::vector<pipeline_layer> layers = pipeline_layers(network, compiled);
  if (!options.layer_times.empty()) {
    use_times(layers, options.layer_times);
  }
  return layers;
}

/// The micro-batches of the largest batch.
[[nodiscard]] inline int micro_batches_of(const nn::compile_options& compiled) {
  return static_cast<int>((compiled.max_batch_size - 1) / compiled.micro_batch_size.examples + 1);
}

}  // namespace detail

/// Cuts a network as the options say. The same on all ranks with the same network, options and kind of device.
/// @param compiled  of compile_options_of
/// @throws configuration_error when the network cannot be cut so
template <class Network>
[[nodiscard]] network_stages cut_network(Network& network, const hybrid& options, const nn::compile_options& compiled) {
  const std::vector<pipeline_layer> layers = detail::layers_of(network, options, compiled);
  const pipeline_schedule schedule =
      options.schedule.make(options.stages, detail::micro_batches_of(compiled), options.stages_per_rank);
  const stage_options limits{.memory_limit = options.memory_limit};
  return detail::stages_of_network(layers, options.first_layers.empty()
                                               ? cut_into_stages(layers, schedule, limits)
                                               : cut_at(layers, schedule, options.first_layers, limits));
}

/// The memory that each stage would take on the rank that runs it, without taking it; without the state of the update
/// rule.
/// @param cut  of the same network and options
/// @throws configuration_error as network::compile_stages
template <class Network>
[[nodiscard]] std::vector<nn::memory_forecast> forecast_stages(Network& network, const hybrid& options,
                                                               const nn::compile_options& compiled,
                                                               const network_stages& cut) {
  const std::vector<pipeline_stage>& stages = cut.stages.stages;
  const std::size_t ranks = stages.size() / static_cast<std::size_t>(options.stages_per_rank);
  nn::stage_forecast<typename Network::element_type, typename Network::device_type> forecast{network, compiled};
  std::vector<nn::stage_depth> depths;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    nn::stage_depth& depth = depths.emplace_back(nn::stage_depth{.stored = static_cast<std::size_t>(stages[s].stored),
                                                                 .splits_backward = options.schedule.splits_backward});
    for (std::size_t other = s % ranks; options.stages_per_rank > 1 && other < stages.size(); other += ranks) {
      depth.gradients = std::max(depth.gradients, static_cast<std::size_t>(stages[other].stored) + 1);
    }
  }
  return forecast.memory(cut.cuts, depths);
}

/// The fewest stages of a network, one a rank, with which every rank keeps within options.memory_limit;
/// options.stages and options.first_layers do not matter.
/// @param compiled  of compile_options_of
/// @param most      the largest number of stages that is tried
/// @return          the stages, or nothing if even `most` stages need more
/// @throws configuration_error when the network cannot be cut
template <class Network>
[[nodiscard]] std::optional<network_stages> cut_into_fewest(Network& network, const hybrid& options,
                                                            const nn::compile_options& compiled, int most = 256) {
  const std::vector<pipeline_layer> layers = detail::layers_of(network, options, compiled);
  stage_options limits{.memory_limit = options.memory_limit};
  for (;;) {
    std::optional<pipeline_stages> found = fewest_stages(
        layers, [&](int stages) { return options.schedule.make(stages, detail::micro_batches_of(compiled), 1); },
        limits, most);
    if (!found) {
      return {};
    }
    network_stages cut = detail::stages_of_network(layers, std::move(*found));
    std::size_t largest = 0;
    for (const nn::memory_forecast& each : forecast_stages(network, options, compiled, cut)) {
      largest = std::max(largest, each.total());
    }
    if (largest <= options.memory_limit) {
      return cut;
    }
    // The sums over layers do not count what values between the passes take.
    const double share = static_cast<double>(options.memory_limit) / static_cast<double>(largest);
    limits.memory_limit = static_cast<std::size_t>(0.999 * share * static_cast<double>(limits.memory_limit));
  }
}

}  // namespace gradus::parallel
