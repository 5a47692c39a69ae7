// SPDX-License-Identifier: BSL-1.0
//
// Matrix products and sums of columns against their definitions: all transposes, epilogues, element types and
// instruction sets. Factors are multiples of 1/8, so that all sums are exact and results are compared to the last bit.
// See tests/support/sweep.hpp.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "gradus/kernels/cpu/matmul.hpp"
#include "support.hpp"

namespace {

using namespace kernel_sweep;
using gradus::kernels::activation;
using gradus::kernels::matmul_epilogue;
using gradus::kernels::matmul_shape;

/// Rows, columns or terms: few, or around multiples of what tiles and panels hold.
index_t draw_extent(sweep_case& test) {
  if (test.once_in(3)) {
    constexpr std::array<index_t, 10> sizes{24, 32, 40, 48, 56, 64, 80, 96, 112, 128};
    return sizes[static_cast<std::size_t>(test.below(sizes.size()))] - 2 + test.below(5);
  }
  return 1 + test.below(17);
}

matmul_shape draw_shape(sweep_case& test) {
  matmul_shape shape{.m = draw_extent(test), .n = draw_extent(test), .k = draw_extent(test)};
  if (test.once_in(8)) {  // a matrix and a few vectors: from 64 terms on, at most 6 vectors
    shape.k = 60 + test.below(10);
    (test.once_in(2) ? shape.m : shape.n) = 1 + test.below(8);
  }
  switch (test.below(400)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:  // more rows or columns than the 240 of a block
      (test.once_in(2) ? shape.m : shape.n) = 236 + test.below(10);
      break;
    case 6:
    case 7:
    case 8:
    case 9:
    case 10:
    case 11:  // more terms than a block has, with any instruction set or with wide vectors
      shape.k = test.once_in(8) ? 3070 + test.below(8) : (test.once_in(2) ? 380 : 1530) + test.below(12);
      shape.m = 1 + shape.m % 20;
      shape.n = 1 + shape.n % 20;
      break;
    case 12:
    case 13:
    case 14:
    case 15:  // rows that are multiples of 1024 bytes apart are copied
      shape.k = 128 * (1 + test.below(4));
      shape.m = 7 + test.below(40);
      shape.n = 30 + test.below(110);
      break;
    case 16:
    case 17:  // more columns than a task of a matrix-vector product, or a block of tiles, has
      (test.once_in(2) ? shape.m : shape.n) = (test.once_in(2) ? 2046 : 4094) + test.below(6);
      shape.k = 1 + shape.k % 70;
      (shape.m > 2000 ? shape.n : shape.m) = 1 + test.below(7);
      break;
    case 18:
    case 19:
    case 20:
    case 21:
    case 22:
    case 23:
      (test.once_in(3) ? shape.k : test.once_in(2) ? shape.m : shape.n) = 0;
      break;
    default:
      break;
  }
  shape.transpose_a = test.once_in(2);
  shape.transpose_b = test.once_in(2);
  test.note("m", shape.m);
  test.note("n", shape.n);
  test.note("k", shape.k);
  test.note("transpose_a", shape.transpose_a ? 1 : 0);
  test.note("transpose_b", shape.transpose_b ? 1 : 0);
  return shape;
}

template <class Element, class Factor, class Result>
void check_product(sweep_case& test) {
  using real = parameter_element_t<Result>;
  cpu& device = device_of(test);
  const matmul_shape shape = draw_shape(test);
  const auto a = filled<Element>(test, shape.m * shape.k);
  const auto b = filled<Factor>(test, shape.k * shape.n);
  // A NaN term makes every sum that contains it NaN, and no other.
  if (test.flip("nan", 16) && shape.m * shape.n * shape.k > 0) {
    a[static_cast<std::size_t>(test.below(shape.m * shape.k))] = stored<Element>(std::nan(""));
    b[static_cast<std::size_t>(test.below(shape.k * shape.n))] = stored<Factor>(std::nan(""));
  }
  const auto at_a = [&](index_t i, index_t t) {
    return static_cast<double>(a[static_cast<std::size_t>(shape.transpose_a ? t * shape.m + i : i * shape.k + t)]);
  };
  const auto at_b = [&](index_t t, index_t j) {
    return static_cast<double>(b[static_cast<std::size_t>(shape.transpose_b ? j * shape.k + t : t * shape.n + j)]);
  };
  const index_t size = shape.m * shape.n;
  const bool has_bias = test.flip("bias");
  const activation act = draw_activation(test, "activation");
  const activation masked_by = draw_activation(test, "activation of the mask", false);
  const bool accumulate = test.flip("accumulate");
  const bool masks = test.flip("mask", 3);
  const auto bias = filled<real>(test, has_bias ? shape.n : 0);
  const auto mask = filled<Result>(test, masks ? size : 0, test.once_in(4) ? 9 : 0);
  auto c = accumulate ? filled<Result>(test, size) : test.array<Result>(size);
  std::vector<double> expected(c.size());
  std::vector<double> row(static_cast<std::size_t>(shape.n));
  for (index_t i = 0; i < shape.m; ++i) {
    std::fill(row.begin(), row.end(), 0.0);
    for (index_t t = 0; t < shape.k; ++t) {
      const double left = at_a(i, t);
      for (index_t j = 0; j < shape.n; ++j) {
        row[static_cast<std::size_t>(j)] += left * at_b(t, j);
      }
    }
    for (index_t j = 0; j < shape.n; ++j) {
      const auto at = static_cast<std::size_t>(i * shape.n + j);
      double value = row[static_cast<std::size_t>(j)];
      value += has_bias ? static_cast<double>(bias[static_cast<std::size_t>(j)]) : 0.0;
      value += accumulate ? static_cast<double>(c[at]) : 0.0;
      value = activated(act, value);
      value = masks ? times_derivative(masked_by, static_cast<double>(mask[at]), value) : value;
      expected[at] = static_cast<double>(stored<Result>(value));
    }
  }
  const std::size_t bytes = gradus::kernels::matmul_workspace_bytes<Element>(device, shape);
  const auto workspace = test.array<std::byte>(static_cast<index_t>(bytes), 64);
  if constexpr (!std::is_same_v<Element, Factor>) {
    // A parameter is rounded first: numbers that become those of the definition.
    for (Factor& factor : b.elements()) {
      factor *= test.once_in(2) ? Factor{1 + 0x1p-14F} : Factor{1 - 0x1p-14F};
    }
  }
  matmul(device, shape, a.data(), b.data(), c.data(),
         matmul_epilogue<Result>{.bias = has_bias ? bias.data() : nullptr,
                                 .act = act,
                                 .accumulate = accumulate,
                                 .relu_output = masks ? mask.data() : nullptr,
                                 .mask = masked_by},
         workspace.elements());
  all_equal(test, "c", c, expected);
  if (!workspace.intact()) {
    test.fail("something was written beside the workspace");
  }
}

template <class Element>
void check_sums(sweep_case& test) {
  cpu& device = device_of(test);
  const index_t rows = test.between("rows", 0, 40);
  const index_t columns = test.note("columns", test.once_in(10) ? 250 + test.below(300) : test.below(70));
  const auto a = filled<Element>(test, rows * columns, test.once_in(8) ? 99 : 0);
  auto sums = test.array<parameter_element_t<Element>>(columns);
  std::vector<double> expected(sums.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    expected[i % expected.size()] += static_cast<double>(a[i]);
  }
  column_sums(device, rows, columns, a.data(), sums.data());
  all_equal(test, "sums", sums, expected);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sweeps)

BOOST_AUTO_TEST_CASE(matmul) {
  gradus_test::sweep("matmul", 4000, [](sweep_case& test) {
    with_element(test, [&]<class Element>(Element) {
      using real = parameter_element_t<Element>;
      if constexpr (std::is_same_v<Element, real>) {
        check_product<Element, Element, Element>(test);
      } else if (test.flip("of a parameter")) {
        check_product<Element, real, Element>(test);
      } else {
        check_product<Element, Element, real>(test);
      }
    });
  });
}

BOOST_AUTO_TEST_CASE(column_sums) {
  gradus_test::sweep("column_sums", 1000, [](sweep_case& test) {
    with_element(test, [&]<class Element>(Element) { check_sums<Element>(test); });
  });
}

BOOST_AUTO_TEST_SUITE_END()
