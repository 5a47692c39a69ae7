// SPDX-License-Identifier: BSL-1.0
//
// Evaluation of expressions with Thrust: one launch for each expression, in packs of 16 bytes if alignment allows.
#pragma once

#include <thrust/for_each.h>                    // thrust::for_each_n
#include <thrust/iterator/counting_iterator.h>  // thrust::counting_iterator
#include <thrust/system_error.h>                // thrust::system_error

#include <algorithm>    // std::max
#include <array>        // std::array
#include <concepts>     // std::derived_from
#include <cstddef>      // std::size_t
#include <type_traits>  // std::remove_const_t

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/thrust_device.cuh"
#include "gradus/tensor/detail/thrust/values.cuh"

namespace gradus::detail {

template <class Device>
concept evaluates_with_thrust = std::derived_from<Device, thrust_device>;

/// Calls body(i) for every i in [0, count), in one launch. Does not wait for it.
/// @throws device_error when the launch failed
template <evaluates_with_thrust Device, class Body>
void thrust_for_each(Device& device, index_t count, const Body& body) {
  if (count == 0) {
    return;
  }
  try {
    thrust::for_each_n(thrust_policy(device), thrust::counting_iterator<index_t>{0}, count, body);
  } catch (const thrust::system_error& failure) {
    raise<device_error>({Device::name, ": evaluation of an expression"}, "a launch that succeeds", failure.what(),
                        "compile for the architecture of the device: nvcc -arch=native");
  }
}

/// Nodes of the longest expression that is evaluated in packs. Longer ones are limited by arithmetic, not by memory,
/// and each element of a pack adds code: pow, exp and tanh are some hundred instructions each.
inline constexpr int longest_packed = 12;

/// Writes Width adjacent elements: as one pack, or one by one at the end and where packs cannot be used.
template <int Width, class Values>
struct evaluation {
  Values values;
  typename Values::value_type* out;
  index_t size;
  bool packs;

  GRADUS_HOST_DEVICE void operator()(index_t item) const noexcept {
    const index_t begin = item * Width;
    const index_t end = begin + Width < size ? begin + Width : size;
    if (packs && end - begin == Width) {
      *reinterpret_cast<element_pack<typename Values::value_type, Width>*>(out + begin) =
          values.template load<Width>(begin);
    } else {
      GRADUS_KEEP_LOOP
      for (index_t i = begin; i < end; ++i) {
        out[i] = values.template load<1>(i).elements[0];
      }
    }
  }
};

/// Writes the values of `node` to `out`, in memory order. `out` may be memory that the node reads.
template <evaluates_with_thrust Device, class Node>
void evaluate_to(Device& device, typename Node::value_type* out, const Node& node) {
  const auto values = values_of(node);
  using values_type = std::remove_const_t<decltype(values)>;
  constexpr std::size_t widest = std::max(sizeof(typename Node::value_type), values_type::widest);
  constexpr int width = Node::complexity > longest_packed ? 1 : static_cast<int>(16 / widest);
  const index_t size = node.extents().size();
  const bool packs = holds_packs<width>(out) && values.template reads_packs<width>();
  thrust_for_each(device, (size + width - 1) / width, evaluation<width, values_type>{values, out, size, packs});
}

/// Copies the elements of a dense tensor to another memory order. Axes are in the destination's order, slowest first.
template <class Element, std::size_t Rank>
struct reordering {
  const Element* from;
  Element* out;
  std::array<index_t, Rank> shape;
  std::array<index_t, Rank> strides;
  bool narrow;

  GRADUS_HOST_DEVICE void operator()(index_t item) const noexcept {
    index_t rest = item;
    index_t offset = 0;
    GRADUS_KEEP_LOOP
    for (std::size_t axis = Rank; axis-- > 1;) {
      const division coordinate = divide(rest, shape[axis], narrow);
      offset += coordinate.remainder * strides[axis];
      rest = coordinate.quotient;
    }
    out[item] = from[offset + rest * strides[0]];
  }
};

/// Copies a dense tensor into the memory order of the destination. Extents and source strides are in that order,
/// slowest axis first.
template <evaluates_with_thrust Device, class Element, std::size_t Rank>
void copy_reordered(Device& device, Element* out, const Element* from, const std::array<index_t, Rank>& shape,
                    const std::array<index_t, Rank>& strides) {
  index_t size = 1;
  for (const index_t extent : shape) {
    size *= extent;
  }
  thrust_for_each(device, size, reordering<Element, Rank>{from, out, shape, strides, is_narrow(size)});
}

}  // namespace gradus::detail
