// SPDX-License-Identifier: BSL-1.0
//
// Nodes in the form that GPU kernels take by value: small structures that own nothing.
//
// values_of(node) is this form of a node. load<Width>(i) returns the elements i .. i + Width - 1 in memory order;
// reads_packs<Width>() is true if Width may be larger than 1.
#pragma once

#include <cuda/std/tuple>  // cuda::std::get, cuda::std::tuple

#include <algorithm>  // std::max
#include <array>      // std::array
#include <bit>        // std::popcount
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint32_t, std::uintptr_t
#include <limits>     // std::numeric_limits
#include <utility>    // std::index_sequence, std::index_sequence_for

#include "gradus/core/config.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/broadcast.hpp"
#include "gradus/tensor/detail/expression/map.hpp"
#include "gradus/tensor/expression.hpp"

namespace gradus::detail {

/// Elements that one instruction loads or stores, at most 16 bytes.
template <class Element, int Width>
struct alignas(sizeof(Element) * static_cast<std::size_t>(Width)) element_pack {
  Element elements[static_cast<std::size_t>(Width)];
};

template <class Element, int Width>
[[nodiscard]] GRADUS_HOST_DEVICE element_pack<Element, Width> load_pack(const Element* from) noexcept {
  return *reinterpret_cast<const element_pack<Element, Width>*>(from);
}

template <int Width, class Element>
[[nodiscard]] bool holds_packs(const Element* data) noexcept {
  return reinterpret_cast<std::uintptr_t>(data) % sizeof(element_pack<Element, Width>) == 0;
}

/// A quotient and a remainder.
struct division {
  index_t quotient;
  index_t remainder;
};

/// Division of 64 bits. GPUs have no instruction for it; the hundred instructions are compiled once, not at every use.
[[nodiscard]] GRADUS_HOST_DEVICE GRADUS_NEVER_INLINE inline index_t wide_quotient(index_t dividend,
                                                                                  index_t divisor) noexcept {
  return dividend / divisor;
}

/// Divides in 32 bits if `narrow`, that is, if all numbers fit.
[[nodiscard]] GRADUS_HOST_DEVICE inline division divide(index_t dividend, index_t divisor, bool narrow) noexcept {
  const index_t quotient =
      narrow ? static_cast<index_t>(static_cast<std::uint32_t>(dividend) / static_cast<std::uint32_t>(divisor))
             : wide_quotient(dividend, divisor);
  return {quotient, dividend - quotient * divisor};
}
[[nodiscard]] inline bool is_narrow(index_t size) noexcept {
  return size <= static_cast<index_t>(std::numeric_limits<std::uint32_t>::max());
}

/// A tensor in memory.
template <class Element>
struct leaf_values {
  using value_type = Element;
  static constexpr std::size_t widest = sizeof(Element);  // bytes of the largest element that is loaded
  const Element* data;

  template <int Width>
  [[nodiscard]] GRADUS_HOST_DEVICE element_pack<Element, Width> load(index_t i) const noexcept {
    return load_pack<Element, Width>(data + i);
  }
  template <int Width>
  [[nodiscard]] bool reads_packs() const noexcept {
    return holds_packs<Width>(data);
  }
};

/// One number.
template <class Element>
struct constant_values {
  using value_type = Element;
  static constexpr std::size_t widest = 1;
  Element value;

  template <int Width>
  [[nodiscard]] GRADUS_HOST_DEVICE element_pack<Element, Width> load(index_t) const noexcept {
    element_pack<Element, Width> pack;
    for (Element& element : pack.elements) {
      element = value;
    }
    return pack;
  }
  template <int Width>
  [[nodiscard]] bool reads_packs() const noexcept {
    return true;
  }
};

/// Values along `Axes` of the axes of a larger tensor; along its rows they repeat, are adjacent, or neither.
template <class Element, int Axes, bool Repeats, bool Adjacent>
struct broadcast_values {
  using value_type = Element;
  static constexpr std::size_t widest = sizeof(Element);
  struct varying_axis {
    index_t below;   // elements of the larger tensor between neighbors along the axis
    index_t extent;  // of the axis
    index_t stride;  // elements of the values between neighbors along the axis
  };
  const Element* data;
  std::array<varying_axis, static_cast<std::size_t>(Axes)> axes;
  index_t row_length;
  bool narrow;

  [[nodiscard]] GRADUS_HOST_DEVICE index_t offset(index_t i) const noexcept {
    index_t result = 0;
    GRADUS_KEEP_LOOP
    for (const varying_axis& axis : axes) {
      if (axis.extent > 1) {
        const index_t above = axis.below == 1 ? i : divide(i, axis.below, narrow).quotient;
        result += divide(above, axis.extent, narrow).remainder * axis.stride;
      }
    }
    return result;
  }
  template <int Width>
  [[nodiscard]] GRADUS_HOST_DEVICE element_pack<Element, Width> load(index_t i) const noexcept {
    element_pack<Element, Width> pack;
    if constexpr (Repeats) {
      const Element value = data[offset(i)];
      for (Element& element : pack.elements) {
        element = value;
      }
    } else if constexpr (Adjacent || Width == 1) {
      pack = load_pack<Element, Width>(data + offset(i));
    } else {
      for (int k = 0; k < Width; ++k) {
        pack.elements[k] = data[offset(i + k)];
      }
    }
    return pack;
  }
  /// Packs are possible only if each is inside one row.
  template <int Width>
  [[nodiscard]] bool reads_packs() const noexcept {
    return Axes == 0 || (row_length % Width == 0 && (!Adjacent || holds_packs<Width>(data)));
  }
};

/// Operation(children...)
template <class Operation, class... Children>
struct map_values {
  using value_type = typename Operation::template result<typename Children::value_type...>::type;
  static constexpr std::size_t widest = std::max({sizeof(value_type), Children::widest...});
  ::cuda::std::tuple<Children...> children;

  template <int Width>
  [[nodiscard]] GRADUS_HOST_DEVICE element_pack<value_type, Width> load(index_t i) const noexcept {
    return load_children<Width>(i, std::index_sequence_for<Children...>{});
  }
  template <int Width>
  [[nodiscard]] bool reads_packs() const noexcept {
    return children_read_packs<Width>(std::index_sequence_for<Children...>{});
  }

 private:
  template <int Width, std::size_t... Index>
  [[nodiscard]] GRADUS_HOST_DEVICE element_pack<value_type, Width> load_children(
      index_t i, std::index_sequence<Index...>) const noexcept {
    return combine<Width>(::cuda::std::get<Index>(children).template load<Width>(i)...);
  }
  template <int Width>
  [[nodiscard]] GRADUS_HOST_DEVICE static element_pack<value_type, Width> combine(
      const element_pack<typename Children::value_type, Width>&... packs) noexcept {
    element_pack<value_type, Width> result;
    for (int k = 0; k < Width; ++k) {
      result.elements[k] = Operation::scalar(packs.elements[k]...);
    }
    return result;
  }
  template <int Width, std::size_t... Index>
  [[nodiscard]] bool children_read_packs(std::index_sequence<Index...>) const noexcept {
    return (::cuda::std::get<Index>(children).template reads_packs<Width>() && ...);
  }
};

template <class Element, int Rank, class Layout, class Device>
[[nodiscard]] leaf_values<Element> values_of(const leaf<Element, Rank, Layout, Device>& node) noexcept {
  return {node.data()};
}

template <class Element, int Rank, class Layout, class Device>
[[nodiscard]] constant_values<Element> values_of(const constant<Element, Rank, Layout, Device>& node) noexcept {
  return {node.value()};
}

template <class Value, int Rank, class Layout, unsigned Mask>
[[nodiscard]] auto values_of(const broadcast<Value, Rank, Layout, Mask>& node) noexcept {
  using type = broadcast<Value, Rank, Layout, Mask>;
  broadcast_values<typename type::value_type, std::popcount(Mask), type::repeats, type::adjacent> values{
      node.value().data(), {}, row_length<Layout>(node.extents()), is_narrow(node.extents().size())};
  if constexpr (Mask != 0) {
    // Axes that are adjacent in both tensors are merged into one.
    const auto below = dense_strides<Layout, Rank>(node.extents());
    std::size_t count = 0;
    index_t stride = 1;
    for (int axis = Rank - 1; axis >= 0; --axis) {
      if ((Mask >> static_cast<unsigned>(axis) & 1U) == 0) {
        continue;
      }
      const index_t extent = node.extents()[axis];
      const index_t distance = below[static_cast<std::size_t>(axis)];
      if (count > 0 && distance == values.axes[count - 1].below * values.axes[count - 1].extent) {
        values.axes[count - 1].extent *= extent;
      } else {
        values.axes[count++] = {distance, extent, stride};
      }
      stride *= extent;
    }
    for (; count < values.axes.size(); ++count) {
      values.axes[count] = {1, 1, 0};
    }
  }
  return values;
}

template <class Operation, class... Children>
[[nodiscard]] auto values_of(const map<Operation, Children...>& node) noexcept {
  return [&]<std::size_t... Index>(std::index_sequence<Index...>) {
    using values = map_values<Operation, decltype(values_of(node.template child<Index>()))...>;
    return values{decltype(values::children){values_of(node.template child<Index>())...}};
  }
  (std::index_sequence_for<Children...>{});
}

}  // namespace gradus::detail
