// SPDX-License-Identifier: BSL-1.0
//
// The matrix product against its definition, over shapes that reach every remainder of a tile.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "eighths.hpp"
#include "emulated_amx.hpp"
#include "emulated_pairs.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu/matmul.hpp"
#include "instruction_sets.hpp"

namespace {

using gradus::index_t;
using gradus::kernels::matmul_epilogue;
using gradus::kernels::matmul_shape;
using elements = std::tuple<float, double>;

template <class Element>
std::vector<Element> values(index_t count, std::string_view name) {
  std::vector<Element> result;
  for (const double value : eighths(static_cast<std::size_t>(count), name)) {
    result.push_back(static_cast<Element>(static_cast<gradus::parameter_element_t<Element>>(value)));
  }
  return result;
}

/// The factors and what the product is added to: of three types where images, parameters and results differ.
template <class Element, class Factor = Element, class Result = Element>
struct operands {
  using real = gradus::parameter_element_t<Result>;

  matmul_shape shape;
  std::vector<Element> a;
  std::vector<Factor> b;
  std::vector<Result> c;
  std::vector<real> bias;
  std::vector<Result> mask;

  explicit operands(const matmul_shape& s)
      : shape{s},
        a{values<Element>(s.m * s.k, "a")},
        b{values<Factor>(s.k * s.n, "b")},
        c{values<Result>(s.m * s.n, "c")},
        bias{values<real>(s.n, "bias")},
        mask{values<Result>(s.m * s.n, "mask")} {}

  [[nodiscard]] matmul_epilogue<Result> epilogue(int which) const {
    switch (which) {
      case 1:
        return {.bias = bias.data(), .act = gradus::kernels::activation::relu};
      case 2:
        return {.accumulate = true, .relu_output = mask.data()};
      default:
        return {};
    }
  }

  [[nodiscard]] std::vector<Result> product(gradus::cpu& device, int which) const {
    std::vector<Result> result = which == 2 ? c : std::vector<Result>(c.size(), static_cast<Result>(NAN));
    const std::size_t bytes = gradus::kernels::matmul_workspace_bytes<Element>(device, shape);
    auto* const workspace = static_cast<std::byte*>(device.allocate(bytes));
    std::memset(workspace, 0xFF, bytes);
    matmul(device, shape, a.data(), b.data(), result.data(), epilogue(which), std::span<std::byte>{workspace, bytes});
    device.deallocate(workspace, bytes);
    return result;
  }

  /// Sums of the definition, before the epilogue.
  [[nodiscard]] std::vector<double> plain_product() const {
    std::vector<double> sums(c.size());
    for (index_t i = 0; i < shape.m; ++i) {
      double* const row = sums.data() + i * shape.n;
      for (index_t t = 0; t < shape.k; ++t) {
        const auto left =
            static_cast<double>(a[static_cast<std::size_t>(shape.transpose_a ? t * shape.m + i : i * shape.k + t)]);
        const Factor* const right = b.data() + (shape.transpose_b ? t : t * shape.n);
        const index_t step = shape.transpose_b ? shape.k : 1;
        for (index_t j = 0; j < shape.n; ++j) {
          row[j] += left * static_cast<double>(right[j * step]);
        }
      }
    }
    return sums;
  }

  [[nodiscard]] double difference(const std::vector<Result>& result, const std::vector<double>& plain,
                                  int which) const {
    const auto e = epilogue(which);
    double worst = 0;
    for (std::size_t at = 0; at < result.size(); ++at) {
      double sum = plain[at];
      if (e.bias != nullptr) {
        sum += static_cast<double>(bias[at % static_cast<std::size_t>(shape.n)]);
      }
      if (e.accumulate) {
        sum += static_cast<double>(c[at]);
      }
      if (e.act == gradus::kernels::activation::relu) {
        sum = std::max(sum, 0.0);
      }
      if (e.relu_output != nullptr && !(mask[at] > 0)) {
        sum = 0;
      }
      const double apart = std::abs(static_cast<double>(result[at]) - sum) / (1 + std::abs(sum));
      worst = apart <= worst ? worst : (std::isnan(apart) ? INFINITY : apart);
    }
    return worst;
  }
};

/// Every transposition and epilogue, with every instruction set, with one thread and with three.
template <class Element, class Factor = Element, class Result = Element>
void check_product(index_t m, index_t n, index_t k) {
  constexpr double allowed = gradus::real_element<Result>              ? 1e-6  // the sums are exact
                             : std::is_same_v<Result, gradus::float16> ? 1.0 / 2048
                                                                       : 1.0 / 256;
  gradus::cpu one{{.intra_op_threads = 1}};
  gradus::cpu three{{.intra_op_threads = 3}};
  for (int transposed = 0; transposed < 4; ++transposed) {
    const operands<Element, Factor, Result> o{matmul_shape{
        .m = m, .n = n, .k = k, .transpose_a = (transposed & 1) != 0, .transpose_b = (transposed & 2) != 0}};
    const std::vector<double> plain = o.plain_product();
    for_each_instruction_set([&](gradus::kernels::instruction_set set) {
      BOOST_TEST_CONTEXT(gradus::kernels::name_of(set)
                         << ": " << m << " x " << n << " x " << k << ", transposed " << transposed) {
        for (int which = 0; which < 3; ++which) {
          const auto result = o.product(one, which);
          BOOST_TEST(o.difference(result, plain, which) < allowed);
          const auto again = o.product(three, which);
          BOOST_TEST((std::memcmp(result.data(), again.data(), result.size() * sizeof(Result)) == 0));
        }
      }
    });
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(kernels_cpu_matmul)

BOOST_AUTO_TEST_CASE_TEMPLATE(agrees_with_the_definition, Element, elements) {
  for (const index_t m : {1, 5, 14, 33}) {
    for (const index_t n : {1, 10, 16, 71}) {
      for (const index_t k : {0, 1, 7, 130}) {
        check_product<Element>(m, n, k);
      }
    }
  }
}

// Several blocks of terms with panels that are packed before, and several groups of panels with a narrow rest.
BOOST_AUTO_TEST_CASE_TEMPLATE(blocks_and_groups_agree_with_the_definition, Element, elements) {
  check_product<Element>(245, 70, 900);
  check_product<Element>(245, 40, 900);
  check_product<Element>(11, 1100, 30);
  check_product<Element>(9, 283, 600);
}

BOOST_AUTO_TEST_CASE(instruction_sets_are_chosen_by_name) {
  namespace detail = gradus::kernels::detail;
  for (const auto which : detail::all_instruction_sets) {
    if (gradus::kernels::is_available(which)) {
      BOOST_TEST((detail::instruction_set_named(name_of(which), "test") == which));
    } else {
      BOOST_CHECK_THROW((void)detail::instruction_set_named(name_of(which), "test"), gradus::configuration_error);
    }
  }
  BOOST_CHECK_THROW((void)detail::instruction_set_named("avx1024", "test"), gradus::configuration_error);
  BOOST_TEST(gradus::kernels::name_of(gradus::kernels::instruction_set::avx512_bf16) == "avx512_bf16");
}

// Each place that chooses the code of an instruction set knows it. The sets after avx512 have its vectors.
BOOST_AUTO_TEST_CASE_TEMPLATE(tables_of_an_instruction_set_belong_together, Element, elements) {
  namespace detail = gradus::kernels::detail;
  for (const auto which : detail::all_instruction_sets) {
    const detail::tile_kernels<Element>& tiles = detail::tile_kernels_for<Element>(which);
    BOOST_TEST((tiles.set == std::min(which, gradus::kernels::instruction_set::avx512)), name_of(which));
    const auto& planes = detail::plane_tiles_for<Element>(which);
    for (std::size_t rows = 0; rows < planes.size(); ++rows) {
      BOOST_TEST((planes[rows] != nullptr) == (tiles.wide[rows] != nullptr), name_of(which) << ", tiles of " << rows);
    }
    BOOST_TEST(
        detail::single_term_kernels_for<gradus::bfloat16>(which).lanes == detail::tile_kernels_for<float>(which).lanes,
        name_of(which));
  }
}

// Images and a parameter give images; images and gradients of images give the gradient of a parameter.
using stored_elements = std::tuple<gradus::bfloat16, gradus::float16>;
BOOST_AUTO_TEST_CASE_TEMPLATE(products_of_sixteen_bits_agree_with_the_definition, Element, stored_elements) {
  for (const index_t m : {1, 14, 33}) {
    for (const index_t n : {1, 10, 71}) {
      for (const index_t k : {0, 1, 130, 1500}) {
        check_product<Element, float, Element>(m, n, k);
        check_product<Element, Element, float>(m, n, k);
      }
    }
  }
  for (const auto& [many, k] : {std::pair<index_t, index_t>{131, 301}, {2085, 135}}) {
    check_product<Element, float, Element>(3, many, k);
    check_product<Element, Element, float>(many, 2, k);
  }
  check_product<Element, float, Element>(500, 40, 70);
  check_product<Element, Element, float>(300, 250, 9);
}

// 1 + 3 / 512 becomes 1 + 4 / 512 in bfloat16, and 1 + 3 / 4096 becomes 1 + 4 / 4096 in float16, as a parameter; the
// product shows the difference to 1.
BOOST_AUTO_TEST_CASE_TEMPLATE(parameters_are_rounded_to_sixteen_bits, Element, stored_elements) {
  constexpr float unit = std::is_same_v<Element, gradus::float16> ? 1.0F / 4096 : 1.0F / 512;
  gradus::cpu device{{.intra_op_threads = 1}};
  for (const index_t m : {1, 9}) {
    const std::vector<float> b{1.0F + 3 * unit, 1.0F};
    std::vector<Element> a;
    for (index_t i = 0; i < m; ++i) {
      a.insert(a.end(), {Element{1.0F}, Element{-1.0F}});
    }
    std::vector<Element> c(static_cast<std::size_t>(m));
    const matmul_shape shape{.m = m, .n = 1, .k = 2};
    std::vector<std::byte> workspace(gradus::kernels::matmul_workspace_bytes<Element>(device, shape) + 64);
    void* aligned = workspace.data();
    std::size_t bytes = workspace.size();
    std::align(64, bytes - 63, aligned, bytes);
    matmul(device, shape, a.data(), b.data(), c.data(), matmul_epilogue<Element>{},
           std::span<std::byte>{static_cast<std::byte*>(aligned), bytes});
    for (const Element value : c) {
      BOOST_TEST(static_cast<float>(value) == 4 * unit);
    }
  }
}

// What AVX512-BF16 and AMX run: here with tiles that any processor has.
template <class Element, class Result>
void check_pairs(const gradus::kernels::detail::tile_kernels<float>& kernels, index_t m, index_t n, index_t k) {
  namespace detail = gradus::kernels::detail;
  for (int transposed = 0; transposed < 4; ++transposed) {
    const operands<Element, Element, Result> o{matmul_shape{
        .m = m, .n = n, .k = k, .transpose_a = (transposed & 1) != 0, .transpose_b = (transposed & 2) != 0}};
    const std::vector<double> plain = o.plain_product();
    for (int which = 0; which < 3; ++which) {
      std::vector<Result> results[2];
      for (const int threads : {1, 3}) {
        gradus::cpu device{{.intra_op_threads = threads}};
        auto& result = results[threads / 2];
        result = which == 2 ? o.c : std::vector<Result>(o.c.size(), static_cast<Result>(NAN));
        const detail::product<Element> product{kernels, o.shape, threads};
        const std::size_t bytes = detail::product<Element>::workspace_bytes(kernels, o.shape, threads);
        auto* const workspace = static_cast<std::byte*>(device.allocate(bytes));
        std::memset(workspace, 0xFF, bytes);
        product.run(device, o.a.data(), o.b.data(), detail::output_of(result.data(), o.epilogue(which)), workspace);
        device.deallocate(workspace, bytes);
      }
      BOOST_TEST_CONTEXT(m << " x " << n << " x " << k << ", transposed " << transposed << ", epilogue " << which) {
        BOOST_TEST(o.difference(results[0], plain, which) < (gradus::real_element<Result> ? 1e-6 : 1.0 / 256));
        BOOST_TEST((std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(Result)) == 0));
      }
    }
  }
}

void check_pairs(const gradus::kernels::detail::tile_kernels<float>& kernels) {
  using gradus::bfloat16;
  for (const index_t m : {1, 15, 33}) {
    for (const index_t n : {1, 16, 71}) {
      for (const index_t k : {0, 1, 2, 131, 1500}) {
        check_pairs<bfloat16, bfloat16>(kernels, m, n, k);
        check_pairs<bfloat16, float>(kernels, m, n, k);
      }
    }
  }
  check_pairs<bfloat16, bfloat16>(kernels, 500, 40, 71);
  check_pairs<bfloat16, float>(kernels, 300, 250, 9);
}

BOOST_AUTO_TEST_CASE(products_of_pairs_agree_with_the_definition) {
  check_pairs(emulated_pair_kernels());
}
BOOST_AUTO_TEST_CASE(products_of_lines_of_pairs_agree_with_the_definition) {
  check_pairs(emulated_amx_kernels<gradus::bfloat16>());
}
// The same loops, with other products.
BOOST_AUTO_TEST_CASE(products_of_lines_of_pairs_of_float16_agree_with_the_definition) {
  using gradus::float16;
  const auto& kernels = emulated_amx_kernels<float16>();
  check_pairs<float16, float16>(kernels, 1, 1, 0);
  check_pairs<float16, float16>(kernels, 33, 71, 131);
  check_pairs<float16, float>(kernels, 15, 40, 9);
}

// Few rows or columns: every remainder of vectors and of rows, several parts of the terms, several blocks of columns.
BOOST_AUTO_TEST_CASE_TEMPLATE(matrices_times_vectors_agree_with_the_definition, Element, elements) {
  for (const index_t few : {1, 2, 3, 4, 6, 7}) {
    for (const auto& [many, k] : {std::pair<index_t, index_t>{9, 64}, {131, 300}, {2085, 135}, {4099, 71}}) {
      check_product<Element>(few, many, k);
      check_product<Element>(many, few, k);
    }
  }
}

using summed_elements = std::tuple<float, double, gradus::bfloat16, gradus::float16>;
BOOST_AUTO_TEST_CASE_TEMPLATE(column_sums_agree_with_the_definition, Element, summed_elements) {
  using real = gradus::parameter_element_t<Element>;
  gradus::cpu one{{.intra_op_threads = 1}};
  gradus::cpu three{{.intra_op_threads = 3}};
  for (const index_t rows : {0, 1, 9, 300}) {
    for (const index_t columns : {1, 8, 77}) {
      const auto a = values<Element>(rows * columns, "a");
      std::vector<real> sums(static_cast<std::size_t>(columns), static_cast<real>(NAN));
      std::vector<real> again = sums;
      gradus::kernels::column_sums(one, rows, columns, a.data(), sums.data());
      gradus::kernels::column_sums(three, rows, columns, a.data(), again.data());
      for (index_t j = 0; j < columns; ++j) {
        double sum = 0;
        for (index_t i = 0; i < rows; ++i) {
          sum += static_cast<double>(a[static_cast<std::size_t>(i * columns + j)]);
        }
        BOOST_TEST(std::abs(static_cast<double>(sums[static_cast<std::size_t>(j)]) - sum) < 1e-4);
      }
      BOOST_TEST((std::memcmp(sums.data(), again.data(), sums.size() * sizeof(real)) == 0));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
