// SPDX-License-Identifier: BSL-1.0
//
// The structure of a network: its graph, and what of it is trained. Compiled once for all element types, layouts and
// devices.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/network/parameter_options.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::nn {

/// The base of network<Element, Layout, Device> that all networks share.
class network_structure {
 public:
  // ---- structure

  /// True after compile.
  [[nodiscard]] bool compiled() const noexcept { return graph_.compiled(); }
  /// True after compile_for_inference.
  [[nodiscard]] bool inference() const noexcept { return compiled() && graph_.inference(); }
  /// The largest batch, in examples. @pre compiled
  [[nodiscard]] index_t max_batch_size() const noexcept { return graph_.options().max_batch_size; }
  /// The seed of the initial values and of layers such as dropout. @pre compiled
  [[nodiscard]] std::uint64_t seed() const noexcept { return graph_.options().seed; }
  /// The shape of one example of the input.
  [[nodiscard]] const value_shape& input_shape() const noexcept { return graph_.shape(0); }
  /// The shape of one example of the scores that forward returns.
  [[nodiscard]] const value_shape& output_shape() const { return graph_.shape(graph_.scores()); }
  /// The number of layers.
  [[nodiscard]] std::size_t layers() const noexcept { return graph_.nodes().size(); }
  /// The name of a layer. @throws std::out_of_range when there is no such layer
  [[nodiscard]] const std::string& layer_name(std::size_t layer) const { return graph_.name(layer); }
  /// The graph of layers, values and parameters, without memory.
  [[nodiscard]] const graph& structure() const noexcept { return graph_; }
  /// The range of a layer's parameters in parameters(). @pre compiled
  [[nodiscard]] parameter_range parameters_of(std::size_t layer) const noexcept {
    const graph::node& n = graph_.nodes()[layer];
    return {.first = n.first_parameter, .count = n.parameters.size()};
  }

  /// The number of elements of all parameters.
  [[nodiscard]] index_t parameter_count() const { return graph_.parameter_count(); }
  /// Multiply-adds of one forward pass over one example.
  [[nodiscard]] index_t multiply_adds() const { return graph_.multiply_adds(); }
  /// A text with one line for each layer (name, kind, output shape, parameters, multiply-adds) and the totals. Networks
  /// with equal texts compute the same.
  [[nodiscard]] std::string describe() const { return graph_.describe(); }

  // ---- what is trained

  /// Excludes the layers whose names fit a pattern from training: their parameters keep their values. Their gradients
  /// are neither computed nor sent, and layers from which no trained parameter is reached do not run backward. Call it
  /// before compile. The last call for a layer counts.
  ///
  ///   net.freeze("encoder.*");
  ///   net.freeze("encoder.norm?", {.evaluates = true});  // with running statistics
  ///
  /// @param pattern  of whole names: * stands for any characters, ? for one
  /// @throws configuration_error when no layer fits, with the nearest names, or the network is compiled
  void freeze(std::string_view pattern, const freeze_options& options = {},
              error_location where = error_location::current()) {
    at_call(where, [&, this] { graph_.freeze(pattern, options); });
  }

  /// Sets hyper-parameters of the parameters whose names, "layer.weight", fit a pattern. A trainer takes them when it
  /// is made, for any update rule. What a later call sets for a parameter replaces what an earlier one has set.
  ///
  ///   net.group("head.*", {.learning_rate_factor = 10});
  ///   net.group("*.bias", {.weight_decay = false});
  ///
  /// @param pattern  of whole names: * stands for any characters, ? for one
  /// @throws configuration_error when no parameter fits, with the nearest names, or a factor is not above 0
  void group(std::string_view pattern, const parameter_options& options,
             error_location where = error_location::current()) {
    at_call(where, [&, this] { graph_.group(pattern, options); });
  }

 protected:
  /// A graph without layers.
  explicit network_structure(const value_shape& input) : graph_{input} {}
  /// As network.
  network_structure(network_structure&& other) noexcept = default;
  /// As network.
  network_structure& operator=(network_structure&& other) noexcept = default;
  ~network_structure() = default;

  graph graph_;  ///< of the layers; they are made and run by the derived classes
};

}  // namespace gradus::nn
