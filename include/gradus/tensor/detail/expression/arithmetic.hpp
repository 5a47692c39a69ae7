// SPDX-License-Identifier: BSL-1.0
//
// The element-wise operations: on an element, on a packet, and their derivatives.
//
// derivative<K>(adjoint, self, operands...) is the adjoint of operand K as an expression; self is the value of the
// operation. Operations without `derivative` are not differentiable. The derivatives compare the first `compared`
// operands. The result of an `exact` operation is not rounded: it has the same bits each time it is computed.
//
// For `approximated` functions, packets have other bits than the standard library's results for single elements. An
// expression with packets and such a function is computed by packets only, so that an element does not depend on its
// position.
#pragma once

#include <Eigen/Core>  // Eigen::internal packet operations

#include <cmath>        // std::erf, std::exp, std::log, std::log1p, std::pow, std::sqrt, std::tanh
#include <concepts>     // std::same_as
#include <string_view>  // std::string_view
#include <type_traits>  // std::remove_cvref_t

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/tensor/detail/packet/functions.hpp"

GRADUS_BEGIN_PACKETS
namespace gradus::detail {

struct operation_traits {
  static constexpr bool takes_masks = false;
  static constexpr bool exact = false;
  static constexpr int compared = 0;
  static constexpr bool approximated = false;
};

/// Base of arithmetic operations: the result has the operands' type, and real elements have packets.
struct operation_base : operation_traits {
  template <class First, class...>
  struct result {
    using type = First;
  };
  template <class Element>
  static constexpr bool vectorizable = real_element<Element>;
};

/// Base of comparisons and logic: the result is bool; in packets, a mask.
struct predicate_base : operation_traits {
  static constexpr bool exact = true;
  template <class...>
  struct result {
    using type = bool;
  };
  template <class Element>
  static constexpr bool vectorizable = real_element<Element>;
};

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

struct exp_operation : operation_base {
  static constexpr std::string_view name = "exp";
  static constexpr bool approximated = true;
  template <class Element>
  static constexpr bool vectorizable = packets::packet_traits<Element>::HasExp != 0;
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element a) noexcept {
    return std::exp(a);
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a) noexcept {
    return exp_packet(a);
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto& self, const auto&) {
    return adjoint * self;
  }
};

struct log_operation : operation_base {
  static constexpr std::string_view name = "log";
  static constexpr bool approximated = true;
  template <class Element>
  static constexpr bool vectorizable = packets::packet_traits<Element>::HasLog != 0;
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element a) noexcept {
    return std::log(a);
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a) noexcept {
    return log_packet(a);
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto&, const auto& a) {
    return adjoint / a;
  }
};

struct sqrt_operation : operation_base {
  static constexpr std::string_view name = "sqrt";
  template <class Element>
  static constexpr bool vectorizable = packets::packet_traits<Element>::HasSqrt != 0;
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element a) noexcept {
    return std::sqrt(a);
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a) noexcept {
    return sqrt_packet(a);
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto& self, const auto&) {
    return adjoint * 0.5 / self;
  }
};

/// The root of a sum of squares. Where it is 0, its derivative is 0, the smallest subgradient.
struct norm_operation : sqrt_operation {
  static constexpr std::string_view name = "norm_l2";
  template <int Index>
  static auto derivative(const auto& adjoint, const auto& self, const auto&) {
    return where(self == 0, 0, adjoint * 0.5 / self);
  }
};

struct tanh_operation : operation_base {
  static constexpr std::string_view name = "tanh";
  static constexpr bool approximated = true;
  template <class Element>
  static constexpr bool vectorizable = packets::packet_traits<Element>::HasTanh != 0;
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element a) noexcept {
    return std::tanh(a);
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a) noexcept {
    return packets::generic_fast_tanh_float(a);
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto& self, const auto&) {
    return adjoint * (1 - square(self));
  }
};

/// 1 / (1 + exp(-x))
struct sigmoid_operation : operation_base {
  static constexpr std::string_view name = "sigmoid";
  static constexpr bool approximated = true;
  template <class Element>
  static constexpr bool vectorizable = packets::packet_traits<Element>::HasExp != 0;
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element a) noexcept {
    return Element{1} / (Element{1} + std::exp(-a));
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a) noexcept {
    using element_type = typename packets::unpacket_traits<Packet>::type;
    const Packet one = pset1<Packet>(element_type{1});
    // Outside the range of pexp the result is 1, or below the smallest normal number.
    return pdiv(one, padd(one, pexp(pnegate(a))));
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto& self, const auto&) {
    return adjoint * self * (1 - self);
  }
};

struct erf_operation : operation_base {
  static constexpr std::string_view name = "erf";
  static constexpr bool approximated = true;
  template <class Element>
  static constexpr bool vectorizable = std::same_as<Element, float>&& packets::packet_traits<Element>::HasExp != 0;
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element a) noexcept {
    return std::erf(a);
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a) noexcept {
    return erf_packet(a);
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto&, const auto& a) {
    return adjoint * (1.1283791670955126 * exp(-square(a)));  // 2 / sqrt(pi)
  }
};

/// log(1 + exp(x)), as max(x, 0) + log(1 + exp(-|x|))
struct softplus_operation : operation_base {
  static constexpr std::string_view name = "softplus";
  static constexpr bool approximated = true;
  template <class Element>
  static constexpr bool vectorizable =
      packets::packet_traits<Element>::HasExp != 0 && packets::packet_traits<Element>::HasLog != 0;
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element a) noexcept {
    return (a < Element{0} ? Element{0} : a) + std::log1p(std::exp(a < Element{0} ? a : -a));
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a) noexcept {
    return softplus_packet(a);
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto&, const auto& a) {
    return adjoint * sigmoid(a);
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

/// The exponent is a scalar.
struct pow_operation : operation_base {
  static constexpr std::string_view name = "pow";
  template <class Element>
  static constexpr bool vectorizable = false;
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(Element a, Element b) noexcept {
    return static_cast<Element>(std::pow(a, b));
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto&, const auto& a, const auto& b) {
    static_assert(Index == 0);
    // x^0 is 1 everywhere, but its derivative 0 x^-1 would be NaN at 0.
    return adjoint * (b.value() * pow(a, b.value() == 0 ? b.value() : b.value() - 1));
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

struct where_operation : operation_traits {
  static constexpr std::string_view name = "where";
  static constexpr bool takes_masks = true;
  static constexpr bool exact = true;
  static constexpr int compared = 1;
  template <class, class Second, class>
  struct result {
    using type = Second;
  };
  template <class Element>
  static constexpr bool vectorizable = real_element<Element>;
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(bool condition, Element a, Element b) noexcept {
    return condition ? a : b;
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& mask, const Packet& a, const Packet& b) noexcept {
    return pselect(mask, a, b);
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto&, const auto& condition, const auto&, const auto&) {
    if constexpr (Index == 1) {
      return masked(condition, adjoint);
    } else {
      return masked(!condition, adjoint);
    }
  }
};

/// x where the condition holds, else 0: in packets one instruction. Derivatives use it.
struct masked_operation : operation_traits {
  static constexpr std::string_view name = "where";
  static constexpr bool takes_masks = true;
  static constexpr bool exact = true;
  static constexpr int compared = 1;
  template <class, class Second, class...>
  struct result {
    using type = Second;
  };
  template <class Element>
  static constexpr bool vectorizable = real_element<Element>;
  template <class Element>
  GRADUS_HOST_DEVICE static Element scalar(bool condition, Element a) noexcept {
    return condition ? a : Element{0};
  }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& mask, const Packet& a) noexcept {
    return pand(mask, a);
  }
  template <int Index>
  static auto derivative(const auto& adjoint, const auto&, const auto& condition, const auto&) {
    return masked(condition, adjoint);
  }
};

struct equal_operation : predicate_base {
  static constexpr std::string_view name = "operator==";
  GRADUS_HOST_DEVICE static bool scalar(auto a, auto b) noexcept { return a == b; }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a, const Packet& b) noexcept {
    return pcmp_eq(a, b);
  }
};
struct not_equal_operation : predicate_base {
  static constexpr std::string_view name = "operator!=";
  GRADUS_HOST_DEVICE static bool scalar(auto a, auto b) noexcept { return a != b; }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a, const Packet& b) noexcept {
    return pandnot(ptrue(a), pcmp_eq(a, b));
  }
};
struct less_operation : predicate_base {
  static constexpr std::string_view name = "operator<";
  GRADUS_HOST_DEVICE static bool scalar(auto a, auto b) noexcept { return a < b; }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a, const Packet& b) noexcept {
    return pcmp_lt(a, b);
  }
};
struct less_equal_operation : predicate_base {
  static constexpr std::string_view name = "operator<=";
  GRADUS_HOST_DEVICE static bool scalar(auto a, auto b) noexcept { return a <= b; }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a, const Packet& b) noexcept {
    return pcmp_le(a, b);
  }
};
struct and_operation : predicate_base {
  static constexpr bool takes_masks = true;
  static constexpr std::string_view name = "operator&&";
  GRADUS_HOST_DEVICE static bool scalar(bool a, bool b) noexcept { return a && b; }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a, const Packet& b) noexcept {
    return pand(a, b);
  }
};
struct or_operation : predicate_base {
  static constexpr bool takes_masks = true;
  static constexpr std::string_view name = "operator||";
  GRADUS_HOST_DEVICE static bool scalar(bool a, bool b) noexcept { return a || b; }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a, const Packet& b) noexcept {
    return por(a, b);
  }
};
struct not_operation : predicate_base {
  static constexpr bool takes_masks = true;
  static constexpr std::string_view name = "operator!";
  GRADUS_HOST_DEVICE static bool scalar(bool a) noexcept { return !a; }
  template <class Packet>
  GRADUS_FLATTENED static Packet packet(const Packet& a) noexcept {
    return pandnot(ptrue(a), a);
  }
};

}  // namespace gradus::detail
GRADUS_END_PACKETS
