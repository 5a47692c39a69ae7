// SPDX-License-Identifier: BSL-1.0
//
// The @post of dense_mapping, for the layouts of the library and one of a user; a user's layout in tensors.
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <string_view>
#include <tuple>
#include <vector>

#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/expressions.hpp"

namespace {

/// Channels first, images last.
struct chwn {
  static constexpr std::array order{gradus::axis::c, gradus::axis::h, gradus::axis::w, gradus::axis::n};
  static constexpr std::string_view name = "chwn";
};
static_assert(gradus::layout_policy<chwn>);
static_assert(!gradus::layout_policy<gradus::row_major> && gradus::tensor_layout<gradus::row_major, 3>);
static_assert(!gradus::tensor_layout<chwn, 3>);

using layouts = std::tuple<gradus::nchw, gradus::nhwc, chwn>;

}  // namespace

BOOST_AUTO_TEST_SUITE(dense_mapping)

BOOST_AUTO_TEST_CASE_TEMPLATE(is_a_bijection, Layout, layouts) {
  for (const auto shape : {gradus::image_extents{1, 1, 1, 1}, gradus::image_extents{2, 3, 5, 7},
                           gradus::image_extents{4, 1, 1, 9}, gradus::image_extents{0, 3, 2, 2}}) {
    BOOST_TEST_CONTEXT("extents " << shape) {
      const gradus::dense_mapping<Layout> offset_of{shape};
      std::vector<int> hits(static_cast<std::size_t>(offset_of.required_span_size()));
      for (gradus::index_t n = 0; n < shape.n; ++n) {
        for (gradus::index_t c = 0; c < shape.c; ++c) {
          for (gradus::index_t h = 0; h < shape.h; ++h) {
            for (gradus::index_t w = 0; w < shape.w; ++w) {
              ++hits.at(static_cast<std::size_t>(offset_of(n, c, h, w)));
            }
          }
        }
      }
      BOOST_TEST(std::ranges::all_of(hits, [](int count) { return count == 1; }));
    }
  }
}

BOOST_AUTO_TEST_CASE(the_fastest_axis_is_the_last_of_the_order) {
  BOOST_TEST(gradus::dense_mapping<gradus::nhwc>(gradus::image_extents{2, 3, 5, 7}).stride(gradus::axis::c) == 1);
  BOOST_TEST(gradus::dense_mapping<gradus::nchw>(gradus::image_extents{2, 3, 5, 7}).stride(gradus::axis::c) == 35);
  BOOST_TEST(gradus::dense_mapping<chwn>(gradus::image_extents{2, 3, 5, 7}).stride(gradus::axis::n) == 1);
}

BOOST_AUTO_TEST_CASE(a_layout_of_a_user_works_in_expressions) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::image_tensor<float, chwn> x{device, {2, 3, 5, 7}};
  gradus::tensor<float, 1> v{device, {3}};
  v(2) = 4;
  x(1, 2, 3, 4) = 5;
  x = x * 2 + per_channel(v);
  const gradus::image_tensor<float, gradus::nhwc> y = gradus::layout_cast<gradus::nhwc>(x);
  BOOST_TEST(y(1, 2, 3, 4) == 14.0F);
  BOOST_TEST(y(0, 2, 0, 0) == 4.0F);
  BOOST_TEST(y(1, 1, 3, 4) == 0.0F);
  const gradus::tensor<float, 1> sums = sum<gradus::axis::n, gradus::axis::h, gradus::axis::w>(x);
  BOOST_TEST(sums(2) == 4.0F * 70 + 10);
}

BOOST_AUTO_TEST_SUITE_END()
