// SPDX-License-Identifier: BSL-1.0
//
// The contract of matrix product kernels: shape, epilogue and the functions that every device overloads.
#pragma once

#include <concepts>  // std::same_as
#include <cstddef>   // std::byte, std::size_t
#include <span>      // std::span

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"

namespace gradus::kernels {

/// C = op(A) op(B), with op(A) of shape (m, k), op(B) of (k, n), C of (m, n); all dense and row-major.
struct matmul_shape {
  index_t m = 0;             ///< rows of C
  index_t n = 0;             ///< columns of C
  index_t k = 0;             ///< terms of each sum; with k = 0 the product is zero
  bool transpose_a = false;  ///< A is stored as (k, m)
  bool transpose_b = false;  ///< B is stored as (n, k)
};

/// What the product applies to C before it stores it: C = mask * act(AB + bias + (accumulate ? old C : 0)).
template <class Element>
struct matmul_epilogue {
  const parameter_element_t<Element>* bias = nullptr;  ///< (n), one value for each column; null adds nothing
  activation act = activation::identity;               ///< of the sum, before the mask
  bool accumulate = false;                             ///< adds to C what it contains; otherwise C is only written
  const Element* relu_output = nullptr;  ///< of the shape of C: C becomes 0 where it is not above 0; null: no mask
  activation mask = activation::relu;    ///< the activation that has written relu_output; see backward_epilogue
};

/// A requirement of `has_matmul`: matmul_workspace_bytes returns the bytes of workspace that the products need whose m,
/// n and k are at most those of the shape.
template <class Device, class Element>
concept has_matmul_workspace_bytes = requires(Device& device, const matmul_shape& shape) {
  { matmul_workspace_bytes<Element>(device, shape) } -> std::same_as<std::size_t>;
};

/// A requirement of `has_matmul`: matmul overwrites C, of Element, with the product of A, of Element, and B, of
/// parameter_element_t<Element>, and applies the epilogue. For storage elements, B is rounded to Element first.
template <class Device, class Element>
concept has_matmul_of_parameters = requires(Device& device, const matmul_shape& shape, const Element* a,
                                            const parameter_element_t<Element>* b, Element* c,
                                            const matmul_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  matmul(device, shape, a, b, c, epilogue, workspace);
};

/// A requirement of `has_matmul`: matmul overwrites C, of parameter_element_t<Element>, with the product of A and B, of
/// Element, and applies the epilogue.
template <class Device, class Element>
concept has_matmul_to_parameters = requires(Device& device, const matmul_shape& shape, const Element* a,
                                            const Element* b, parameter_element_t<Element>* c,
                                            const matmul_epilogue<parameter_element_t<Element>>& epilogue,
                                            std::span<std::byte> workspace) {
  matmul(device, shape, a, b, c, epilogue, workspace);
};

/// A requirement of `has_matmul`: column_sums overwrites sums (columns) with the sums over the rows of a (rows,
/// columns).
template <class Device, class Element>
concept has_column_sums = requires(Device& device, index_t rows, index_t columns, const Element* a,
                                   parameter_element_t<Element>* sums) {
  column_sums(device, rows, columns, a, sums);
};

/// A device that multiplies matrices; nn::dense asks for it.
///
/// For float and double, parameter_element_t<Element> is Element, and the two products are one. For storage elements
/// (bfloat16, float16) it is float, and sums are float.
///
/// m, n and k may be 0. A NaN or infinite term affects the sums that contain it and no others. A NaN stays NaN under
/// the activation; where relu_output is NaN, C becomes 0, or slope * C. The workspace is aligned to 64 bytes and need
/// not be kept between calls. Other arrays need only the alignment of their elements. C must not overlap them. Results
/// are bitwise the same for any number of threads.
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
