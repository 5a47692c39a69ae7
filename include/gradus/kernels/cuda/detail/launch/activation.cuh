// SPDX-License-Identifier: BSL-1.0
//
// Activations and their derivatives as CUDA kernels hold them.
#pragma once

#include <cmath>   // std::nextafter
#include <limits>  // std::numeric_limits

#include "gradus/kernels/activation.hpp"

namespace gradus::kernels::detail {

/// An activation; the identity by default.
template <class Real>
struct device_activation {
  Real slope = 1;
  Real cap = std::numeric_limits<Real>::infinity();

  device_activation() = default;
  explicit device_activation(const activation& act)
      : slope{static_cast<Real>(act.slope)}, cap{static_cast<Real>(act.cap)} {}

  __device__ Real operator()(Real x) const {
    if (x < Real{0}) {
      return slope == Real{0} ? Real{0} : slope * x;
    }
    return x > cap ? cap : x;  // keeps a NaN
  }
};

/// The derivative of an activation other than the identity, as a function of its value; that of ReLU by default.
template <class Real>
struct device_derivative {
  Real slope = 0;
  Real below_cap = std::numeric_limits<Real>::infinity();  // as in held_derivative

  device_derivative() = default;
  explicit device_derivative(const activation& act) : slope{static_cast<Real>(act.slope)} {
    if (act.cap < std::numeric_limits<double>::infinity()) {
      below_cap = std::nextafter(static_cast<Real>(act.cap), Real{0});
    }
  }

  /// `value` times the derivative where the function is `output`. Where the derivative is 0, the result is 0.
  template <class Value>
  __device__ Value times(Real output, Value value) const {
    if (output > Real{0}) {
      return output > below_cap ? Value{0} : value;
    }
    return slope == Real{0} ? Value{0} : static_cast<Value>(slope) * value;
  }
};

}  // namespace gradus::kernels::detail
