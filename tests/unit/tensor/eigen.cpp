// SPDX-License-Identifier: BSL-1.0
//
// Tensors as objects of Eigen and the other way round, in the same memory.
#include <boost/test/unit_test.hpp>
#include <string>
#include <type_traits>

#include "gradus/tensor/copy.hpp"
#include "gradus/tensor/eigen.hpp"
#include "gradus/tensor/expressions.hpp"
#include "gradus/tensor/factories.hpp"

using gradus::as_eigen;
using gradus::as_tensor;
using gradus::as_transposed_tensor;

BOOST_AUTO_TEST_SUITE(eigen)

using row_major_matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

BOOST_AUTO_TEST_CASE(tensors_as_maps) {
  gradus::cpu device{{.intra_op_threads = 1}};
  auto x = gradus::from_list<float, 2>(device, {{1, 2, 3}, {4, 5, 6}});
  const auto& constant = x;
  as_eigen(x)(1, 0) = 40;
  BOOST_TEST(x(1, 0) == 40.0F);
  BOOST_TEST(as_eigen(constant)(0, 2) == 3.0F);
  BOOST_TEST((as_eigen(constant).rows() == 2 && as_eigen(constant).cols() == 3));
  static_assert(std::is_same_v<decltype(as_eigen(constant)), Eigen::Map<const row_major_matrix>>);
  static_assert(std::is_same_v<decltype(as_eigen(x.view())), Eigen::Map<row_major_matrix>>);
  as_eigen(x.view().slice(1, 1)) *= 2;
  BOOST_TEST(x(1, 2) == 12.0F);
  BOOST_TEST(x(0, 2) == 3.0F);
  auto v = gradus::from_list<double, 1>(device, {3, 4});
  BOOST_TEST(as_eigen(v).norm() == 5.0);
  as_eigen(v).normalize();
  BOOST_TEST(v(1) == 0.8);
  const auto product = evaluate(matmul(x, transpose(x)));
  BOOST_TEST((as_eigen(x) * as_eigen(x).transpose() - as_eigen(product)).norm() == 0.0F);
  BOOST_TEST(as_eigen(x.view().slice(0, 0)).size() == 0);
}

BOOST_AUTO_TEST_CASE(objects_of_eigen_as_views) {
  gradus::cpu device{{.intra_op_threads = 1}};
  row_major_matrix m(2, 3);
  m << 1, 2, 3, 4, 5, 6;
  const auto view = as_tensor(device, m);
  static_assert(std::is_same_v<decltype(view), const gradus::tensor_view<float, 2>>);
  BOOST_TEST((view.extents() == gradus::extents<2>{2, 3}));
  BOOST_TEST(view(1, 0) == 4.0F);
  view.assign(view * 2);
  BOOST_TEST(m(1, 2) == 12.0F);
  const row_major_matrix& constant = m;
  static_assert(std::is_same_v<decltype(as_tensor(device, constant)), gradus::tensor_view<const float, 2>>);
  BOOST_TEST(scalar_of(sum(as_tensor(device, constant))) == 42.0F);

  Eigen::VectorXd v(3);
  v << 1, 2, 3;
  static_assert(std::is_same_v<decltype(as_tensor(device, v)), gradus::tensor_view<double, 1>>);
  BOOST_TEST(as_tensor(device, v)(2) == 3.0);
  Eigen::RowVector2d row(7, 8);
  BOOST_TEST(as_tensor(device, row)(1) == 8.0);
  Eigen::Array<std::int32_t, 2, 2, Eigen::RowMajor> array;
  array << 1, 2, 3, 4;
  BOOST_TEST(as_tensor(device, array)(1, 0) == 3);

  // A view of the view: a map refers to memory of others and may be a temporary.
  auto x = gradus::from_list<float, 2>(device, {{1, 2}, {3, 4}});
  BOOST_TEST(as_tensor(device, as_eigen(x)).data() == x.data());
  const auto& constant_x = x;
  static_assert(std::is_same_v<decltype(as_tensor(device, as_eigen(constant_x))), gradus::tensor_view<const float, 2>>);
}

BOOST_AUTO_TEST_CASE(matrices_that_are_stored_by_columns) {
  gradus::cpu device{{.intra_op_threads = 1}};
  Eigen::MatrixXf m(2, 3);
  m << 1, 2, 3, 4, 5, 6;
  const auto view = as_transposed_tensor(device, m);
  BOOST_TEST((view.extents() == gradus::extents<2>{3, 2}));
  BOOST_TEST(view(2, 0) == 3.0F);
  view(2, 1) = 60;
  BOOST_TEST(m(1, 2) == 60.0F);
  const gradus::tensor<float, 2> copied = transpose(view);
  BOOST_TEST((copied.extents() == gradus::extents<2>{2, 3}));
  BOOST_TEST(copied(1, 0) == 4.0F);
  const Eigen::MatrixXf& constant = m;
  static_assert(std::is_same_v<decltype(as_transposed_tensor(device, constant)), gradus::tensor_view<const float, 2>>);
}

BOOST_AUTO_TEST_CASE(blocks_with_gaps_are_refused) {
  gradus::cpu device{{.intra_op_threads = 1}};
  row_major_matrix m(4, 5);
  m.setConstant(1);
  auto rows = m.middleRows(1, 2);
  BOOST_TEST((as_tensor(device, rows).extents() == gradus::extents<2>{2, 5}));
  BOOST_TEST(as_tensor(device, rows).data() == m.data() + 5);
  auto row = m.row(2);
  BOOST_TEST(as_tensor(device, row).data() == m.data() + 10);
  auto columns = m.middleCols(1, 3);
  auto column = m.col(1);
  const auto says = [](const gradus::shape_error& e) {
    const std::string text{e.what()};
    return text.starts_with("as_tensor: expected elements without gaps in memory, got an inner stride of ") &&
           text.find("[eigen.cpp:") != std::string::npos;
  };
  BOOST_CHECK_EXCEPTION((void)as_tensor(device, columns), gradus::shape_error, says);
  BOOST_CHECK_EXCEPTION((void)as_tensor(device, column), gradus::shape_error, says);
  auto one = m.block(1, 1, 1, 2);
  BOOST_TEST(as_tensor(device, one).data() == m.data() + 6);
  auto none = m.block(1, 1, 2, 0);
  BOOST_TEST(as_tensor(device, none).size() == 0);
}

BOOST_AUTO_TEST_SUITE_END()
