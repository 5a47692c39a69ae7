// SPDX-License-Identifier: BSL-1.0
//
// The reductions of collectives, and the loops that compute them.
#pragma once

#include <algorithm>    // std::min
#include <concepts>     // std::same_as
#include <cstddef>      // std::size_t
#include <cstring>      // std::memcpy
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_arithmetic_v, std::is_integral_v, std::make_unsigned_t

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"

namespace gradus {
class bfloat16;
class float16;
}  // namespace gradus

namespace gradus::comm {

/// How the contributions of the ranks are combined into one value. Integers wrap around.
enum class reduction : unsigned char {
  sum,      ///< a + b
  product,  ///< a * b
  minimum,  ///< the smaller one
  maximum   ///< the larger one
};

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

/// Element types that every communicator of the library can send and reduce: float, double, std::int32_t, std::int64_t,
/// std::uint8_t, bfloat16 and float16. Sums and products of bfloat16 and float16 are computed in float and rounded.
/// Send other types as bytes.
template <class Element>
concept transferable = element<Element> &&(std::is_arithmetic_v<Element> || std::same_as<Element, bfloat16> ||
                                           std::same_as<Element, float16>)&&!std::same_as<Element, bool>;

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

/// Calls function(f), where f is the binary function of the reduction.
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

/// Elements per iteration of the loops below; a constant, so that compilers vectorize at -O2.
template <class Element>
inline constexpr index_t reduction_block = static_cast<index_t>(128 / sizeof(Element));

/// target[i] = target[i] op source[i] for i in [0, blocks * reduction_block). The spans do not overlap.
template <class Combine, class Element>
void accumulate_blocks(Element* target, const Element* source, index_t blocks) noexcept {
  constexpr index_t block = reduction_block<Element>;
  for (const Element* const end = source + blocks * block; source != end; source += block, target += block) {
    if constexpr (std::same_as<Element, float16>) {  // converted in blocks
      float values[std::size_t{block}];
      float others[std::size_t{block}];
      widen(target, values, block);
      widen(source, others, block);
      for (index_t k = 0; k < block; ++k) {
        values[k] = Combine{}(values[k], others[k]);
      }
      narrow(values, target, block);
    } else {
      Element values[std::size_t{block}];
      std::memcpy(values, target, sizeof(values));
      for (index_t k = 0; k < block; ++k) {
        values[k] = Combine{}(values[k], source[k]);
      }
      std::memcpy(target, values, sizeof(values));
    }
  }
}

/// target[i] = target[i] op source[i] for i in [0, count). The spans do not overlap.
template <transferable Element>
void accumulate(reduction operation, Element* target, const Element* source, index_t count) noexcept {
  constexpr index_t block = reduction_block<Element>;
  void (*whole_blocks)(Element*, const Element*, index_t) noexcept = nullptr;
  with_reduction(operation, [&](auto combine) { whole_blocks = &accumulate_blocks<decltype(combine), Element>; });
  const index_t blocks = count / block;
  whole_blocks(target, source, blocks);
  if (const index_t rest = count - blocks * block; rest != 0) {
    const std::size_t bytes = static_cast<std::size_t>(rest) * sizeof(Element);
    Element values[std::size_t{block}] = {};
    Element others[std::size_t{block}] = {};
    std::memcpy(values, target + blocks * block, bytes);
    std::memcpy(others, source + blocks * block, bytes);
    whole_blocks(values, others, 1);
    std::memcpy(target + blocks * block, values, bytes);
  }
}

/// Combines elements [begin, end) of the contributions of `ranks` ranks, in the order of the ranks. Calls store(i,
/// values, count) with the results [i, i + count). Sums, the common case in training, take one pass over memory; the
/// other reductions share their code with accumulate.
/// @param source  source(rank) is the rank's contribution; `store` may overwrite it
template <transferable Element, class Source, class Store>
void reduce_contributions(reduction operation, int ranks, index_t begin, index_t end, Source source, Store store) {
  index_t i = begin;
  if (!std::same_as<Element, float16> && operation == reduction::sum) {
    constexpr std::integral_constant<index_t, reduction_block<Element>> block;
    for (; i + block <= end; i += block) {
      Element values[block];
      std::memcpy(values, source(0) + i, sizeof(values));
      for (int rank = 1; rank < ranks; ++rank) {
        const Element* const other = source(rank) + i;
        for (index_t k = 0; k < block; ++k) {
          values[k] = sum_of{}(values[k], other[k]);
        }
      }
      store(i, values, block);
    }
  }
  constexpr index_t piece = 2048 / static_cast<index_t>(sizeof(Element));  // fits into the first-level cache
  for (; i < end; i += piece) {
    const index_t count = std::min(piece, end - i);
    Element values[std::size_t{piece}];
    std::memcpy(values, source(0) + i, static_cast<std::size_t>(count) * sizeof(Element));
    for (int rank = 1; rank < ranks; ++rank) {
      accumulate(operation, values, source(rank) + i, count);
    }
    store(i, values, count);
  }
}

/// Adds elements [begin, end) of the contributions of `ranks` ranks in the order of comm::pairwise_sums. Calls store(i,
/// sums, count) with the sums [i, i + count).
/// @param source  source(rank) is the rank's contribution; `store` may overwrite it
/// @pre ranks <= 2^16, a power of two
template <transferable Element, class Source, class Store>
void add_in_tree(int ranks, index_t begin, index_t end, const Source& source, const Store& store) {
  constexpr index_t block = reduction_block<Element>;
  for (index_t i = begin; i < end; i += block) {
    const index_t count = std::min(block, end - i);
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(Element);
    Element sums[17][std::size_t{block}];  // of 1, 2, 4, ... neighbors
    std::size_t level = 0;
    for (unsigned rank = 0; rank < static_cast<unsigned>(ranks); ++rank) {
      Element values[std::size_t{block}] = {};
      std::memcpy(values, source(static_cast<int>(rank)) + i, bytes);
      level = 0;
      for (unsigned complete = rank; complete % 2 == 1; complete /= 2, ++level) {
        for (index_t k = 0; k < block; ++k) {
          values[k] = sum_of{}(sums[level][k], values[k]);
        }
      }
      std::memcpy(sums[level], values, sizeof(values));
    }
    store(i, static_cast<const Element*>(sums[level]), count);
  }
}

}  // namespace detail
}  // namespace gradus::comm
