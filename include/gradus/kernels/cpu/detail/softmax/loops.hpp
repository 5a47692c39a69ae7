// SPDX-License-Identifier: BSL-1.0
//
// The loops of softmax.
#pragma once

#include <cmath>        // std::exp, std::log
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t
#include <type_traits>  // std::is_same_v

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"
#include "gradus/kernels/softmax.hpp"

namespace gradus::kernels::detail {

/// The loss of an example's pixels.
template <class Element>
struct pixel_loss {
  const pixel_cross_entropy<computed<Element>>& shape;
  const Element* logits;
  index_t class_stride;
  index_t pixel_stride;
  const std::int32_t* labels;
  double total;      ///< sum of the class weights
  double factor;     ///< of the gradients
  Element* dlogits;  ///< or null
};

/// True if no element is larger than x[label], and no element before it is equal to it.
template <class Element>
[[nodiscard]] bool is_first_largest(const Element* x, index_t label, computed<Element> largest) noexcept {
  if (!(x[label] == largest)) {
    return false;
  }
  for (index_t i = 0; i < label; ++i) {
    if (x[i] == largest) {
      return false;
    }
  }
  return true;
}

}  // namespace gradus::kernels::detail

#define GRADUS_TARGET_BODY "gradus/kernels/cpu/detail/softmax/softmax_body.hpp"
#include "gradus/simd/for_each_target.hpp"
