// SPDX-License-Identifier: BSL-1.0
//
// The convolutions of all elements and layouts, compiled once for the files of this program.
#pragma once

#include <cstddef>
#include <span>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu/conv2d.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/tensor/tensor_view.hpp"

/// Declares the functions of one element and layout, or defines them where `Extern` is empty.
#define GRADUS_TEST_CONVOLUTION(Extern, Element, Layout)                                                            \
  Extern template std::size_t conv2d_workspace_bytes<Element, Layout>(cpu&, const conv2d_geometry&, index_t, pass); \
  Extern template void conv2d_forward<Element, Layout>(                                                             \
      cpu&, const conv2d_geometry&, image_view<const Element, Layout, cpu>,                                         \
      image_view<const parameter_element_t<Element>, Layout, cpu>, image_view<Element, Layout, cpu>,                \
      const forward_epilogue<Element>&, std::span<std::byte>);                                                      \
  Extern template void conv2d_backward_data<Element, Layout>(                                                       \
      cpu&, const conv2d_geometry&, image_view<const Element, Layout, cpu>,                                         \
      image_view<const parameter_element_t<Element>, Layout, cpu>, image_view<Element, Layout, cpu>,                \
      const backward_epilogue<Element>&, std::span<std::byte>);                                                     \
  Extern template void conv2d_backward_weights<Element, Layout>(                                                    \
      cpu&, const conv2d_geometry&, image_view<const Element, Layout, cpu>, image_view<const Element, Layout, cpu>, \
      image_view<parameter_element_t<Element>, Layout, cpu>, parameter_element_t<Element>*, std::span<std::byte>);

#define GRADUS_TEST_CONVOLUTIONS(Extern)          \
  GRADUS_TEST_CONVOLUTION(Extern, float, nchw)    \
  GRADUS_TEST_CONVOLUTION(Extern, float, nhwc)    \
  GRADUS_TEST_CONVOLUTION(Extern, double, nchw)   \
  GRADUS_TEST_CONVOLUTION(Extern, double, nhwc)   \
  GRADUS_TEST_CONVOLUTION(Extern, bfloat16, nchw) \
  GRADUS_TEST_CONVOLUTION(Extern, bfloat16, nhwc) \
  GRADUS_TEST_CONVOLUTION(Extern, float16, nchw)  \
  GRADUS_TEST_CONVOLUTION(Extern, float16, nhwc)

namespace gradus::kernels {
GRADUS_TEST_CONVOLUTIONS(extern)
}  // namespace gradus::kernels
