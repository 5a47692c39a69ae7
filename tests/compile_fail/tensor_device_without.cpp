// SPDX-License-Identifier: BSL-1.0
//
// A device without one of the overloads that expressions need.
// EXPECT_ERROR(matrix_product): gradus: the device lacks an overload for expressions: void multiply_matrices
// EXPECT_ERROR(reduction): gradus: the device lacks an overload for expressions: template <class Kind,
// EXPECT_ERROR(reordering): gradus: the device lacks an overload for expressions: void copy_reordered
#include "../support/archetypes.hpp"
#include "gradus/tensor/expressions.hpp"

#if defined(GRADUS_TEST_GOOD_TWIN)
using device = gradus::cpu;
#else
using device = archetypes::device;
#endif

void use(device& where) {
#if defined(GRADUS_TEST_CASE_MATRIX_PRODUCT) || defined(GRADUS_TEST_GOOD_TWIN)
  const gradus::tensor<float, 2, gradus::row_major, device> a{where, {2, 2}};
  static_cast<void>(matmul(a, a));
#endif
#if defined(GRADUS_TEST_CASE_REDUCTION) || defined(GRADUS_TEST_GOOD_TWIN)
  const gradus::tensor<float, 2, gradus::row_major, device> b{where, {2, 2}};
  static_cast<void>(sum(b).value());
#endif
#if defined(GRADUS_TEST_CASE_REORDERING) || defined(GRADUS_TEST_GOOD_TWIN)
  const gradus::tensor<float, 4, gradus::nhwc, device> c{where, {2, 2, 2, 2}};
  static_cast<void>(gradus::layout_cast<gradus::nchw>(c));
#endif
}
