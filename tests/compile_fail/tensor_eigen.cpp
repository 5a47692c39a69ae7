// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR(columns): gradus::as_tensor: Eigen stores this matrix by columns, and a tensor is row_major
// EXPECT_ERROR(temporary): gradus: the matrix is a temporary that is destroyed at the end of this statement
// EXPECT_ERROR(expression): gradus: this expression of Eigen has no memory: evaluate it first
// EXPECT_ERROR(rows): gradus::as_transposed_tensor: a matrix that Eigen stores by columns: use as_tensor(device, m)
// EXPECT_ERROR(rank): gradus::as_eigen: a tensor of rank 1 or 2
// EXPECT_ERROR(tensor): gradus: the tensor is a temporary that is destroyed at the end of this statement, but a map
#include "gradus/tensor/eigen.hpp"

using by_rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

void use(gradus::cpu& device, by_rows& rows, Eigen::MatrixXf& columns, gradus::tensor<float, 3>& cube) {
  static_cast<void>(gradus::as_tensor(device, rows));
  static_cast<void>(gradus::as_transposed_tensor(device, columns));
  static_cast<void>(gradus::as_eigen(cube.view().reshape(gradus::extents<1>{cube.size()})));
#if defined(GRADUS_TEST_CASE_COLUMNS)
  static_cast<void>(gradus::as_tensor(device, columns));
#elif defined(GRADUS_TEST_CASE_TEMPORARY)
  static_cast<void>(gradus::as_tensor(device, by_rows{2, 3}));
#elif defined(GRADUS_TEST_CASE_EXPRESSION)
  static_cast<void>(gradus::as_tensor(device, rows + rows));
#elif defined(GRADUS_TEST_CASE_ROWS)
  static_cast<void>(gradus::as_transposed_tensor(device, rows));
#elif defined(GRADUS_TEST_CASE_RANK)
  static_cast<void>(gradus::as_eigen(cube));
#elif defined(GRADUS_TEST_CASE_TENSOR)
  static_cast<void>(gradus::as_eigen(gradus::tensor<float, 1>{device, {2}}));
#endif
}
