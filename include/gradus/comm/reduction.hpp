// SPDX-License-Identifier: BSL-1.0
//
// The reductions that collectives offer, and the loops that carry them out.
// Module: comm. Depends on: core.
#pragma once

#include <concepts>     // std::same_as
#include <cstring>      // std::memcpy
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_arithmetic_v, std::is_integral_v, std::make_unsigned_t

#include "gradus/core/config.hpp"   // GRADUS_ALWAYS_INLINE
#include "gradus/core/element.hpp"  // element, element_name
#include "gradus/core/index.hpp"    // index_t

namespace gradus {
class bfloat16;
}  // namespace gradus

namespace gradus::comm {

/// How the contributions of the ranks become one value. Integers wrap around.
enum class reduction : unsigned char { sum, product, minimum, maximum };

/// "sum", "product", "minimum" or "maximum".
[[nodiscard]] constexpr std::string_view name_of(reduction operation) noexcept {
  switch (operation) {
    case reduction::sum:
      return "sum";
    case reduction::product:
      return "product";
    case reduction::minimum:
      return "minimum";
    case reduction::maximum:
      return "maximum";
  }
  return "unknown reduction";
}

/// Element types that every communicator of the library sends and reduces: float, double, std::int32_t, std::int64_t,
/// std::uint8_t, and bfloat16, whose sums and products are rounded from float. Send anything else as bytes.
template <class E>
concept transferable = element<E> &&(std::is_arithmetic_v<E> || std::same_as<E, bfloat16>)&&!std::same_as<E, bool>;

namespace detail {

struct sum_of {
  template <class Element>
  constexpr Element operator()(Element a, Element b) const noexcept {
    if constexpr (std::is_integral_v<Element>) {
      using bits = std::make_unsigned_t<Element>;  // unsigned arithmetic wraps, signed overflow is undefined
      return static_cast<Element>(static_cast<bits>(a) + static_cast<bits>(b));
    } else {
      return static_cast<Element>(a + b);
    }
  }
};

struct product_of {
  template <class Element>
  constexpr Element operator()(Element a, Element b) const noexcept {
    if constexpr (std::is_integral_v<Element>) {
      using bits = std::make_unsigned_t<Element>;
      return static_cast<Element>(static_cast<bits>(a) * static_cast<bits>(b));
    } else {
      return static_cast<Element>(a * b);
    }
  }
};

struct minimum_of {
  template <class Element>
  constexpr Element operator()(Element a, Element b) const noexcept {
    return b < a ? b : a;
  }
};

struct maximum_of {
  template <class Element>
  constexpr Element operator()(Element a, Element b) const noexcept {
    return a < b ? b : a;
  }
};

/// Calls function(f), f being the binary function of the reduction.
template <class Function>
constexpr void with_reduction(reduction operation, Function&& function) {
  switch (operation) {
    case reduction::sum:
      return function(sum_of{});
    case reduction::product:
      return function(product_of{});
    case reduction::minimum:
      return function(minimum_of{});
    case reduction::maximum:
      return function(maximum_of{});
  }
}

/// Elements of the blocks in which the loops below work: a constant, so that compilers use vector instructions at -O2.
template <class Element>
inline constexpr index_t reduction_block = static_cast<index_t>(128 / sizeof(Element));

/// Combines elements [begin, end) of the contributions of `ranks` ranks, in the order of the ranks, and hands the
/// results over in pieces: store(i, values, count) is given the results of [i, i + count), where `count` is a constant.
/// @param source  source(rank) is the rank's contribution; `store` may write over it
template <class Element, class Combine, class Source, class Store>
GRADUS_ALWAYS_INLINE void reduce_contributions(int ranks, index_t begin, index_t end, Source source, Store store) {
  const Combine combine{};
  constexpr std::integral_constant<index_t, reduction_block<Element>> block;
  index_t i = begin;
  for (; i + block <= end; i += block) {
    Element values[block];
    std::memcpy(values, source(0) + i, sizeof(values));
    for (int rank = 1; rank < ranks; ++rank) {
      const Element* const other = source(rank) + i;
      for (index_t k = 0; k < block; ++k) {
        values[k] = combine(values[k], other[k]);
      }
    }
    store(i, values, block);
  }
  for (; i < end; ++i) {
    Element value = source(0)[i];
    for (int rank = 1; rank < ranks; ++rank) {
      value = combine(value, source(rank)[i]);
    }
    store(i, &value, std::integral_constant<index_t, 1>{});
  }
}

/// target[i] = target[i] op source[i] for i in [0, count). The spans do not overlap.
template <transferable Element>
void accumulate(reduction operation, Element* target, const Element* source, index_t count) noexcept {
  with_reduction(operation, [&](auto combine) {
    constexpr index_t block = reduction_block<Element>;
    index_t i = 0;
    for (; i + block <= count; i += block) {
      Element values[block];
      std::memcpy(values, target + i, sizeof(values));
      for (index_t k = 0; k < block; ++k) {
        values[k] = combine(values[k], source[i + k]);
      }
      std::memcpy(target + i, values, sizeof(values));
    }
    for (; i < count; ++i) {
      target[i] = combine(target[i], source[i]);
    }
  });
}

}  // namespace detail
}  // namespace gradus::comm
