// SPDX-License-Identifier: BSL-1.0
//
// The contract of matrix product kernels: shape, epilogue and the functions that every device overloads.
#pragma once

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
  activation act = activation::identity;
  bool accumulate = false;
  const Element* relu_output = nullptr;  ///< of the shape of C: C becomes 0 where it is not above 0; null: no mask
};

// Every device D in the library overloads, for real elements E:
//
//   std::size_t matmul_workspace_bytes<E>(D&, const matmul_shape&);
//   void matmul(D&, const matmul_shape&, const E* a, const E* b, E* c, const matmul_epilogue<E>&,
//               std::span<std::byte> workspace);
//   void column_sums(D&, index_t rows, index_t columns, const E* a, E* sums);   // overwrites sums (columns)
//
// For storage elements E (bfloat16, float16), with P = parameter_element_t<E>, it overloads matmul_workspace_bytes<E>
// and
//
//   void matmul(D&, const matmul_shape&, const E* a, const P* b, E* c, const matmul_epilogue<E>&, workspace);
//   void matmul(D&, const matmul_shape&, const E* a, const E* b, P* c, const matmul_epilogue<P>&, workspace);
//   void column_sums(D&, index_t rows, index_t columns, const E* a, P* sums);
//
// which round b to E first and compute sums of type P.
//
// m, n and k may be 0. A NaN or infinite term affects the sums that contain it and no others. A NaN stays NaN under the
// activation; where relu_output is NaN, C becomes 0. The workspace is aligned to 64 bytes and need not be kept between
// calls. Other arrays need only the alignment of their elements. C must not overlap them. Results are bitwise the same
// for any number of threads.

}  // namespace gradus::kernels
