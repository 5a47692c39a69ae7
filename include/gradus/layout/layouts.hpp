// SPDX-License-Identifier: BSL-1.0
//
// The layouts that come with the library: nchw and nhwc for images, row_major for tensors of any rank.
#pragma once

#include <array>        // std::array
#include <string_view>  // std::string_view

#include "gradus/layout/layout_policy.hpp"

namespace gradus {

/// Channel planes: a plane's pixels are adjacent. The order of most published weights.
struct nchw {
  static constexpr std::array order{axis::n, axis::c, axis::h, axis::w};  ///< slowest first
  static constexpr std::string_view name = "nchw";                        ///< in messages
};
static_assert(layout_policy<nchw>);

/// Channels last: a pixel's channels are adjacent. The order that vector units and tensor cores like.
struct nhwc {
  static constexpr std::array order{axis::n, axis::h, axis::w, axis::c};  ///< slowest first
  static constexpr std::string_view name = "nhwc";                        ///< in messages
};
static_assert(layout_policy<nhwc>);

/// The last axis is adjacent; for tensors of any rank whose axes have no image meaning.
struct row_major {
  static constexpr std::string_view name = "row_major";  ///< in messages
};

}  // namespace gradus
