// SPDX-License-Identifier: BSL-1.0
//
// Elements that ranks contribute in the conformance suite of communicators, and the expected results.
#pragma once

#include <algorithm>        // std::min
#include <array>            // std::array
#include <cstddef>          // std::size_t
#include <cstring>          // std::memcpy, std::memcmp
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string, std::to_string
#include <string_view>      // std::string_view
#include <vector>           // std::vector

#include "gradus/comm/reduction.hpp"
#include "gradus/conformance/suite.hpp"
#include "gradus/core/element.hpp"

namespace gradus::conformance {

/// The contribution of a rank to element i. It differs between neighboring elements and ranks, is never zero, and is so
/// small that sums and products of four are exact in every element type.
template <class Element>
Element contribution(int rank, std::size_t i, comm::reduction operation) {
  if (operation == comm::reduction::product) {
    return static_cast<Element>(static_cast<float>(1 + (i + static_cast<std::size_t>(rank)) % 3));
  }
  const std::size_t number = 1 + (i * 7 + static_cast<std::size_t>(rank) * 13) % 29 + static_cast<std::size_t>(rank);
  return static_cast<Element>(static_cast<float>(number));
}

/// The result of the reduction of element i over all ranks.
template <class Element>
Element expected_value(int ranks, std::size_t i, comm::reduction operation) {
  Element value = contribution<Element>(0, i, operation);
  for (int rank = 1; rank < ranks; ++rank) {
    const Element next = contribution<Element>(rank, i, operation);
    switch (operation) {
      case comm::reduction::sum:
        value = static_cast<Element>(value + next);
        break;
      case comm::reduction::product:
        value = static_cast<Element>(value * next);
        break;
      case comm::reduction::minimum:
        value = std::min(value, next);
        break;
      case comm::reduction::maximum:
        value = std::max(value, next);
        break;
    }
  }
  return value;
}

/// Numbers of elements in the cases of collectives.
inline constexpr std::array sizes{0, 1, 2, 3, 4, 5, 7, 31, 97, 1009, 4099};
/// The reductions in the cases of all_reduce.
inline constexpr std::array reductions{comm::reduction::sum, comm::reduction::product, comm::reduction::minimum,
                                       comm::reduction::maximum};

/// A name for messages: "all_reduce of 7 float32".
template <class Element>
std::string label(std::string_view what, std::size_t size) {
  return std::string{what} + " of " + std::to_string(size) + " " + std::string{gradus::element_name<Element>};
}

/// value(0), value(1), ..., repeated with `period`. One period is computed and copied: sanitizers and builds without
/// optimization would otherwise spend most of a suite's time here.
template <class Element, class Value>
std::vector<Element> repeated(std::size_t size, std::size_t period, const Value& value) {
  std::vector<Element> values(size);
  for (std::size_t i = 0; i < std::min(size, period); ++i) {
    values[i] = value(i);
  }
  for (std::size_t done = period; done < size; done *= 2) {
    std::memcpy(values.data() + done, values.data(), std::min(done, size - done) * sizeof(Element));
  }
  return values;
}

/// A period of `contribution` and of its reductions over any ranks, in elements.
inline constexpr std::size_t contribution_period = std::size_t{29} * 3;

/// The contributions of a rank to the elements [0, size).
template <class Element>
std::vector<Element> contributions(int rank, std::size_t size, comm::reduction operation = comm::reduction::sum) {
  return repeated<Element>(size, contribution_period,
                           [&](std::size_t i) { return contribution<Element>(rank, i, operation); });
}

/// The results of the reduction for the elements [first, first + size).
template <class Element>
std::vector<Element> expected_values(int ranks, std::size_t size, comm::reduction operation = comm::reduction::sum,
                                     std::size_t first = 0) {
  return repeated<Element>(size, contribution_period,
                           [&](std::size_t i) { return expected_value<Element>(ranks, first + i, operation); });
}

/// True if the bits are equal.
template <class Element>
bool same(std::span<const Element> a, std::span<const Element> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}
/// True if the bits are equal.
template <class Element>
bool same(const std::vector<Element>& a, const std::vector<Element>& b) {
  return same(std::span{a}, std::span{b});
}

/// @throws std::logic_error with the first element that differs
template <class Element>
void require_same(const std::vector<Element>& values, const std::vector<Element>& expected, std::string_view what,
                  std::source_location where = std::source_location::current()) {
  if (!same(values, expected)) {
    std::size_t i = 0;
    while (i < std::min(values.size(), expected.size()) && values[i] == expected[i]) {
      ++i;
    }
    require(false, std::string{what} + " differs at " + std::to_string(i), where);
  }
}

}  // namespace gradus::conformance
