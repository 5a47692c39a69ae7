// SPDX-License-Identifier: BSL-1.0
//
// The vectors of module simd for the bodies of kernels.
#pragma once

#include "gradus/core/element.hpp"
#include "gradus/kernels/cpu/detail/elementwise/activation.hpp"
#include "gradus/simd/packets.hpp"

namespace gradus::kernels::detail {

/// The type of sums, coefficients and parameters in kernels for an element type: float for bfloat16 and float16, else
/// the type itself.
template <class Element>
using computed = parameter_element_t<Element>;

}  // namespace gradus::kernels::detail

#define GRADUS_TARGET_BODY "gradus/kernels/cpu/detail/simd/target_body.hpp"
#include "gradus/simd/for_each_target.hpp"

namespace gradus::kernels::detail {

/// As simd::on_target, with the `target` of the kernels' own namespaces.
template <class Call>
void on_target(const Call& call) {
  simd::on_target([&](auto which) { call(kernel_target(which)); });
}

}  // namespace gradus::kernels::detail
