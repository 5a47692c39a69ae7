// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: not a layout policy: give it the axis order
#include <array>
#include <string_view>

#include "gradus/layout/mapping.hpp"

struct my_layout {
  static constexpr std::string_view name = "mine";
#ifdef GRADUS_TEST_GOOD_TWIN
  static constexpr std::array order{gradus::axis::n, gradus::axis::c, gradus::axis::h, gradus::axis::w};
#endif
};
gradus::dense_mapping<my_layout> mapping{gradus::image_extents{1, 1, 1, 1}};
