// SPDX-License-Identifier: BSL-1.0
//
// The element-wise arithmetic (operation_base.hpp).
#pragma once

#include <Eigen/Core>  // Eigen::internal packet operations

#include <concepts>     // std::same_as
#include <string_view>  // std::string_view
#include <type_traits>  // std::remove_cvref_t

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/tensor/detail/expression/operation_base.hpp"
#include "gradus/tensor/detail/packet/functions.hpp"

GRADUS_BEGIN_PACKETS
namespace gradus::detail {

struct add_operation : operation_base {
  static constexpr std::string_view name = "operator+";
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element a, Element b) noexcept {
    return static_cast<Element>(a + b);
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a, const Packet& b) noexcept {
    return padd(a, b);
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto&, const auto&, const auto&) {
    return adjoint;
  }
};

struct subtract_operation : operation_base {
  static constexpr std::string_view name = "operator-";
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element a, Element b) noexcept {
    return static_cast<Element>(a - b);
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a, const Packet& b) noexcept {
    return psub(a, b);
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto&, const auto&, const auto&) {
    if constexpr (Index == 0) {
      return adjoint;
    } else {
      return -adjoint;
    }
  }
};

struct multiply_operation : operation_base {
  static constexpr std::string_view name = "operator*";
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element a, Element b) noexcept {
    return static_cast<Element>(a * b);
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a, const Packet& b) noexcept {
    return pmul(a, b);
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto&, const auto& a, const auto& b) {
    if constexpr (Index == 0) {
      return adjoint * b;
    } else {
      return adjoint * a;
    }
  }
};

struct divide_operation : operation_base {
  static constexpr std::string_view name = "operator/";
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element a, Element b) noexcept {
    return static_cast<Element>(a / b);
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a, const Packet& b) noexcept {
    return pdiv(a, b);
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto& self, const auto&, const auto& b) {
    if constexpr (Index == 0) {
      return adjoint / b;
    } else {
      return -(adjoint * self / b);
    }
  }
};

/// Halves the adjoint where both operands are equal, so that minimum(x, x) has the derivative of x. If an operand is
/// NaN, the result is NaN and both operands receive the adjoint.
struct minimum_operation : operation_base {
  static constexpr std::string_view name = "minimum";
  static constexpr bool exact = true;
  static constexpr int compared = 2;
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element a, Element b) noexcept {
    return b < a || b != b ? b : a;
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a, const Packet& b) noexcept {
    return pselect(por(pcmp_lt(b, a), pcmp_lt_or_nan(b, b)), b, a);
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto&, const auto& a, const auto& b) {
    if constexpr (Index == 0) {
      return where(a == b, adjoint * 0.5, where(b < a, 0, adjoint));
    } else {
      return where(a == b, adjoint * 0.5, where(a < b, 0, adjoint));
    }
  }
};

struct maximum_operation : operation_base {
  static constexpr std::string_view name = "maximum";
  static constexpr bool exact = true;
  static constexpr int compared = 2;
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element a, Element b) noexcept {
    return a < b || b != b ? b : a;
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a, const Packet& b) noexcept {
    return pselect(por(pcmp_lt(a, b), pcmp_lt_or_nan(b, b)), b, a);
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto&, const auto& a, const auto& b) {
    if constexpr (Index == 0) {
      return where(a == b, adjoint * 0.5, where(a < b, 0, adjoint));
    } else {
      return where(a == b, adjoint * 0.5, where(b < a, 0, adjoint));
    }
  }
};

/// Gives the whole adjoint to one operand: to x inside [low, high] and at its borders, else to the bound that is the
/// result.
struct clamp_operation : operation_base {
  static constexpr std::string_view name = "clamp";
  static constexpr bool exact = true;
  static constexpr int compared = 3;
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element x, Element low, Element high) noexcept {
    return minimum_operation::scalar(maximum_operation::scalar(x, low), high);
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& x, const Packet& low, const Packet& high) noexcept {
    return minimum_operation::packet(maximum_operation::packet(x, low), high);
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto&, const auto& x, const auto& low, const auto& high) {
    if constexpr (Index == 0) {
      return where(x < low || high < x, 0, adjoint);
    } else if constexpr (Index == 1) {
      return where(x < low && !(high < low), adjoint, 0);
    } else {
      return where(high < x || high < low, adjoint, 0);
    }
  }
};

struct negate_operation : operation_base {
  static constexpr std::string_view name = "operator-";
  static constexpr bool exact = true;
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element a) noexcept {
    return static_cast<Element>(-a);
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a) noexcept {
    // Not pnegate: with AVX it computes 0 - a, which loses the sign of zero.
    using element_type = typename packets::unpacket_traits<Packet>::type;
    return pxor(a, pset1<Packet>(-element_type{0}));
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto&, const auto&) {
    return -adjoint;
  }
};

struct relu_operation : operation_base {
  static constexpr std::string_view name = "relu";
  static constexpr bool exact = true;
  static constexpr int compared = 1;
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element a) noexcept {
    return a < Element{0} ? Element{0} : a;  // keeps a NaN
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a) noexcept {
    return pmax(a, pzero(a));  // a where it is NaN
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto&, const auto& a) {
    return masked(a > 0, adjoint);
  }
};

struct abs_operation : operation_base {
  static constexpr std::string_view name = "abs";
  static constexpr bool exact = true;
  static constexpr int compared = 1;
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element a) noexcept {
    return a < Element{0} ? static_cast<Element>(-a) : (a + Element{0});
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a) noexcept {
    return pabs(a);
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto&, const auto& a) {
    return where(a < 0, -adjoint, where(a == 0, 0, adjoint));
  }
};

struct square_operation : operation_base {
  static constexpr std::string_view name = "square";
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element a) noexcept {
    return static_cast<Element>(a * a);
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a) noexcept {
    return pmul(a, a);
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto&, const auto& a) {
    return adjoint * (2 * a);
  }
};

template <class Target>
struct cast_operation : operation_traits {
  static constexpr std::string_view name = "cast";
  static constexpr bool exact = true;
  template <class...>
  struct result {
    using type = Target;
  };
  template <class Element>
  static constexpr bool vectorizable = std::same_as<Element, Target>&& real_element<Element>;
  template <class Element>
  GRADUS_HOST_DEVICE static Target scalar(Element a) noexcept {
    return static_cast<Target>(a);
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a) noexcept {
    return a;
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto&, const auto& a) {
    using source = typename std::remove_cvref_t<decltype(a)>::value_type;
    static_assert(real_element<source> && real_element<Target>,
                  "gradus::gradients: cast from or to a type other than float and double is not differentiable");
    return cast<source>(adjoint);
  }
};

}  // namespace gradus::detail
GRADUS_END_PACKETS
