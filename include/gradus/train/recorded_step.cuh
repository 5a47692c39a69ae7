// SPDX-License-Identifier: BSL-1.0
//
// A training step on one GPU, recorded once and launched as a graph.
// Module: train. Depends on: parallel.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::uint64_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <span>         // std::span
#include <type_traits>  // std::is_same_v
#include <utility>      // std::move

#include "gradus/core/element.hpp"              // parameter_element_t
#include "gradus/core/index.hpp"                // index_t
#include "gradus/core/vector.hpp"               // vector
#include "gradus/device/cuda.cuh"               // cuda
#include "gradus/device/cuda_graph.cuh"         // cuda_graph
#include "gradus/device/cuda_step.cuh"          // recorded_numbers
#include "gradus/kernels/cuda/softmax.cuh"      // loss_memory
#include "gradus/nn/network.hpp"                // step_options
#include "gradus/optim/segment.hpp"             // segment
#include "gradus/tensor/tensor.hpp"             // tensor
#include "gradus/train/detail/step_update.hpp"  // trained_parameters_of

namespace gradus::train {

/// Forward, loss, backward and update of a network as one graph: small networks wait for launches otherwise.
///
///   train::recorded_step step{net, optim::sgd{.momentum = 0.9}};
///   const kernels::loss_sums sums = step(batch->images, batch->labels, learning_rate, place);
///
/// The first full batch runs as it always does, the second is recorded, and later ones are launched; they are copied to
/// memory of the step's own. Smaller batches, and others with another number of global examples, run as they always do.
/// A call waits for the loss and not for the step. The results are those of train_step and update.
///
/// For one rank, and for update rules that do not wait for the device: sgd. The network must outlive it.
template <class Network, class Update>
class recorded_step {
  static_assert(std::is_same_v<typename Network::device_type, cuda>, "gradus: steps are recorded on gradus::cuda");
  using element = typename Network::element_type;
  using parameter_element = parameter_element_t<element>;

 public:
  using const_view = typename Network::const_view;

  /// @throws configuration_error when the network is not frozen or the rule makes no sense
  recorded_step(Network& network, const Update& rule)
      : network_{&network},
        segments_{std::move(detail::trained_parameters_of(network).segments)},
        state_{network.device(), rule, static_cast<index_t>(network.values().size())},
        images_{network.device(), network.input_shape().batch(network.batch_size())},
        labels_{network.device(), {network.batch_size()}} {}

  /// One step. @param labels  in the memory of the device
  /// @throws shape_error when shapes disagree
  kernels::loss_sums operator()(const_view images, std::span<const std::int32_t> labels, double learning_rate,
                                const nn::step_options& place = {}) {
    const bool full =
        images.extents() == images_.extents() && static_cast<index_t>(labels.size()) == network_->batch_size();
    const index_t global = place.global_examples > 0 ? place.global_examples : images.extent(0);
    if (!full || (graph_ != nullptr && global != recorded_global_)) {
      return run(images, labels, learning_rate, place);
    }
    if (graph_ == nullptr && !warm_) {
      warm_ = true;  // memory is taken and algorithms are chosen by now
      return run(images, labels, learning_rate, place);
    }
    if (graph_ == nullptr) {
      record(learning_rate, place);
      recorded_global_ = global;
    }
    cuda& device = network_->device();
    ++launches_;
    device.copy(images_.data(), images.data(), static_cast<std::size_t>(images.size()) * sizeof(element));
    device.copy(labels_.data(), labels.data(), labels.size_bytes());
    device.context<gradus::detail::recorded_numbers>().set(device, {.launch = launches_,
                                                                    .step = place.step,
                                                                    .first_example = place.first_example,
                                                                    .learning_rate = learning_rate});
    graph_->launch();
    return device.context<kernels::detail::loss_memory>().take_of(launches_);
  }

  /// Whether the step has been recorded.
  [[nodiscard]] bool recorded() const noexcept { return graph_ != nullptr; }
  /// The optimizer's state.
  [[nodiscard]] auto& update_state() noexcept { return state_; }

 private:
  kernels::loss_sums run(const_view images, std::span<const std::int32_t> labels, double learning_rate,
                         const nn::step_options& place) {
    const kernels::loss_sums sums = network_->train_step(images, labels, place);
    state_.update(network_->device(), {segments_.data(), segments_.size()}, network_->values().data(),
                  network_->gradients().data(), learning_rate);
    return sums;
  }

  void record(double learning_rate, const nn::step_options& place) {
    cuda& device = network_->device();
    const gradus::detail::recorded_numbers::recording scope{device.context<gradus::detail::recorded_numbers>()};
    graph_ = std::make_unique<cuda_graph>(device, [&] {
      const const_view images{device, images_.data(), images_.extents()};
      static_cast<void>(run(images, {labels_.data(), static_cast<std::size_t>(labels_.size())}, learning_rate, place));
    });
  }

  Network* network_;
  gradus::detail::vector<optim::segment> segments_;
  typename Update::template state<parameter_element, cuda> state_;
  image_tensor<element, typename Network::layout_type, cuda> images_;
  tensor<std::int32_t, 1, row_major, cuda> labels_;
  std::unique_ptr<cuda_graph> graph_;
  index_t recorded_global_ = 0;
  std::uint64_t launches_ = 0;
  bool warm_ = false;
};

}  // namespace gradus::train
