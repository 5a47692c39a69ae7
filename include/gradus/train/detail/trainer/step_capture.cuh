// SPDX-License-Identifier: BSL-1.0
//
// Work on a batch that is recorded once on a GPU and launched as a graph.
#pragma once

#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::uint64_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <type_traits>  // std::is_same_v

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/device/cuda_graph.cuh"
#include "gradus/device/cuda_step.cuh"
#include "gradus/kernels/cuda/softmax.cuh"
#include "gradus/nn/network/step_options.hpp"
#include "gradus/nn/targets.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus::train::detail {

/// A graph of work on a full batch of a network, and the memory that it reads the batch from.
template <class Network>
class step_capture {
  static_assert(std::is_same_v<typename Network::device_type, cuda>, "gradus: steps are recorded on gradus::cuda");
  using element = typename Network::element_type;
  using number = parameter_element_t<element>;

 public:
  using const_view = typename Network::const_view;
  using targets_type = nn::targets<element, cuda>;

  /// @throws configuration_error when the network is not compiled
  step_capture(Network& network, error_location where)
      : device_{&checked(network, where).device()},
        images_{*device_, network.input_shape().batch(network.max_batch_size())},
        example_{network.target_description()},
        labels_{*device_, {network.max_batch_size() * example_.labels}},
        values_{*device_, {example_.values.batch(network.max_batch_size()).size()}},
        weights_{*device_, {network.max_batch_size()}},
        in_parts_{network.structure().examples_at_once() < network.max_batch_size()} {}

  /// Whether the batch is one for launch. The first full batch is not: when it is done, memory is taken and algorithms
  /// are chosen. Smaller batches are not, nor are those with another number of global examples than was captured, nor
  /// with another loss scale (the object, not the number, which is stored on the device), nor any of a network with
  /// micro-batches (compile_options::micro_batch_size), whose losses the host adds.
  [[nodiscard]] bool takes(const const_view& images, const targets_type& batch_targets,
                           const nn::step_options& options) noexcept {
    if (in_parts_ || images.extents() != images_.extents() || sizes_of(batch_targets) != full_batch()) {
      return false;
    }
    if (graph_ != nullptr) {
      return global_of(images, options) == recorded_global_ && options.loss_scale == recorded_scale_ &&
             batch_targets.weights.empty() != weighted_;
    }
    const bool warm = warm_;
    warm_ = true;
    return warm;
  }

  /// Copies the batch, and does with it what work(images, targets) does; records that at the first call.
  /// @return  the loss of the step, which may go on
  template <class Work>
  kernels::loss_sums launch(const const_view& images, const targets_type& batch_targets, double learning_rate,
                            const nn::step_options& options, const Work& work) {
    auto& numbers = device_->context<captured_numbers>();
    if (graph_ == nullptr) {
      const captured_numbers::recording scope{numbers};
      graph_ = std::make_unique<cuda_graph>(*device_, [&] {
        work(const_view{*device_, images_.data(), images_.extents()}, own_targets(batch_targets));
      });
      weighted_ = !batch_targets.weights.empty();
      recorded_global_ = global_of(images, options);
      recorded_scale_ = options.loss_scale;
    }
    device_->copy(images_.data(), images.data(), static_cast<std::size_t>(images.size()) * sizeof(element));
    device_->copy(labels_.data(), batch_targets.labels.data(), batch_targets.labels.size_bytes());
    device_->copy(values_.data(), batch_targets.values.data(),
                  static_cast<std::size_t>(batch_targets.values.size()) * sizeof(number));
    device_->copy(weights_.data(), batch_targets.weights.data(), batch_targets.weights.size_bytes());
    const std::uint64_t launch = numbers.set(
        *device_, {.step = options.step, .first_example = options.first_example, .learning_rate = learning_rate});
    graph_->launch();
    return device_->context<kernels::detail::loss_memory>().take_of(launch);
  }

  [[nodiscard]] bool recorded() const noexcept { return graph_ != nullptr; }

 private:
  static Network& checked(Network& network, error_location where) {
    if (!network.compiled()) {
      raise<configuration_error>("captured step", "a compiled network", "one that is still being built",
                                 "call compile({.max_batch_size = ...}) first", where);
    }
    return network;
  }
  [[nodiscard]] static index_t global_of(const const_view& images, const nn::step_options& options) noexcept {
    return options.global_examples > 0 ? options.global_examples : images.extent(0);
  }

  /// Labels, real targets and weights.
  [[nodiscard]] static std::array<index_t, 2> sizes_of(const targets_type& batch_targets) noexcept {
    return {static_cast<index_t>(batch_targets.labels.size()), batch_targets.values.size()};
  }
  [[nodiscard]] std::array<index_t, 2> full_batch() const noexcept { return {labels_.size(), values_.size()}; }

  /// The targets that the graph reads, with weights if `like` has them.
  [[nodiscard]] targets_type own_targets(const targets_type& like) const {
    targets_type own;
    own.labels = {labels_.data(), static_cast<std::size_t>(labels_.size())};
    if (values_.size() != 0) {
      own.values = {*device_, values_.data(), like.values.extents()};
    }
    if (!like.weights.empty()) {
      own.weights = {weights_.data(), static_cast<std::size_t>(weights_.size())};
    }
    return own;
  }

  cuda* device_;
  image_tensor<element, typename Network::layout_type, cuda> images_;
  nn::target_description example_;  // of one example
  tensor<std::int32_t, 1, row_major, cuda> labels_;
  tensor<number, 1, row_major, cuda> values_;
  tensor<number, 1, row_major, cuda> weights_;
  std::unique_ptr<cuda_graph> graph_;
  index_t recorded_global_ = 0;
  loss_scale recorded_scale_;
  bool weighted_ = false;  // the captured step has weights
  bool in_parts_;
  bool warm_ = false;
};

}  // namespace gradus::train::detail
