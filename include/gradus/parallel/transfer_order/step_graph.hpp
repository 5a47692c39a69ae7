// SPDX-License-Identifier: BSL-1.0
//
// A training step as a graph of computations and transfers with the time that each takes, and where these times come
// from: what the order of transfers (order.hpp) is decided on.
#pragma once

#include <chrono>       // std::chrono::duration, std::chrono::steady_clock
#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/network/phase.hpp"
#include "gradus/nn/network/step_hooks.hpp"
#include "gradus/nn/plan/graph.hpp"

namespace gradus::parallel {

/// One step of a worker: computations, and transfers over the network that computations wait for. Plain data, of any
/// origin: forward_graph makes one from the layers of a network.
///
/// The paper's terms (Hashemi, Abdu Jyothi, Campbell: "TicTac: accelerating distributed deep learning with
/// communication scheduling", 2019, section 3): a transfer is a "recv" operation, the root of what it unlocks; all
/// others are computations. Operations are added after those that they wait for, so their numbers are a topological
/// order.
class step_graph {
 public:
  /// The value of operation::transfer for a computation.
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  /// A computation or a transfer.
  struct operation {
    std::string name;                   ///< for messages
    double seconds = 0;                 ///< how long it takes, alone
    std::size_t transfer = none;        ///< its number among the transfers; none for a computation
    dynamic_array<std::size_t> inputs;  ///< operations that end before it begins
  };

  /// Adds a transfer, which waits for nothing.
  /// @returns  the number of the operation, for the inputs of others
  /// @throws configuration_error when the time is negative or not finite
  std::size_t add_transfer(std::string_view name, double seconds) {
    append(name, seconds, {});
    operations_.back().transfer = transfers_.size();
    transfers_.push_back(operations_.size() - 1);
    return operations_.size() - 1;
  }

  /// Adds a computation.
  /// @param inputs  numbers of operations that were added before
  /// @returns       the number of the operation
  /// @throws configuration_error when the time is negative or not finite, or an input is not there yet
  std::size_t add_computation(std::string_view name, std::span<const std::size_t> inputs, double seconds) {
    for (const std::size_t input : inputs) {
      if (input >= operations_.size()) {
        raise<configuration_error>({"step_graph, operation '", name, "'"},
                                   {"inputs among the ", operations_.size(), " operations before it"},
                                   {"operation ", input});
      }
    }
    append(name, seconds, inputs);
    return operations_.size() - 1;
  }

  /// In a topological order.
  [[nodiscard]] std::span<const operation> operations() const noexcept { return operations_; }
  /// How many transfers there are; they are counted in the order of add_transfer.
  [[nodiscard]] std::size_t transfers() const noexcept { return transfers_.size(); }
  /// The operation that transfer number `transfer` is. @pre transfer < transfers()
  [[nodiscard]] const operation& transfer(std::size_t transfer) const noexcept {
    return operations_[transfers_[transfer]];
  }

 private:
  void append(std::string_view name, double seconds, std::span<const std::size_t> inputs) {
    if (!is_finite(seconds) || seconds < 0) {
      raise<configuration_error>({"step_graph, operation '", name, "'"}, "a time of at least 0 seconds",
                                 {seconds, " seconds"});
    }
    operation& made = operations_.emplace_back();
    made.name = name;
    made.seconds = seconds;
    for (const std::size_t input : inputs) {
      made.inputs.push_back(input);
    }
  }

  dynamic_array<operation> operations_;
  dynamic_array<std::size_t> transfers_;  // the operation of each
};

/// The time of a transfer of which nothing was measured: latency + bytes / bandwidth.
struct link_model {
  double latency = 50e-6;           ///< seconds a message
  double bytes_per_second = 117e6;  ///< what TCP gets through Ethernet of 1 Gbit/s

  /// Seconds that a message of `bytes` bytes takes.
  [[nodiscard]] double seconds(index_t bytes) const noexcept {
    return latency + static_cast<double>(bytes) / bytes_per_second;
  }
};

/// What the operations of a step take, in seconds.
struct step_profile {
  /// The passes of a layer, for the batch of one rank.
  struct layer {
    double forward = 0;   ///< seconds of its forward pass
    double backward = 0;  ///< seconds of its backward pass
  };
  std::vector<layer> layers;  ///< in the order of network.add
  std::vector<double>
      transfers;              ///< one a parameter, in the order of network.trained_parameters(); empty: the link says
  link_model link;            ///< for transfers that were not measured
  index_t element_bytes = 4;  ///< of what is transferred
};

/// Measures the layers of a network: hand it to some calls of network.train_step.
///
/// Keeps the shortest time of each layer: what is above it is due to other work of the machine, not to the layer (the
/// paper's section 5 does the same). A layer that never ran alone (fused into another) takes 0.
///
///   parallel::profile_recorder recorder{net.layers()};
///   for (int step = 0; step < 5; ++step) { net.train_step(images, labels, {}, &recorder); }
///   const parallel::step_profile profile = recorder.profile();
class profile_recorder final : public nn::step_hooks {
 public:
  /// @param layers  network.layers()
  explicit profile_recorder(std::size_t layers) : layers_(layers) {}

  /// The same for a network on a device that computes while the host goes on, such as a GPU: waits for the device
  /// before and after each layer. @param device  outlives this object
  template <class Device>
  profile_recorder(std::size_t layers, Device& device)
      : layers_(layers), device_{&device}, wait_{[](void* erased) { static_cast<Device*>(erased)->synchronize(); }} {}

  void before_layer(std::size_t /*layer*/, nn::phase /*which*/) override {
    wait();
    begin_ = clock::now();
  }

  void after_layer(std::size_t layer, nn::phase which) override {
    wait();
    add(layer, which, std::chrono::duration<double>(clock::now() - begin_).count());
  }

  /// A layer that computes nothing says nothing of its time.
  void skip_layer(std::size_t /*layer*/) override {}

  /// Takes a time that was measured otherwise. A layer that there is not is ignored.
  void add(std::size_t layer, nn::phase which, double seconds) noexcept {
    if (layer >= layers_.size()) {
      return;
    }
    shortest& kept = which == nn::phase::forward ? layers_[layer].forward : layers_[layer].backward;
    if (!kept.seen || seconds < kept.seconds) {
      kept = {seconds, true};
    }
  }

  /// The shortest times so far; transfers by the link model until they are filled in.
  [[nodiscard]] step_profile profile() const {
    step_profile result;
    for (const times& each : layers_) {
      result.layers.push_back({each.forward.seconds, each.backward.seconds});
    }
    return result;
  }

 private:
  using clock = std::chrono::steady_clock;

  void wait() const {
    if (device_ != nullptr) {
      wait_(device_);
    }
  }

  struct shortest {
    double seconds = 0;
    bool seen = false;
  };
  struct times {
    shortest forward;
    shortest backward;
  };

  dynamic_array<times> layers_;
  void* device_ = nullptr;
  void (*wait_)(void* device) = nullptr;
  clock::time_point begin_{};
};

/// A profile without a measurement: every layer takes its multiply-adds at one speed, backward twice as long as
/// forward. Layers without multiply-adds (pooling, normalization) take nothing.
/// @param examples  of a step on one rank
inline step_profile estimated_profile(const nn::graph& network, index_t examples, double multiply_adds_per_second) {
  if (!(multiply_adds_per_second > 0)) {
    raise<configuration_error>("estimated_profile", "more than 0 multiply-adds a second", {multiply_adds_per_second});
  }
  step_profile result;
  for (const nn::graph::node& each : network.nodes()) {
    const double forward =
        static_cast<double>(each.layer->multiply_adds()) * static_cast<double>(examples) / multiply_adds_per_second;
    result.layers.push_back({forward, 2 * forward});
  }
  return result;
}

/// The number of each transfer's parameter in network.trained_parameters(), for the transfers of forward_graph: these
/// have the last layer first, the transfers come in the order in which the forward pass needs them.
inline std::vector<std::size_t> parameters_of_transfers(const nn::graph& network) {
  std::size_t after = 0;
  for (const nn::graph::node& each : network.nodes()) {
    after += each.trained().size();
  }
  std::vector<std::size_t> result;
  for (const nn::graph::node& each : network.nodes()) {
    after -= each.trained().size();  // the first parameter of this layer
    for (std::size_t k = 0; k < each.trained().size(); ++k) {
      result.push_back(after + k);
    }
  }
  return result;
}

/// The forward pass of a network whose parameters have to arrive first: one transfer a parameter that is trained, one
/// computation a layer, which waits for its parameters and for the layers whose outputs it reads. The transfers are
/// counted in the order in which the layers were added. The network need not be compiled.
/// @throws configuration_error when the profile is that of another network
inline step_graph forward_graph(const nn::graph& network, const step_profile& profile) {
  const std::vector<std::size_t> parameters = parameters_of_transfers(network);
  if (profile.layers.size() != network.nodes().size()) {
    raise<configuration_error>("forward_graph", {"the times of ", network.nodes().size(), " layers"},
                               {profile.layers.size()});
  }
  if (!profile.transfers.empty() && profile.transfers.size() != parameters.size()) {
    raise<configuration_error>("forward_graph", {"the times of ", parameters.size(), " transfers"},
                               {profile.transfers.size()});
  }
  step_graph result;
  dynamic_array<std::size_t> producer(network.nodes().size() + 1, step_graph::none);  // of each value
  dynamic_array<std::size_t> inputs;
  for (std::size_t i = 0; i < network.nodes().size(); ++i) {
    const nn::graph::node& layer = network.nodes()[i];
    inputs.clear();
    for (const nn::parameter_description& p : layer.trained()) {
      const double seconds = profile.transfers.empty() ? profile.link.seconds(p.shape.size() * profile.element_bytes)
                                                       : profile.transfers[parameters[result.transfers()]];
      inputs.push_back(result.add_transfer(p.name, seconds));
    }
    for (const std::size_t value : layer.inputs) {
      if (producer[value] != step_graph::none) {
        inputs.push_back(producer[value]);
      }
    }
    producer[i + 1] = result.add_computation(layer.name, inputs, profile.layers[i].forward);
  }
  return result;
}

}  // namespace gradus::parallel
