// SPDX-License-Identifier: BSL-1.0
//
// Activation functions as layers, with the definitions of PyTorch. Most are written by nn::elementwise; relu, relu6 and
// leaky_relu have kernels of their own.
#pragma once

#include <string_view>  // std::string_view
#include <utility>      // std::declval

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/nn/initializer.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/layers/elementwise.hpp"
#include "gradus/nn/layers/relu.hpp"
#include "gradus/tensor/functions.hpp"

namespace gradus::nn {

namespace detail {

template <class Options>
[[nodiscard]] auto with_kind(Options options, std::string_view kind) {
  options.kind = kind;
  return options;
}

inline void require_finite(std::string_view kind, std::string_view option, double value) {
  if (!is_finite(value)) {
    raise<configuration_error>(kind, {"a finite ", option}, {value});
  }
}

/// The options that the member `function()` of an activation returns.
template <class Description>
using function_options = decltype(std::declval<const Description&>().function());

/// The layer of an activation.
template <class Description, class Element, class Layout, class Device>
class activation_layer final : public function_options<Description>::template layer<Element, Layout, Device> {
 public:
  explicit activation_layer(const Description& options)
      : function_options<Description>::template layer<Element, Layout, Device>(options.function()) {}
};

}  // namespace detail

/// The exponential linear unit: x for x > 0, else alpha * (exp(x) - 1). The derivative at 0 is alpha. (Clevert et al.
/// 2016)
/// @throws configuration_error (network::add) when alpha is not a finite number
struct elu {
  double alpha = 1.0;  ///< minus the limit at -inf

  /// The function as a layer.
  [[nodiscard]] auto function() const {
    detail::require_finite("elu", "alpha", alpha);
    return detail::with_kind(elementwise([a = alpha](auto x) {
                               const auto negative = where(x > 0, 0, x);  // exp stays finite
                               // exp(x) - 1 without loss of digits near 0, where it is 2 t / (1 - t) of t = tanh(x / 2)
                               const auto half = gradus::tanh(0.5 * where(x > -1, negative, -1));
                               return where(x > 0, x, a * where(x > -1, 2 * half / (1 - half), exp(negative) - 1));
                             }),
                             "elu");
  }
  /// The layer for one element type and device.
  template <class Element, class Layout, class Device>
  using layer = detail::activation_layer<elu, Element, Layout, Device>;
};

/// The Gaussian error linear unit: x times the probability that a normal number is below x, x/2 * (1 + erf(x/sqrt(2))).
/// (Hendrycks, Gimpel 2016)
struct gelu {
  /// The function as a layer.
  [[nodiscard]] auto function() const {
    return detail::with_kind(elementwise([](auto x) { return 0.5 * x * (1 + gradus::erf(0.7071067811865476 * x)); }),
                             "gelu");
  }
  /// The layer for one element type and device.
  template <class Element, class Layout, class Device>
  using layer = detail::activation_layer<gelu, Element, Layout, Device>;
};

/// The approximation of gelu by a hyperbolic tangent: x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))).
struct gelu_tanh {
  /// The function as a layer.
  [[nodiscard]] auto function() const {
    return detail::with_kind(elementwise([](auto x) {
                               return 0.5 * x * (1 + gradus::tanh(0.7978845608028654 * x * (1 + 0.044715 * square(x))));
                             }),
                             "gelu_tanh");
  }
  /// The layer for one element type and device.
  template <class Element, class Layout, class Device>
  using layer = detail::activation_layer<gelu_tanh, Element, Layout, Device>;
};

/// x * sigmoid(x), also known as swish. (Ramachandran et al. 2017)
struct silu {
  /// The function as a layer.
  [[nodiscard]] auto function() const {
    return detail::with_kind(elementwise([](auto x) { return x * gradus::sigmoid(x); }), "silu");
  }
  /// The layer for one element type and device.
  template <class Element, class Layout, class Device>
  using layer = detail::activation_layer<silu, Element, Layout, Device>;
};

/// The hyperbolic tangent. Backward reads the output, not the input.
struct tanh {
  /// The function as a layer.
  [[nodiscard]] auto function() const {
    return detail::with_kind(elementwise([](auto x) { return gradus::tanh(x); }), "tanh");
  }
  /// The layer for one element type and device.
  template <class Element, class Layout, class Device>
  using layer = detail::activation_layer<tanh, Element, Layout, Device>;
};

/// 1 / (1 + exp(-x)). Backward reads the output, not the input.
struct sigmoid {
  /// The function as a layer.
  [[nodiscard]] auto function() const {
    return detail::with_kind(elementwise([](auto x) { return gradus::sigmoid(x); }), "sigmoid");
  }
  /// The layer for one element type and device.
  template <class Element, class Layout, class Device>
  using layer = detail::activation_layer<sigmoid, Element, Layout, Device>;
};

/// log(1 + exp(beta * x)) / beta; x where beta * x is above the threshold, with the derivative 1.
/// @throws configuration_error (network::add) when beta is 0 or not finite, or the threshold is not a number
struct softplus {
  double beta = 1.0;        ///< steepness, not 0
  double threshold = 20.0;  ///< the function is the identity above threshold / beta

  /// The function as a layer.
  [[nodiscard]] auto function() const {
    detail::require_finite("softplus", "beta", beta);
    if (beta == 0 || threshold != threshold) {
      raise<configuration_error>("softplus", "a beta that is not 0, and a threshold", {beta, " and ", threshold});
    }
    return detail::with_kind(elementwise([b = beta, limit = threshold](auto x) {
                               const auto steep = b * x;
                               return where(steep > limit, x, gradus::softplus(steep) / b);
                             }),
                             "softplus");
  }
  /// The layer for one element type and device.
  template <class Element, class Layout, class Device>
  using layer = detail::activation_layer<softplus, Element, Layout, Device>;
};

/// x * min(max(x + 3, 0), 6) / 6. The derivatives at -3 and 3 are those inside, -1/2 and 3/2. (Howard et al. 2019)
struct hard_swish {
  /// The function as a layer.
  [[nodiscard]] auto function() const {
    return detail::with_kind(elementwise([](auto x) { return x * clamp(x + 3, 0, 6) / 6; }), "hard_swish");
  }
  /// The layer for one element type and device.
  template <class Element, class Layout, class Device>
  using layer = detail::activation_layer<hard_swish, Element, Layout, Device>;
};

/// x for x > 0, else weight * x, with a learnable weight. The derivative at 0 is the weight. (He et al. 2015)
///
///   symbol | meaning            | shape
///   weight | parameter "weight" | (C), or (1) unless per_channel
struct prelu {
  bool per_channel = true;               ///< a weight for each channel, or one for the layer
  initializer initial = constant(0.25);  ///< of the weight

  /// The function as a layer.
  [[nodiscard]] auto function() const {
    return detail::with_kind(elementwise([](auto x, auto weight) { return where(x > 0, x, weight * x); },
                                         {elementwise_parameter{"weight", initial, per_channel}}),
                             "prelu");
  }
  /// The layer for one element type, layout and device.
  template <class Element, class Layout, class Device>
  using layer = detail::activation_layer<prelu, Element, Layout, Device>;
};

}  // namespace gradus::nn

GRADUS_COMPILED_LAYER(::gradus::nn::elu)
GRADUS_COMPILED_LAYER(::gradus::nn::gelu)
GRADUS_COMPILED_LAYER(::gradus::nn::gelu_tanh)
GRADUS_COMPILED_LAYER(::gradus::nn::silu)
GRADUS_COMPILED_LAYER(::gradus::nn::tanh)
GRADUS_COMPILED_LAYER(::gradus::nn::sigmoid)
GRADUS_COMPILED_LAYER(::gradus::nn::softplus)
GRADUS_COMPILED_LAYER(::gradus::nn::hard_swish)
GRADUS_COMPILED_LAYER(::gradus::nn::prelu)
