// SPDX-License-Identifier: BSL-1.0
//
// The shape of a matrix product; every device overloads `matmul` on it.
#pragma once

#include <concepts>  // std::same_as
#include <cstddef>   // std::byte, std::size_t
#include <span>      // std::span

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"

namespace gradus::kernels {

/// C = op(A) op(B), with op(A) of (m, k), op(B) of (k, n), C of (m, n); all dense and row-major.
struct matmul_shape {
  index_t m = 0;             ///< rows of C
  index_t n = 0;             ///< columns of C
  index_t k = 0;             ///< terms of each sum; with 0 the product is zero
  bool transpose_a = false;  ///< A is stored as (k, m)
  bool transpose_b = false;  ///< B is stored as (n, k)
};

/// What is done to C before it is stored: C = mask * act(AB + bias + (accumulate ? old C : 0)).
template <class Element>
struct matmul_epilogue {
  const parameter_element_t<Element>* bias = nullptr;  ///< one value a column (n)
  activation act = activation::identity;
  bool accumulate = false;
  const Element* relu_output = nullptr;  ///< of the shape of C: entries where it is not above 0 become 0
};

// What the kernels of `has_matmul` do. For real elements E, P = parameter_element_t<E> is E; column_sums overwrites
// sums (columns). For storage elements E (bfloat16, float16), P is float, and there are products of (E, P) to E
//
// in which b is rounded to E first, and sums are of type P.
//
// m, n and k may be 0. A term that is no number makes one of all sums that it is in, and of no others; a NaN stays one
// under the activation, and where relu_output is NaN C becomes 0. The workspace is aligned to 64 bytes and need not be
// kept between calls; other arrays need no alignment but their elements', and C overlaps none of them. The same bits
// for any number of threads.

template <class Device, class Element>
concept has_matmul_workspace_bytes = requires(Device& device, const matmul_shape& shape) {
  { matmul_workspace_bytes<Element>(device, shape) } -> std::same_as<std::size_t>;
};

template <class Device, class Element>
concept has_matmul_of_parameters = requires(Device& device, const matmul_shape& shape, const Element* a,
                                            const parameter_element_t<Element>* b, Element* c,
                                            const matmul_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  matmul(device, shape, a, b, c, epilogue, workspace);
};

template <class Device, class Element>
concept has_matmul_to_parameters = requires(Device& device, const matmul_shape& shape, const Element* a,
                                            const Element* b, parameter_element_t<Element>* c,
                                            const matmul_epilogue<parameter_element_t<Element>>& epilogue,
                                            std::span<std::byte> workspace) {
  matmul(device, shape, a, b, c, epilogue, workspace);
};

template <class Device, class Element>
concept has_column_sums = requires(Device& device, index_t rows, index_t columns, const Element* a,
                                   parameter_element_t<Element>* sums) {
  column_sums(device, rows, columns, a, sums);
};

/// A device that multiplies matrices, as this file says: for nn::dense.
template <class Device, class Element>
concept has_matmul = has_matmul_workspace_bytes<Device, Element> && has_matmul_of_parameters<Device, Element> &&
    has_matmul_to_parameters<Device, Element> && has_column_sums<Device, Element>;

/// Says which overload of `has_matmul` the device misses. Always true when it compiles.
template <class Device, class Element>
consteval bool explain_matmul() {
  static_assert(
      has_matmul_workspace_bytes<Device, Element>,
      "gradus: the device lacks a kernel of the network: overload template <class Element> std::size_t "
      "matmul_workspace_bytes(Device&, const matmul_shape&); for gradus::cuda include gradus/kernels/cuda.cuh");
  static_assert(has_matmul_of_parameters<Device, Element>,
                "gradus: the device lacks a kernel of the network: overload void matmul(Device&, const matmul_shape&, "
                "const Element* a, const parameter_element_t<Element>* b, Element* c, const matmul_epilogue<Element>&, "
                "std::span<std::byte> workspace); for gradus::cuda include gradus/kernels/cuda.cuh");
  static_assert(has_matmul_to_parameters<Device, Element>,
                "gradus: the device lacks a kernel of the network: overload void matmul(Device&, const matmul_shape&, "
                "const Element* a, const Element* b, parameter_element_t<Element>* c, const "
                "matmul_epilogue<parameter_element_t<Element>>&, std::span<std::byte> workspace); for gradus::cuda "
                "include gradus/kernels/cuda.cuh");
  static_assert(has_column_sums<Device, Element>,
                "gradus: the device lacks a kernel of the network: overload void column_sums(Device&, index_t rows, "
                "index_t columns, const Element* a, parameter_element_t<Element>* sums); for gradus::cuda include "
                "gradus/kernels/cuda.cuh");
  return true;
}

}  // namespace gradus::kernels
