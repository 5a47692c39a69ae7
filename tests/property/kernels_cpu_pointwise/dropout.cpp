// SPDX-License-Identifier: BSL-1.0
//
// Dropout against its definition, over shapes, layouts, threads and ways to split a batch.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "gradus/kernels/cpu/dropout.hpp"
#include "gradus/layout/layouts.hpp"

namespace {

using namespace gradus;

const std::vector<image_extents> dropout_shapes{{1, 1, 1, 1},  {0, 3, 2, 2},   {3, 10, 1, 1},   {2, 3, 5, 7},
                                                {2, 33, 3, 3}, {1, 4, 9, 13},  {2, 5000, 1, 1}, {1, 2, 40, 41},
                                                {1, 65, 9, 8}, {64, 128, 1, 1}};

template <class Element, class Layout>
struct result {
  std::vector<Element> y;
  std::vector<std::uint8_t> mask;
};

template <class Element, class Layout>
result<Element, Layout> forward(int threads, const image_extents& shape, const std::vector<Element>& x, double rate,
                                std::uint64_t step, std::uint64_t first_example) {
  cpu device{{.intra_op_threads = threads}};
  result<Element, Layout> r{std::vector<Element>(x.size()), std::vector<std::uint8_t>(x.size(), 9)};
  kernels::dropout_forward(device, image_view<const Element, Layout>{device, x.data(), shape},
                           image_view<Element, Layout>{device, r.y.data(), shape}, rate, random_stream{3, "drop"}, step,
                           first_example, r.mask.data());
  return r;
}

using dropout_cases = std::tuple<std::tuple<float, nchw>, std::tuple<float, nhwc>, std::tuple<double, nhwc>>;

}  // namespace

BOOST_AUTO_TEST_SUITE(dropout)

BOOST_AUTO_TEST_CASE_TEMPLATE(dropout_forward_is_its_definition, Case, dropout_cases) {
  using element = std::tuple_element_t<0, Case>;
  using layout = std::tuple_element_t<1, Case>;
  const random_stream stream{3, "drop"};
  for (const image_extents& shape : dropout_shapes) {
    for (const double rate : {0.0, 0.25, 0.5, 0.9}) {
      BOOST_TEST_CONTEXT("shape " << shape << " rate " << rate) {
        const dense_mapping<layout> at{shape};
        std::vector<element> x(static_cast<std::size_t>(shape.size()));
        for (std::size_t i = 0; i < x.size(); ++i) {
          x[i] = static_cast<element>(1 + i % 7);
        }
        const std::uint64_t step = 5'000'000'007;
        const std::uint64_t first_example = 1'000'003;
        const auto r = forward<element, layout>(1, shape, x, rate, step, first_example);
        const auto three = forward<element, layout>(3, shape, x, rate, step, first_example);
        BOOST_TEST((r.y == three.y));
        BOOST_TEST((r.mask == three.mask));
        const auto scale = static_cast<element>(1.0 / (1.0 - rate));
        index_t wrong = 0;
        index_t index = 0;
        for (index_t n = 0; n < shape.n; ++n) {
          index = 0;
          for (index_t c = 0; c < shape.c; ++c) {
            for (index_t h = 0; h < shape.h; ++h) {
              for (index_t w = 0; w < shape.w; ++w, ++index) {
                const bool keeps = kernels::dropout_keeps(stream, step, first_example + static_cast<std::uint64_t>(n),
                                                          index, kernels::dropout_threshold(rate));
                const auto i = static_cast<std::size_t>(at(n, c, h, w));
                wrong += r.mask[i] != (keeps ? 1 : 0);
                wrong += r.y[i] != (keeps ? x[i] * scale : element{0});
              }
            }
          }
        }
        BOOST_TEST(wrong == 0);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_batch_in_two_parts_is_the_batch, Case, dropout_cases) {
  using element = std::tuple_element_t<0, Case>;
  using layout = std::tuple_element_t<1, Case>;
  const image_extents whole{4, 3, 5, 7};
  const image_extents part{2, 3, 5, 7};
  const std::vector<element> x(static_cast<std::size_t>(whole.size()), element{1});
  const std::vector<element> half(static_cast<std::size_t>(part.size()), element{1});
  const auto all = forward<element, layout>(1, whole, x, 0.5, 7, 100);
  const auto a = forward<element, layout>(1, part, half, 0.5, 7, 100);
  auto parts = a.y;
  const auto b = forward<element, layout>(1, part, half, 0.5, 7, 102);
  parts.insert(parts.end(), b.y.begin(), b.y.end());
  BOOST_TEST((parts == all.y));
  BOOST_TEST((a.y != b.y));
  BOOST_TEST((forward<element, layout>(1, part, half, 0.5, 8, 100).y != a.y));
}

BOOST_AUTO_TEST_CASE(dropout_drops_at_its_rate) {
  const image_extents shape{64, 4096, 1, 1};
  const std::vector<float> x(static_cast<std::size_t>(shape.size()), 1.0F);
  for (const double rate : {0.1, 0.5, 0.8}) {
    const auto r = forward<float, nchw>(2, shape, x, rate, 1, 0);
    double kept = 0;
    for (const auto bit : r.mask) {
      kept += bit;
    }
    const auto count = static_cast<double>(x.size());
    const double deviation = std::sqrt(rate * (1 - rate) / count);
    BOOST_TEST(std::abs(kept / count - (1 - rate)) < 5 * deviation);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(dropout_backward_passes_what_was_kept, Element, decltype(std::tuple<float, double>{})) {
  for (const index_t count : {0, 1, 17, 40000}) {
    const auto size = static_cast<std::size_t>(count);
    std::vector<Element> dy(size);
    std::vector<std::uint8_t> mask(size);
    for (std::size_t i = 0; i < size; ++i) {
      dy[i] = static_cast<Element>(i % 11) - 5;
      mask[i] = static_cast<std::uint8_t>(i / 3 % 2);
    }
    for (const bool accumulate : {false, true}) {
      for (const int threads : {1, 3}) {
        cpu device{{.intra_op_threads = threads}};
        std::vector<Element> dx(size, Element{0.5});
        kernels::dropout_backward(device, count, dy.data(), mask.data(), 2.0, dx.data(), accumulate);
        index_t wrong = 0;
        for (std::size_t i = 0; i < size; ++i) {
          wrong += dx[i] != (accumulate ? Element{0.5} : Element{0}) + (mask[i] == 1 ? 2 * dy[i] : Element{0});
        }
        BOOST_TEST(wrong == 0);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_nan_stays_visible) {
  const image_extents shape{1, 64, 1, 1};
  const std::vector<float> x(64, std::numeric_limits<float>::quiet_NaN());
  for (const float value : forward<float, nchw>(1, shape, x, 0.5, 1, 0).y) {
    BOOST_TEST(std::isnan(value));
  }
}

BOOST_AUTO_TEST_SUITE_END()
