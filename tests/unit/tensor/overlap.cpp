// SPDX-License-Identifier: BSL-1.0
//
// Assignments to memory that the expression reads at other offsets.
#include <boost/test/unit_test.hpp>

#include "gradus/device/cpu.hpp"
#include "gradus/tensor/expressions.hpp"

BOOST_AUTO_TEST_SUITE(tensor_overlap)

BOOST_AUTO_TEST_CASE(what_is_written_may_overlap_what_is_read) {
  for (const int threads : {1, 3}) {
    gradus::cpu many{{.intra_op_threads = threads}};
    for (const gradus::index_t size : {3, 17, 64, 1000, 100'000}) {
      const auto numbers = [&] {
        gradus::tensor<float, 1> x{many, {size}};
        for (gradus::index_t i = 0; i < size; ++i) {
          x(i) = static_cast<float>(i);
        }
        return x;
      };
      const auto wrong = [&](const gradus::tensor<float, 1>& x, const auto& expected) {
        gradus::index_t count = 0;
        for (gradus::index_t i = 0; i < size; ++i) {
          count += x(i) == static_cast<float>(expected(i)) ? 0 : 1;
        }
        return count;
      };
      auto up = numbers();
      up.view().slice(1, size - 1).assign(up.view().slice(0, size - 1));
      BOOST_TEST(wrong(up, [](gradus::index_t i) { return i == 0 ? 0 : i - 1; }) == 0, size << " elements");
      auto down = numbers();
      down.view().slice(0, size - 1).assign(down.view().slice(1, size - 1) * 2.0F);
      BOOST_TEST(wrong(down, [&](gradus::index_t i) { return i == size - 1 ? i : 2 * (i + 1); }) == 0);
      auto both = numbers();
      const auto middle = both.view().slice(1, size - 2);
      middle.assign(both.view().slice(0, size - 2) + both.view().slice(2, size - 2) - middle);
      BOOST_TEST(wrong(both, [](gradus::index_t i) { return i; }) == 0);  // 2 i - i
      auto same = numbers();
      same += same;
      BOOST_TEST(wrong(same, [](gradus::index_t i) { return 2 * i; }) == 0);
    }
    // A vector that repeats, read from the rows that are written.
    gradus::tensor<float, 2> rows{many, {40, 50}};
    for (gradus::index_t r = 0; r < 40; ++r) {
      for (gradus::index_t c = 0; c < 50; ++c) {
        rows(r, c) = static_cast<float>(r + c);
      }
    }
    rows = rows + gradus::per_column(rows.view().slice(7, 1).reshape(gradus::extents<1>{50}));
    int wrong = 0;
    for (gradus::index_t r = 0; r < 40; ++r) {
      for (gradus::index_t c = 0; c < 50; ++c) {
        wrong += rows(r, c) == static_cast<float>(r + c + 7 + c) ? 0 : 1;
      }
    }
    BOOST_TEST(wrong == 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()
