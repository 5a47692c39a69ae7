// SPDX-License-Identifier: BSL-1.0
//
// The layer synchronized_batch_norm: batch normalization by the statistics of the batches of all ranks.
#pragma once

#include <algorithm>    // std::copy
#include <cstddef>      // std::byte, std::size_t
#include <memory>       // std::unique_ptr
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/kernels/cpu/synchronized_batch_norm.hpp"
#include "gradus/kernels/synchronized_batch_norm.hpp"
#include "gradus/nn/initializer.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/layers/batch_norm.hpp"
#include "gradus/nn/network/statistics_group.hpp"

namespace gradus::nn {

/// Options of synchronized batch normalization (Peng et al. 2018, section 3.3; PyTorch: SyncBatchNorm): batch_norm
/// whose mean and variance, and whose sums in the gradient of x, are those of the batches of all ranks of a group.
///
/// Ranks with any number of examples, also none, compute what one process computes with all of them, to rounding, and
/// have the same running statistics. The gradients of gamma and beta are those of the rank's own examples: a strategy
/// sums them, as all gradients. Outside training, and where a forward pass runs again for backward, ranks do not
/// communicate. A training step has one all-reduce of 2 C + 1 numbers in forward (two for double) and one in backward.
///
/// All ranks add the same layers in the same order and train the same number of steps. Batches are not computed in
/// micro-batches. On a GPU (gradus/kernels/cuda/synchronized_batch_norm.cuh) the sums travel through the host, and the
/// step cannot be captured.
/// @throws configuration_error (network::add) without a group, or as batch_norm
/// @throws configuration_error (network::compile) for a micro_batch_size below max_batch_size
/// @throws shape_error (network::add) for a flattened image, or (training, on all ranks) for one value per channel in
///         the batches of all ranks
struct synchronized_batch_norm {
  statistics_group* group = nullptr;        ///< the ranks, as parallel::synchronized_statistics; outlives the network
  double momentum = 0.1;                    ///< as that of batch_norm
  double epsilon = 1e-5;                    ///< added to the variance
  bool scale = true;                        ///< learn gamma
  bool shift = true;                        ///< learn beta
  initializer scale_initializer = ones();   ///< of gamma
  initializer shift_initializer = zeros();  ///< of beta

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class layer;
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class synchronized_batch_norm_base : public batch_norm_base {
 public:
  explicit synchronized_batch_norm_base(const synchronized_batch_norm& options)
      : batch_norm_base{batch_norm{.momentum = options.momentum,
                                   .epsilon = options.epsilon,
                                   .scale = options.scale,
                                   .shift = options.shift,
                                   .scale_initializer = options.scale_initializer,
                                   .shift_initializer = options.shift_initializer}},
        group_{options.group} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "synchronized_batch_norm"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    if (group_ == nullptr) {
      raise<configuration_error>(kind(), "a group of ranks", "none",
                                 "write .group = &statistics, with parallel::synchronized_statistics "
                                 "statistics{world}");
    }
    const value_shape result = batch_norm_base::infer(inputs);
    if (sum_ == nullptr) {
      sum_ = group_->make_sum();
    }
    const auto channels = static_cast<std::size_t>(result.channels);
    numbers_.resize(2 * channels + 1);
    means_.resize(channels);
    squares_.resize(channels);
    return result;
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    layer_traits result = batch_norm_base::traits();
    result.writes_residual_gradient = false;
    result.communicates = true;
    return result;
  }

 protected:
  /// Room for two numbers of each channel.
  [[nodiscard]] std::span<double> sums() noexcept { return std::span{numbers_}.first(numbers_.size() - 1); }

  /// Replaces sums() by their sums over the ranks. @return the sum of `count`
  double add_ranks(double count) {
    numbers_.back() = count;
    sum_->sum(numbers_);
    return numbers_.back();
  }

  /// Replaces the means and squares around them in sums() by those of all ranks' values. @return their number
  /// @param exact  true: squares are taken around the mean of all ranks, in a second sum (Chan et al. 1979). Else sums
  ///               of squares are added, whose rounding in double precision is small against that of x in float.
  double merge_ranks(double count, bool exact) {
    const std::size_t channels = numbers_.size() / 2;
    double* const first = numbers_.data();
    double* const second = first + channels;
    if (exact) {
      std::copy(first, second, means_.begin());
      std::copy(second, second + channels, squares_.begin());
      for (std::size_t c = 0; c < channels; ++c) {
        first[c] *= count;
      }
      const double all = add_ranks(count);
      for (std::size_t c = 0; c < channels && all > 0; ++c) {
        const double mean = first[c] / all;
        second[c] = count > 0 ? squares_[c] + count * (means_[c] - mean) * (means_[c] - mean) : 0.0;
        means_[c] = mean;
      }
      add_ranks(count);
      std::copy(means_.begin(), means_.end(), first);
      return all;
    }
    for (std::size_t c = 0; c < channels; ++c) {
      second[c] += count * first[c] * first[c];
      first[c] *= count;
    }
    const double all = add_ranks(count);
    for (std::size_t c = 0; c < channels && all > 0; ++c) {
      first[c] /= all;
      const double squares = second[c] - all * first[c] * first[c];
      second[c] = squares < 0 ? 0.0 : squares;  // keeps a NaN
    }
    return all;
  }

 private:
  statistics_group* group_;
  std::unique_ptr<statistics_sum> sum_;
  std::vector<double> numbers_;  // two of each channel, and a count
  std::vector<double> means_;
  std::vector<double> squares_;
};

}  // namespace detail

template <class Element, class Layout, class Device>
class synchronized_batch_norm::layer final
    : public nn::layer<Element, Layout, Device, detail::synchronized_batch_norm_base> {
  static_assert(kernels::explain_synchronized_batch_norm<Device, Element, Layout>());
  using base = nn::layer<Element, Layout, Device, detail::synchronized_batch_norm_base>;
  using parameter_element = parameter_element_t<Element>;

 public:
  using base::base;

  [[nodiscard]] layer_memory memory(Device& device, index_t batch) const override {
    return {.state = 4 * static_cast<std::size_t>(this->shape_.channels) * sizeof(parameter_element),
            .workspace = synchronized_batch_norm_workspace_bytes<Element, Layout>(device, this->shape_.batch(batch))};
  }

  [[nodiscard]] layer_memory inference_memory(Device& device, index_t batch, bool /*prepared*/) const override {
    return {.state = 0, .workspace = memory(device, batch).workspace};
  }

  void forward(const typename base::forward_call& call) override {
    const auto x = base::view(call.inputs[0]);
    const auto y = base::view(call.output);
    kernels::batch_norm_running<parameter_element> running{call.buffers[0], call.buffers[1], this->options_.momentum};
    const kernels::batch_norm_epilogue<Element> epilogue{.residual = call.residual, .act = this->activation_};
    if (!call.context.training || call.context.evaluates) {
      if (y.size() != 0) {
        batch_norm_forward_inference(call.device, x, y, affine(call.parameters), this->options_.epsilon, running,
                                     epilogue, call.workspace);
      }
      call.device.fill_zero(call.state.data(), call.state.size());  // for batch_norm_backward_inference
      return;
    }
    if (!call.context.again) {
      batch_norm_moments(call.device, x, this->sums(), call.workspace);
      double count = values_in(call.output);
      if (call.context.communicates) {
        count = this->merge_ranks(count, sizeof(parameter_element) == sizeof(double));
        detail::require_statistics(this->kind(), count, true);
      } else {
        running = {};
      }
      if (count == 0) {
        return;
      }
      batch_norm_store_statistics(call.device, std::span<const double>{this->sums()}, count, affine(call.parameters),
                                  this->options_.epsilon, running, saved(call.state), call.workspace);
    }
    if (y.size() != 0) {
      batch_norm_forward_again(call.device, x, y, saved(call.state), epilogue);
    }
  }

  void backward(const typename base::backward_call& call) override {
    if (call.context.evaluates) {
      if (call.output_gradient.size() != 0) {
        detail::batch_norm_backward_inference<Layout>(call, affine(call.parameters).gamma, this->options_);
      }
      return;
    }
    const auto x = base::view(call.inputs[0]);
    const auto dy = base::view(call.output_gradient);
    kernels::batch_norm_gradients<Element> gradients;
    gradients.gamma = this->options_.scale ? call.parameters[0].gradient : nullptr;
    gradients.beta = this->options_.shift ? call.parameters[this->options_.scale ? 1 : 0].gradient : nullptr;
    batch_norm_gradient_sums(call.device, x, dy, saved(call.state), gradients, this->sums(), call.workspace);
    const auto& dx = call.input_gradients[0];
    if (!dx.needed()) {
      return;  // on all ranks
    }
    const double count = this->add_ranks(values_in(call.output_gradient));
    if (x.size() != 0) {
      batch_norm_differentiate(call.device, x, dy, base::view(dx.images), affine(call.parameters), saved(call.state),
                               std::span<const double>{this->sums()}, count, dx.epilogue, call.workspace);
    }
  }

 private:
  /// Values of a channel in a batch.
  template <class Images>
  [[nodiscard]] static double values_in(const Images& images) {
    const image_extents shape = images.extents();
    return static_cast<double>(shape.n * shape.h * shape.w);
  }

  [[nodiscard]] kernels::batch_norm_affine<parameter_element> affine(
      std::span<const parameter_memory<parameter_element>> parameters) const {
    return {.gamma = this->options_.scale ? parameters[0].value : nullptr,
            .beta = this->options_.shift ? parameters[this->options_.scale ? 1 : 0].value : nullptr};
  }

  [[nodiscard]] kernels::batch_norm_saved<parameter_element> saved(std::span<std::byte> state) const {
    auto* const elements = reinterpret_cast<parameter_element*>(state.data());
    const index_t channels = this->shape_.channels;
    return {.mean = elements, .inverse_deviation = elements + 3 * channels, .coefficients = elements};
  }
};

}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::synchronized_batch_norm)
