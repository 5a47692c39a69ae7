// SPDX-License-Identifier: BSL-1.0
//
// What the stages of a network would take, before any memory is taken: for the decision where to cut it.
#pragma once

#include <algorithm>  // std::max
#include <cstddef>    // std::size_t
#include <span>       // std::span
#include <vector>     // std::vector

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/detail/network/layer_execution.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/network/compiled_network.hpp"
#include "gradus/nn/plan/compile_options.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/plan/parameter_offsets.hpp"
#include "gradus/nn/plan/plan_stage.hpp"
#include "gradus/nn/plan/stage_cuts.hpp"
#include "gradus/nn/plan/stage_layer.hpp"
#include "gradus/nn/plan/stage_plan.hpp"

namespace gradus::nn {

/// The stages of a network as options would compile them. It takes no memory for values and parameters, and leaves the
/// network as it was: compiled or not.
template <class Element, class Device>
class stage_forecast {
  using network_type = compiled_network<Element, Device>;
  using execution_type = detail::layer_execution<Element, Device>;
  using number = parameter_element_t<Element>;

 public:
  /// @param net      outlives it
  /// @param options  of network::compile_stages
  stage_forecast(network_type& net, const compile_options& options) : net_{&net}, options_{options} {}

  /// The layers of the network, for pipeline/stages.hpp.
  /// @throws configuration_error as network::compile_stages
  [[nodiscard]] dynamic_array<stage_layer> layers(error_location where = error_location::current()) {
    dynamic_array<stage_layer> result;
    compiled(nullptr, where,
             [&](const graph& net, const dynamic_array<layer_memory>& needed, const execution_plan& whole) {
               const graph_description description = net.describe_for_plan(needed, sizeof(Element));
               const dynamic_array<std::size_t> stored = stored_bytes(description, whole);
               const dynamic_array<unsigned char> allowed = cuts_allowed(whole);
               for (std::size_t i = 0; i < needed.size(); ++i) {
                 const graph::node& n = net.nodes()[i];
                 index_t buffers = 0;
                 for (const buffer_description& each : n.buffers) {
                   buffers += each.size;
                 }
                 result.push_back({.parameter_bytes = bytes_of(n.parameter_count()),
                                   .trained_bytes = n.trained().empty() ? 0 : bytes_of(n.parameter_count()),
                                   .buffer_bytes = bytes_of(buffers),
                                   .stored_bytes = stored[i],
                                   .output_bytes = description.nodes[i].output_bytes,
                                   .work = description.nodes[i].work,
                                   .runs_backward = whole.nodes[i].backward,
                                   .may_begin = allowed[i] != 0});
               }
             });
    return result;
  }

  /// The memory of each stage on the rank that runs it: `parameters`, `gradients` and `buffers` are those of the stage,
  /// and `plan` is empty. The network is planned once for all of them.
  /// @param cuts    which stages are this rank's does not matter
  /// @param depths  of each stage
  /// @throws configuration_error as network::compile_stages
  [[nodiscard]] std::vector<memory_forecast> memory(const stage_cuts& cuts, std::span<const stage_depth> depths,
                                                    error_location where = error_location::current()) {
    stage_cuts all{.first_layers = cuts.first_layers, .own = {}};
    for (std::size_t stage = 0; stage < cuts.stages(); ++stage) {
      all.own.push_back(stage);
    }
    std::vector<memory_forecast> result(all.own.size());
    compiled(
        &all, where, [&](const graph& net, const dynamic_array<layer_memory>& needed, const execution_plan& whole) {
          const graph_description description = net.describe_for_plan(needed, sizeof(Element));
          for (std::size_t stage = 0; stage < result.size(); ++stage) {
            const stage_plan planned =
                plan_stage(description, whole, net.stages(), stage, depths[stage], execution_type::training_plan(net));
            memory_forecast& of = result[stage];
            of.arena = planned.plan.arena_bytes;
            parameter_counts counts;
            for (std::size_t i = planned.first; i < planned.end; ++i) {
              of.workspace = std::max(of.workspace, needed[i].workspace);
              counts += parameter_counts_of(net.nodes()[i], sizeof(number));
            }
            of.parameters = bytes_of(counts.elements);
            of.gradients = bytes_of(counts.gradients) + bytes_of(counts.trained);
            of.buffers = bytes_of(counts.buffers);
          }
        });
    return result;
  }

 private:
  [[nodiscard]] static std::size_t bytes_of(index_t elements) noexcept {
    return static_cast<std::size_t>(elements) * sizeof(number);
  }

  /// Calls body(graph, memory of layers, plan) while the graph is compiled with the options, and restores what it was.
  template <class Body>
  void compiled(const stage_cuts* stages, error_location where, const Body& body) {
    graph& net = net_->graph_;
    const compile_options before = net.options();
    const stage_cuts stages_before = net.stages();
    const bool was_compiled = net.compiled();
    const bool was_inference = net.inference();
    const auto restore = [&] {
      net.undo_compile();
      if (was_compiled) {
        net.compile(before, sizeof(number), was_inference, stages_before.stages() > 0 ? &stages_before : nullptr);
      }
    };
    net.undo_compile();
    try {
      at_call(where, [&, this] {
        net.compile(options_, sizeof(number), false, stages);
        const dynamic_array<layer_memory> needed = net_->execution_.memory_of_layers(net);
        body(net, needed, execution_type::whole_plan(net, needed, execution_type::training_plan(net)));
      });
    } catch (...) {
      restore();
      throw;
    }
    restore();
  }

  network_type* net_;
  compile_options options_;
};

}  // namespace gradus::nn
