// SPDX-License-Identifier: BSL-1.0
//
// The coordinates of a batch of images in logical order, and a layout that no shortcut is made for.
#pragma once

#include <array>
#include <string_view>

#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/layout/layout_policy.hpp"

namespace gradus_test {

/// A layout of a user, in which neither the channels of a pixel are neighbours nor the pixels of a row.
struct chwn {
  static constexpr std::array order{gradus::axis::c, gradus::axis::h, gradus::axis::w, gradus::axis::n};
  static constexpr std::string_view name = "chwn";
};

/// Calls body(n, c, h, w) for all elements.
template <class Body>
void for_each_coordinate(const gradus::image_extents& shape, const Body& body) {
  using gradus::index_t;
  for (index_t n = 0; n < shape.n; ++n) {
    for (index_t c = 0; c < shape.c; ++c) {
      for (index_t h = 0; h < shape.h; ++h) {
        for (index_t w = 0; w < shape.w; ++w) {
          body(n, c, h, w);
        }
      }
    }
  }
}

}  // namespace gradus_test
