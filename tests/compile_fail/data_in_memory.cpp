// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR(expression): gradus: data::in_memory: this expression of Eigen has no memory: evaluate it first
// EXPECT_ERROR(nested): copy a vector of vectors, or a std::vector<bool>, to one std::vector<float> v
// EXPECT_ERROR(temporary): gradus: data::in_memory: the data set keeps a reference to its arrays
// EXPECT_ERROR(number): gradus: data::in_memory takes tensors in host memory, matrices of Eigen
#include <Eigen/Core>
#include <vector>

#include "gradus/data/in_memory.hpp"

namespace data = gradus::data;

void use(Eigen::MatrixXf& x, std::vector<float>& y, std::vector<long>& labels) {
  static_cast<void>(data::in_memory(x, labels));
#if defined(GRADUS_TEST_CASE_EXPRESSION)
  static_cast<void>(data::in_memory(x * 2.0F, y));
#elif defined(GRADUS_TEST_CASE_NESTED)
  std::vector<std::vector<float>> rows;
  static_cast<void>(data::in_memory(rows, y));
#elif defined(GRADUS_TEST_CASE_TEMPORARY)
  static_cast<void>(data::in_memory(Eigen::MatrixXf{x * 2.0F}, y));
#elif defined(GRADUS_TEST_CASE_NUMBER)
  static_cast<void>(data::in_memory(x, 1));
#endif
}
