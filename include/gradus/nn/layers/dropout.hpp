// SPDX-License-Identifier: BSL-1.0
//
// The layer dropout.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/random.hpp"
#include "gradus/kernels/dropout.hpp"
#include "gradus/kernels/elementwise.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn {

/// Options of dropout (Srivastava et al. 2014, inverted scaling). In training every element becomes 0 with the
/// probability `rate` and is divided by 1 - rate otherwise. Outside training y = x.
///
///   symbol | meaning                  | shape
///   x      | input                    | (N, C, H, W)
///   m      | 1 where kept, 0 elsewhere | (N, C, H, W)
///   y      | x * m / (1 - rate)       | (N, C, H, W)
///
/// Gradients for g = dL/dy: dL/dx = g * m / (1 - rate)   (N, C, H, W)   overwritten or accumulated
///
/// The mask depends only on (seed, name, step, position of the example in the epoch, coordinates). It does not depend
/// on the layout, on threads, or on how a batch is split over ranks.
/// @throws configuration_error (network::add) for a rate outside [0, 1), or the name of another layer's random numbers
struct dropout {
  double rate = 0.5;  ///< probability that an element becomes 0, in [0, 1)
  /// The name of the random numbers, which no other layer has; empty: the layer's name in the network.
  std::string name{};

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class layer;
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class dropout_base : public layer_base {
 public:
  explicit dropout_base(const dropout& options) : options_{options} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "dropout"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    if (!(options_.rate >= 0 && options_.rate < 1)) {
      raise<configuration_error>(kind(), "a rate in [0, 1)", {options_.rate});
    }
    shape_ = inputs[0];
    return inputs[0];
  }

  void set_name(std::string_view name) override {
    if (options_.name.empty()) {
      options_.name = name;
    }
  }

  [[nodiscard]] std::string_view random_name() const noexcept override { return options_.name; }

  void attributes(attribute_visitor& visit) const override {
    visit.operation(kind());
    visit.real("rate", options_.rate);
    visit.text("name", options_.name);
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_inputs = false,
            .backward_reads_output = false,
            .recomputable = true,
            .identity_outside_training = true};
  }

 protected:
  /// Bytes of the mask: one byte for each element, 1 where it was kept.
  [[nodiscard]] std::size_t state_bytes(index_t batch) const {
    return static_cast<std::size_t>(shape_.batch(batch).size());
  }

  dropout options_;
  value_shape shape_;
};

}  // namespace detail

template <class Element, class Layout, class Device>
class dropout::layer final : public nn::layer<Element, Layout, Device, detail::dropout_base> {
  static_assert(kernels::explain_dropout<Device, Element, Layout>());
  static_assert(kernels::explain_elementwise<Device, Element>());
  using base = nn::layer<Element, Layout, Device, detail::dropout_base>;

 public:
  using base::base;

  [[nodiscard]] layer_memory memory(Device& /*device*/, index_t batch) const override {
    return {.state = this->state_bytes(batch), .workspace = 0};
  }

  [[nodiscard]] layer_memory inference_memory(Device& /*device*/, index_t /*batch*/, bool /*prepared*/) const override {
    return {};
  }

  void forward(const typename base::forward_call& call) override {
    if (!call.context.training || call.context.evaluates) {
      copy_or_add(call.device, call.output.size(), call.inputs[0].data(), call.output.data(), false);
      return;
    }
    dropout_forward(call.device, base::view(call.inputs[0]), base::view(call.output), this->options_.rate,
                    random_stream{call.context.seed, this->options_.name}, call.context.step,
                    call.context.first_example, reinterpret_cast<std::uint8_t*>(call.state.data()));
  }

  void backward(const typename base::backward_call& call) override {
    const auto& dx = call.input_gradients[0];
    if (dx.needed() && call.context.evaluates) {
      copy_or_add(call.device, call.output_gradient.size(), call.output_gradient.data(), dx.images.data(),
                  dx.epilogue.accumulate);
    } else if (dx.needed()) {
      dropout_backward(call.device, call.output_gradient.size(), call.output_gradient.data(),
                       reinterpret_cast<const std::uint8_t*>(call.state.data()), 1.0 / (1.0 - this->options_.rate),
                       dx.images.data(), dx.epilogue.accumulate);
    }
  }
};

}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::dropout)
