// SPDX-License-Identifier: BSL-1.0
//
// A network on a GPU whose training steps a trainer launches as a graph.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::uint64_t
#include <span>         // std::span
#include <string>       // std::string
#include <type_traits>  // std::remove_reference_t

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/reference.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/nn/network/phase.hpp"
#include "gradus/nn/network/step_hooks.hpp"
#include "gradus/train/detail/trainer/step_capture.cuh"

namespace gradus::train {

/// The network that a trainer is given where forward, loss and backward shall be one graph: small networks wait for
/// launches otherwise.
///
///   train::captured_network recorded{net};
///   train::trainer trainer{recorded, optim::sgd{.momentum = 0.9}, communicator};
///
/// The first full batch runs eagerly, the second is captured into a CUDA graph, and later ones replay it; they are
/// copied to memory of this object. Smaller batches, and those that run in micro-batches, run eagerly. The results are
/// those of the network.
///
/// Strategy and update come after the graph, so any of them can be used. Their work during backward runs after
/// the launch. Hooks are called for all layers before the launch, and for the whole step as the
/// forward pass of the last one. The network must outlive it, and is the one to ask for anything else.
template <class Network>
class captured_network {
 public:
  /// As network::element_type: the type of images and values.
  using element_type = typename Network::element_type;
  /// As network::layout_type: the layout of images and values.
  using layout_type = typename Network::layout_type;
  /// As network::device_type.
  using device_type = typename Network::device_type;
  /// As network::const_view: a batch of images, (n, c, h, w), in the memory of the device.
  using const_view = typename Network::const_view;
  /// What the scores of a batch are compared with.
  using targets_type = nn::targets<typename Network::element_type, cuda>;

  /// @throws configuration_error when the network is not compiled
  explicit captured_network(borrowed<Network> network, error_location where = error_location::current())
      : network_{&network.get()}, recording_{network, where} {}

  /// As network::train_step. It waits for the loss and not for the step.
  kernels::loss_sums train_step(const const_view& images, const targets_type& batch_targets,
                                const nn::step_options& options = {}, nn::step_hooks* observer = nullptr,
                                error_location where = error_location::current()) {
    return at_call(where, [&] { return run_step(images, batch_targets, options, observer); });
  }

  /// Whether a step has been recorded.
  [[nodiscard]] bool recorded() const noexcept { return recording_.recorded(); }
  /// The network that it runs.
  [[nodiscard]] Network& network() const noexcept { return *network_; }
  /// The same network, for functions that take one of any layout.
  operator nn::network_base<element_type, device_type>&() const noexcept { return *network_; }

  /// As network::evaluate. It runs eagerly.
  kernels::loss_sums evaluate(const const_view& images, const targets_type& batch_targets,
                              error_location where = error_location::current()) {
    return network_->evaluate(images, batch_targets, where);
  }
  /// As network::evaluate with an observer of the scores. It runs eagerly.
  kernels::loss_sums evaluate(const const_view& images, const targets_type& batch_targets,
                              nn::score_observer<element_type, device_type>& observer,
                              error_location where = error_location::current()) {
    return network_->evaluate(images, batch_targets, observer, where);
  }
  /// As network::find_non_finite. It runs eagerly.
  [[nodiscard]] nn::non_finite find_non_finite(const const_view& images, const nn::step_options& options) {
    return network_->find_non_finite(images, options);
  }
  /// The same with targets. It runs eagerly.
  [[nodiscard]] nn::non_finite find_non_finite(const const_view& images, const targets_type& batch_targets,
                                               const nn::step_options& options) {
    return network_->find_non_finite(images, batch_targets, options);
  }
  /// As network::device.
  [[nodiscard]] device_type& device() const noexcept { return network_->device(); }
  /// As network::seed.
  [[nodiscard]] std::uint64_t seed() const noexcept { return network_->seed(); }
  /// As network::layers.
  [[nodiscard]] std::size_t layers() const noexcept { return network_->layers(); }
  /// As network::layer_name.
  [[nodiscard]] const std::string& layer_name(std::size_t layer) const { return network_->layer_name(layer); }
  /// As network::parameter_count.
  [[nodiscard]] index_t parameter_count() const { return network_->parameter_count(); }
  /// As network::structure.
  [[nodiscard]] const auto& structure() const noexcept { return network_->structure(); }
  /// As network::values.
  [[nodiscard]] auto values() const { return network_->values(); }
  /// As network::buffers.
  [[nodiscard]] auto buffers() const { return network_->buffers(); }
  /// As network::buffer_values.
  [[nodiscard]] auto buffer_values() const noexcept { return network_->buffer_values(); }
  /// As network::describe.
  [[nodiscard]] std::string describe() const { return network_->describe(); }
  /// As network::describe_options.
  [[nodiscard]] std::string describe_options() const { return network_->describe_options(); }

 private:
  kernels::loss_sums run_step(const const_view& images, const targets_type& batch_targets,
                              const nn::step_options& options, nn::step_hooks* observer) {
    if (!recording_.takes(images, batch_targets, options)) {
      return network_->train_step(images, batch_targets, options, observer);
    }
    if (observer != nullptr) {
      for (std::size_t layer = 0; layer < layers(); ++layer) {
        observer->before_layer(layer, nn::phase::forward);
        if (layer + 1 < layers()) {
          observer->after_layer(layer, nn::phase::forward);
        }
      }
    }
    const kernels::loss_sums sums =
        recording_.launch(images, batch_targets, 0.0, options, [&](const const_view& copy, const targets_type& wanted) {
          static_cast<void>(network_->train_step(copy, wanted, options));
        });
    if (observer != nullptr) {
      observer->after_layer(layers() - 1, nn::phase::forward);
      observer->gradients_ready(0, network_->structure().trained_parameters().size());
    }
    return sums;
  }

  Network* network_;
  detail::step_capture<Network> recording_;
};

template <class Network>
captured_network(Network&&, error_location = error_location::current())
    -> captured_network<std::remove_reference_t<Network>>;

}  // namespace gradus::train
