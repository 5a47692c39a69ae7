// SPDX-License-Identifier: BSL-1.0
//
// The element-wise functions: exponentials, roots and what is made of them (operation_base.hpp).
#pragma once

#include <Eigen/Core>  // Eigen::internal packet operations

#include <cmath>        // std::erf, std::exp, std::log, std::log1p, std::pow, std::sqrt, std::tanh
#include <concepts>     // std::same_as
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/tensor/detail/expression/operation_base.hpp"
#include "gradus/tensor/detail/packet/functions.hpp"

GRADUS_BEGIN_PACKETS
namespace gradus::detail {

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

}  // namespace gradus::detail
GRADUS_END_PACKETS
