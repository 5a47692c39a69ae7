// SPDX-License-Identifier: BSL-1.0
//
// The layer local_response_norm: local response normalization across channels.
#pragma once

#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/kernels/local_response_norm.hpp"
#include "gradus/nn/layer.hpp"

namespace gradus::nn {

/// Options of local response normalization across channels (Krizhevsky, Sutskever, Hinton 2012, section 3.3).
///
///   y(c) = x(c) / s(c)^beta,   s(c) = k + alpha * sum of x(j)^2 over |j - c| <= radius
///
///   symbol | meaning | shape
///   x      | input   | (N, C, H, W)
///   y      | output  | (N, C, H, W)
///
/// Gradients for g = dL/dy:
///   dL/dx(c) = g(c) / s(c)^beta
///              - 2 * alpha * beta * x(c) * sum of g(j) * x(j) / s(j)^(beta + 1) over |j - c| <= radius
///
/// `alpha` multiplies the sum, as in TensorFlow; PyTorch's alpha is (2 * radius + 1) times this one.
/// @throws configuration_error (network::add) when radius or alpha is negative, k is not above 0, or alpha or beta is
/// not finite
/// @throws shape_error (network::add) for a flattened image
struct local_response_norm {
  index_t radius = 2;   ///< channels on each side
  double alpha = 1e-4;  ///< factor of the sum of squares
  double beta = 0.75;   ///< exponent
  double k = 2;         ///< added to the sum

  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  class layer;
};

namespace detail {

/// The part of the layer that does not depend on element type, layout and device.
class local_response_norm_base : public layer_base {
 public:
  explicit local_response_norm_base(const local_response_norm& options)
      : options_{.radius = options.radius, .alpha = options.alpha, .beta = options.beta, .k = options.k} {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "local_response_norm"; }

  value_shape infer(std::span<const value_shape> inputs) override {
    require_inputs(kind(), 1, inputs.size());
    require_at_least(kind(), "radius", 0, options_.radius);
    if (!(options_.k > 0)) {
      raise<configuration_error>(kind(), "k above 0", {options_.k});
    }
    if (!(options_.alpha >= 0) || !is_finite(options_.alpha) || !is_finite(options_.beta)) {
      raise<configuration_error>(kind(), "a finite alpha of at least 0 and a finite beta",
                                 {options_.alpha, " and ", options_.beta});
    }
    require_image(kind(), inputs[0], "normalize before nn::flatten");
    return inputs[0];
  }

  [[nodiscard]] layer_traits traits() const noexcept override {
    return {.backward_reads_output = false, .masks_input_gradients = true, .recomputable = true};
  }

  void attributes(attribute_visitor& visit) const override {
    visit.operation(kind());
    visit.integer("radius", options_.radius);
    visit.real("alpha", options_.alpha);
    visit.real("beta", options_.beta);
    visit.real("k", options_.k);
  }

 protected:
  kernels::local_response_norm_parameters options_;
};

}  // namespace detail

template <class Element, class Layout, class Device>
class local_response_norm::layer final : public nn::layer<Element, Layout, Device, detail::local_response_norm_base> {
  static_assert(kernels::explain_local_response_norm<Device, Element, Layout>());
  using base = nn::layer<Element, Layout, Device, detail::local_response_norm_base>;

 public:
  using base::base;

  void forward(const typename base::forward_call& call) override {
    local_response_norm_forward(call.device, base::view(call.inputs[0]), base::view(call.output), this->options_);
  }

  void backward(const typename base::backward_call& call) override {
    if (const auto& dx = call.input_gradients[0]; dx.needed()) {
      local_response_norm_backward(call.device, base::view(call.inputs[0]), base::view(call.output_gradient),
                                   base::view(dx.images), this->options_, dx.epilogue);
    }
  }
};

}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::local_response_norm)
