// SPDX-License-Identifier: BSL-1.0
//
// The layouts of the library: nchw and nhwc for images, row_major for tensors of any rank.
#pragma once

#include <array>        // std::array
#include <string_view>  // std::string_view

#include "gradus/layout/layout_policy.hpp"

namespace gradus {

/// Channel planes: the pixels of a plane are adjacent. Most published weights have this order.
struct nchw {
  static constexpr std::array order{axis::n, axis::c, axis::h, axis::w};  ///< slowest first
  static constexpr std::string_view name = "nchw";                        ///< in messages
};
static_assert(layout_policy<nchw>);

/// Channels last: the channels of a pixel are adjacent. Vector units and tensor cores are fastest with this order.
struct nhwc {
  static constexpr std::array order{axis::n, axis::h, axis::w, axis::c};  ///< slowest first
  static constexpr std::string_view name = "nhwc";                        ///< in messages
};
static_assert(layout_policy<nhwc>);

/// Entries along the last axis are adjacent. For tensors of any rank that are not images.
struct row_major {
  static constexpr std::string_view name = "row_major";  ///< in messages
};

}  // namespace gradus
