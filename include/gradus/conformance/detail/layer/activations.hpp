// SPDX-License-Identifier: BSL-1.0
//
// Activations by their definition, for the conformance suite of layers.
#pragma once

#include <algorithm>    // std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <string>       // std::string
#include <type_traits>  // std::type_identity_t
#include <vector>       // std::vector

#include "gradus/core/element.hpp"
#include "gradus/core/text.hpp"
#include "gradus/kernels/activation.hpp"

namespace gradus::conformance::detail {

/// The first is for layers that know only ReLU. Random numbers are on both sides of the cap.
inline constexpr std::array<kernels::activation, 3> checked_activations{
    kernels::activation::relu, kernels::activation::leaky_relu(0.125), kernels::activation{.slope = 0, .cap = 0.25}};

[[nodiscard]] inline std::string name_of(const kernels::activation& act) {
  return act == kernels::activation::relu ? ""
                                          : join({" with the slope ", static_cast<double>(act.slope), " and the cap ",
                                                  static_cast<double>(act.cap)});
}

template <class Element>
[[nodiscard]] std::vector<Element> activated(std::vector<Element> from, const kernels::activation& act) {
  using real = gradus::parameter_element_t<Element>;
  for (Element& element : from) {
    const real x = static_cast<real>(element);
    element = static_cast<Element>(std::min(x > 0 ? x : static_cast<real>(act.slope) * x, static_cast<real>(act.cap)));
  }
  return from;
}

/// (from + add) times the derivative of an activation where its value is `output`. Null pointers have no effect.
template <class Element>
[[nodiscard]] std::vector<Element> combined(std::vector<Element> from,
                                            const std::type_identity_t<std::vector<Element>>* add,
                                            const std::type_identity_t<std::vector<Element>>* output,
                                            const kernels::activation& act = kernels::activation::relu) {
  using real = gradus::parameter_element_t<Element>;
  for (std::size_t i = 0; i < from.size(); ++i) {
    real value = static_cast<real>(from[i]) + (add != nullptr ? static_cast<real>((*add)[i]) : real{0});
    if (output != nullptr) {
      const real y = static_cast<real>((*output)[i]);
      value *= y > 0 ? static_cast<real>(y < static_cast<real>(act.cap)) : static_cast<real>(act.slope);
    }
    from[i] = static_cast<Element>(value);
  }
  return from;
}

}  // namespace gradus::conformance::detail
