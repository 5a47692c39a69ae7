// SPDX-License-Identifier: BSL-1.0
//
// Weights of a network that is compiled for inference: folded with normalization, and prepared for the kernels.
#pragma once

#include <algorithm>  // std::max
#include <array>      // std::array
#include <atomic>     // std::atomic
#include <cstddef>    // std::byte, std::size_t
#include <cstdint>    // std::uint8_t
#include <span>       // std::span
#include <vector>     // std::vector

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/detail/network/layer_pass.hpp"
#include "gradus/nn/detail/network/use.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/network/memory.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/plan/memory_plan.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus::nn::detail {

/// Multiplies the weights of each output channel by `scale[channel]`.
/// @param shape    (o, i, r, s), stored with `strides`; o is the slowest axis
/// @param groups   of the channels, if they are the second axis
template <class Number>
void scale_channels_of_weights(weight_channels channels, index_t groups, const extents<4>& shape,
                               const std::array<index_t, 4>& strides, std::span<const double> scale, Number* weights) {
  const auto scaled = [](Number& w, double factor) { w = static_cast<Number>(static_cast<double>(w) * factor); };
  if (channels == weight_channels::first) {
    const index_t of_channel = shape.size() / shape[0];
    for (index_t i = 0; i < shape.size(); ++i) {
      scaled(weights[i], scale[static_cast<std::size_t>(i / of_channel)]);
    }
    return;
  }
  const index_t inputs_of_group = shape[0] / groups;
  for (index_t o = 0; o < shape[0]; ++o) {
    for (index_t i = 0; i < shape[1]; ++i) {
      const double factor = scale[static_cast<std::size_t>(o / inputs_of_group * shape[1] + i)];
      for (index_t r = 0; r < shape[2]; ++r) {
        for (index_t s = 0; s < shape[3]; ++s) {
          scaled(weights[o * strides[0] + i * strides[1] + r * strides[2] + s * strides[3]], factor);
        }
      }
    }
  }
}

/// Which copies a network keeps.
struct copy_options {
  bool folds = true;     ///< inference_options::fold_batch_norm
  bool prepares = true;  ///< inference_options::prepare_weights
};

/// Copies of weights for inference. The parameters of the network stay as they are; update computes the copies anew.
template <class Element, class Device>
class inference_weights {
  using number = parameter_element_t<Element>;
  using memory_type = network_memory<Element, Device>;
  using layers_type = runnable_layers<Element, Device>;

 public:
  /// Plans the copies.
  /// @param strides  of the parameters; null if update is not called
  inference_weights(Device& device, const graph& net, const layers_type& layers, const execution_plan& plan,
                    const copy_options& options, strides_of_extents strides)
      : options_{options},
        strides_{strides},
        of_layers_(plan.nodes.size()),
        offsets_(plan.nodes.size()),
        copies_{device, extents<1>{0}} {
    for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
      if (!plan.nodes[i].forward || net.nodes()[i].parameters.empty()) {
        continue;
      }
      copy_offsets& at = offsets_[i];
      at.prepared = take(at.prepared_bytes = options.prepares ? layers[i].prepared_bytes(device) : 0);
      at.folded = plan.nodes[i].folded;
      if (at.folded != execution_plan::none) {
        const auto weights = static_cast<std::size_t>(net.nodes()[i].parameters[0].shape.size()) * sizeof(number);
        if (at.prepared_bytes == 0) {
          at.weight = take(weights);
        } else {
          spare_bytes_ = std::max(spare_bytes_, weights);
        }
        at.bias = take(static_cast<std::size_t>(net.shape(i + 1).channels) * sizeof(number));
      }
    }
  }

  /// Which copies there are.
  [[nodiscard]] const copy_options& options() const noexcept { return options_; }
  /// Bytes of the copies.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  /// Computes the copies from the parameters and buffers of `memory`, while no thread reads them, unless they are up to
  /// date. Allocates.
  void update(Device& device, const graph& net, const layers_type& layers, memory_type& memory) {
    const readers_or_writer::writing alone{users_};
    if (stale()) {
      const floating_point_scope arithmetic{flushes_denormals_on(device)};
      (this->*compute_)(device, net, layers, memory);
    }
  }
  /// No thread computes the copies while the result exists.
  [[nodiscard]] readers_or_writer::reading read() noexcept { return readers_or_writer::reading{users_}; }

  /// What each layer reads.
  [[nodiscard]] const layer_for_inference<number>* of_layers() const noexcept { return of_layers_.data(); }

  /// Parameters or buffers may change.
  void set_stale() noexcept { stale_.store(true, std::memory_order_release); }
  /// True if they may have changed since update.
  [[nodiscard]] bool stale() const noexcept { return stale_.load(std::memory_order_acquire); }

 private:
  using bytes_tensor = tensor<std::uint8_t, 1, row_major, Device>;

  /// The copies of a layer, as offsets in bytes.
  struct copy_offsets {
    std::size_t prepared = 0;
    std::size_t prepared_bytes = 0;
    std::size_t weight = 0;
    std::size_t bias = 0;
    std::size_t folded = execution_plan::none;  // the affine layer
  };

  void compute(Device& device, const graph& net, const layers_type& layers, memory_type& memory) {
    stale_.store(false, std::memory_order_relaxed);
    try {
      compute_all(device, net, layers, memory);
    } catch (...) {
      set_stale();
      throw;
    }
  }

  void compute_all(Device& device, const graph& net, const layers_type& layers, memory_type& memory) {
    if (copies_.size() == 0 && bytes_ > 0) {
      copies_ = bytes_tensor{device, extents<1>{static_cast<index_t>(bytes_)}};
    }
    const bytes_tensor spare{device, extents<1>{static_cast<index_t>(spare_bytes_)}};
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      const copy_offsets& at = offsets_[i];
      layer_for_inference<number>& layer = of_layers_[i];
      const graph::node& n = net.nodes()[i];
      std::span<const parameter_memory<number>> parameters =
          memory.parameters().subspan(n.first_parameter, n.parameters.size());
      if (at.folded != execution_plan::none) {
        auto* const weight = reinterpret_cast<number*>(
            at.prepared_bytes == 0 ? copies_.data() + at.weight : const_cast<std::uint8_t*>(spare.data()));
        layer.parameters = {parameter_memory<number>{weight, nullptr},
                            parameter_memory<number>{reinterpret_cast<number*>(copies_.data() + at.bias), nullptr}};
        layer.folded = true;
        fold(device, net, i, at.folded, memory, layer);
        parameters = layer.parameters;
      }
      if (at.prepared_bytes != 0) {
        const std::span<std::byte> to{reinterpret_cast<std::byte*>(copies_.data() + at.prepared), at.prepared_bytes};
        layers[i].prepare(device, parameters, to, memory.workspace(0));
        layer.prepared = to;
        layer.parameters[0].value = nullptr;
      }
    }
    device.synchronize();  // sessions read the copies on other streams
  }

  std::size_t take(std::size_t bytes) {
    const std::size_t offset = bytes_;
    bytes_ = sum_of_bytes(bytes_, memory_plan::aligned(bytes));
    return offset;
  }

  static std::vector<number> copy_to_host(Device& device, const number* from, index_t count) {
    std::vector<number> host(static_cast<std::size_t>(count));
    device.copy_to_host(host.data(), from, host.size() * sizeof(number));
    return host;
  }
  static std::vector<double> numbers(Device& device, const number* from, index_t count) {
    const std::vector<number> host = copy_to_host(device, from, count);
    return {host.begin(), host.end()};
  }

  /// Writes the weight and the bias of layer i that compute the affine layer behind it too.
  void fold(Device& device, const graph& net, std::size_t i, std::size_t affine, memory_type& memory,
            const layer_for_inference<number>& to) const {
    const graph::node& n = net.nodes()[i];
    const graph::node& after = net.nodes()[affine];
    const auto channels = static_cast<std::size_t>(net.shape(i + 1).channels);
    std::vector<std::vector<double>> parameters;
    for (std::size_t k = 0; k < after.parameters.size(); ++k) {
      parameters.push_back(
          numbers(device, memory.parameters()[after.first_parameter + k].value, after.parameters[k].shape.size()));
    }
    std::vector<std::vector<double>> buffers;
    for (std::size_t k = 0; k < after.buffers.size(); ++k) {
      buffers.push_back(numbers(device, memory.buffer_memory()[after.first_buffer + k], after.buffers[k].size));
    }
    std::vector<double> scale(channels);
    std::vector<double> shift(channels);
    after.layer->write_affine(parameters, buffers, scale, shift);

    const extents<4> shape = n.parameters[0].shape;
    const parameter_memory<number>* const own = memory.parameters().data() + n.first_parameter;
    std::vector<number> weight = copy_to_host(device, own[0].value, shape.size());
    scale_channels_of_weights(n.layer->traits().folds_affine, n.layer->weight_groups(), shape, strides_(shape), scale,
                              weight.data());
    device.copy_from_host(to.parameters[0].value, weight.data(), weight.size() * sizeof(number));
    std::vector<number> bias(channels);
    if (n.parameters.size() > 1) {
      bias = copy_to_host(device, own[1].value, static_cast<index_t>(channels));
    }
    for (std::size_t c = 0; c < channels; ++c) {
      bias[c] = static_cast<number>(static_cast<double>(bias[c]) * scale[c] + shift[c]);
    }
    device.copy_from_host(to.parameters[1].value, bias.data(), bias.size() * sizeof(number));
  }

  copy_options options_;
  strides_of_extents strides_;
  dynamic_array<layer_for_inference<number>> of_layers_;
  dynamic_array<copy_offsets> offsets_;
  std::size_t bytes_ = 0;
  std::size_t spare_bytes_ = 0;  // of the largest folded weight that is kept only in prepared form
  bytes_tensor copies_;
  std::atomic<bool> stale_{true};
  readers_or_writer users_;
  // Through this pointer, only programs that compile a network for inference contain the function.
  void (inference_weights::*compute_)(Device&, const graph&, const layers_type&,
                                      memory_type&) = &inference_weights::compute;
};

}  // namespace gradus::nn::detail
