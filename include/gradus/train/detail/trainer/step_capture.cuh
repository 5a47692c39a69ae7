// SPDX-License-Identifier: BSL-1.0
//
// Work on a batch that is recorded once on a GPU and launched as a graph.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::uint64_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <span>         // std::span
#include <type_traits>  // std::is_same_v

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/device/cuda_graph.cuh"
#include "gradus/device/cuda_step.cuh"
#include "gradus/kernels/cuda/softmax.cuh"
#include "gradus/nn/step_options.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus::train::detail {

/// A graph of work on a full batch of a network, and the memory that it reads the batch from.
template <class Network>
class step_capture {
  static_assert(std::is_same_v<typename Network::device_type, cuda>, "gradus: steps are recorded on gradus::cuda");
  using element = typename Network::element_type;

 public:
  using const_view = typename Network::const_view;
  using label_list = std::span<const std::int32_t>;

  /// @throws configuration_error when the network is not compiled
  step_capture(Network& network, error_location where)
      : device_{&checked(network, where).device()},
        images_{*device_, network.input_shape().batch(network.max_batch_size())},
        labels_{*device_, {network.max_batch_size()}},
        in_parts_{network.structure().examples_at_once() < network.max_batch_size()} {}

  /// Whether the batch is one for launch. The first full batch is not: when it is done, memory is taken and algorithms
  /// are chosen. Smaller batches are not, nor are those with another number of global examples than was captured, nor
  /// with another loss scale (the object, not the number, which is stored on the device), nor any of a network with
  /// micro-batches (compile_options::micro_batch_size), whose losses the host adds.
  [[nodiscard]] bool takes(const const_view& images, label_list labels, const nn::step_options& options) noexcept {
    if (in_parts_ || images.extents() != images_.extents() || static_cast<index_t>(labels.size()) != images.extent(0)) {
      return false;
    }
    if (graph_ != nullptr) {
      return global_of(images, options) == recorded_global_ && options.loss_scale == recorded_scale_;
    }
    const bool warm = warm_;
    warm_ = true;
    return warm;
  }

  /// Copies the batch, and does with it what work(images, labels) does; records that at the first call.
  /// @return  the loss of the step, which may go on
  template <class Work>
  kernels::loss_sums launch(const const_view& images, label_list labels, double learning_rate,
                            const nn::step_options& options, const Work& work) {
    auto& numbers = device_->context<captured_numbers>();
    if (graph_ == nullptr) {
      const captured_numbers::recording scope{numbers};
      graph_ = std::make_unique<cuda_graph>(*device_, [&] {
        work(const_view{*device_, images_.data(), images_.extents()},
             label_list{labels_.data(), static_cast<std::size_t>(labels_.size())});
      });
      recorded_global_ = global_of(images, options);
      recorded_scale_ = options.loss_scale;
    }
    device_->copy(images_.data(), images.data(), static_cast<std::size_t>(images.size()) * sizeof(element));
    device_->copy(labels_.data(), labels.data(), labels.size_bytes());
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

  cuda* device_;
  image_tensor<element, typename Network::layout_type, cuda> images_;
  tensor<std::int32_t, 1, row_major, cuda> labels_;
  std::unique_ptr<cuda_graph> graph_;
  index_t recorded_global_ = 0;
  loss_scale recorded_scale_;
  bool in_parts_;
  bool warm_ = false;
};

}  // namespace gradus::train::detail
