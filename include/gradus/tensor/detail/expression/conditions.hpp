// SPDX-License-Identifier: BSL-1.0
//
// The element-wise comparisons, their logic, and the choice by a condition (operation_base.hpp).
#pragma once

#include <Eigen/Core>  // Eigen::internal packet operations

#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/tensor/detail/expression/operation_base.hpp"
#include "gradus/tensor/detail/packet/functions.hpp"

GRADUS_BEGIN_PACKETS
namespace gradus::detail {

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
