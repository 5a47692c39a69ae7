// SPDX-License-Identifier: BSL-1.0
//
// Activations and their derivatives as the kernels of the CPU hold them.
#pragma once

#include <cmath>   // std::nextafter
#include <limits>  // std::numeric_limits

#include "gradus/core/config.hpp"
#include "gradus/kernels/activation.hpp"

namespace gradus::kernels::detail {

/// An activation. ReLU has a flag of its own, because it takes one instruction.
template <class Real>
struct held_activation {
  bool relu = false;
  bool other = false;  ///< neither the identity nor ReLU: the numbers say which
  Real slope = 1;
  Real cap = std::numeric_limits<Real>::infinity();

  held_activation() = default;
  explicit held_activation(const activation& act) noexcept
      : relu{act == activation::relu},
        other{!relu && act != activation::identity},
        slope{static_cast<Real>(act.slope)},
        cap{static_cast<Real>(act.cap)} {}

  /// The activation.
  [[nodiscard]] activation original() const noexcept {
    return relu ? activation::relu : activation{static_cast<double>(slope), static_cast<double>(cap)};
  }

  /// True unless it is the identity.
  [[nodiscard]] bool any() const noexcept { return relu || other; }

  /// The function of a number or of a vector, if `other`.
  template <class Value>
  [[nodiscard]] GRADUS_ALWAYS_INLINE Value with_parameters(Value value) const noexcept {
    const Value low = slope == 0 ? Value{} : slope * value;
    const Value high = cap - Value{};
    value = Value{} > value ? low : value;  // keeps a NaN
    return value > high ? high : value;
  }

  /// The function of a packet.
  template <class Packet>
  [[nodiscard]] GRADUS_ALWAYS_INLINE typename Packet::type of(typename Packet::type value) const noexcept {
    if (other) {
      return with_parameters(value);
    }
    return relu ? Packet::relu(value) : value;
  }
};

/// The derivative of an activation other than the identity, as a function of its value.
template <class Real>
struct held_derivative {
  bool other = false;  ///< not that of ReLU: the numbers say which
  Real slope = 0;
  /// The largest number that is not at the cap; infinity: none is, infinity neither. A NaN would say so, too, but its
  /// comparisons raise FE_INVALID, which programs trap.
  Real below_cap = std::numeric_limits<Real>::infinity();

  held_derivative() = default;
  explicit held_derivative(const activation& act) noexcept
      : other{act != activation::relu}, slope{static_cast<Real>(act.slope)} {
    if (act.cap < std::numeric_limits<double>::infinity()) {
      below_cap = std::nextafter(static_cast<Real>(act.cap), Real{0});
    }
  }

  /// The activation.
  [[nodiscard]] activation original() const noexcept {
    constexpr Real none = std::numeric_limits<Real>::infinity();
    return {static_cast<double>(slope), static_cast<double>(std::nextafter(below_cap, none))};
  }

  /// `value` times the derivative where the function is `output`, for numbers or vectors, if `other`. Where the
  /// derivative is 0, the result is 0 for any value.
  template <class Value>
  [[nodiscard]] GRADUS_ALWAYS_INLINE Value with_parameters(Value output, Value value) const noexcept {
    const Value low = slope == 0 ? Value{} : slope * value;
    value = output > Value{} ? value : low;
    return output > below_cap - Value{} ? Value{} : value;
  }

  /// `value` times the derivative where the function is `output`.
  template <class Packet>
  [[nodiscard]] GRADUS_ALWAYS_INLINE typename Packet::type times(typename Packet::type output,
                                                                 typename Packet::type value) const noexcept {
    return other ? with_parameters(output, value) : Packet::where_positive(output, value);
  }
};

}  // namespace gradus::kernels::detail
