// SPDX-License-Identifier: BSL-1.0
//
// Everything that a device can bring for networks: one list that the compiler checks.
#pragma once

#include "gradus/kernels/batch_norm.hpp"
#include "gradus/kernels/concat.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/dropout.hpp"
#include "gradus/kernels/elementwise.hpp"
#include "gradus/kernels/local_response_norm.hpp"
#include "gradus/kernels/matmul.hpp"
#include "gradus/kernels/pool2d.hpp"
#include "gradus/kernels/softmax.hpp"

namespace gradus::kernels {

/// A device that runs every network of the library. A device that brings less runs networks whose layers do without:
/// each layer asks for the kernels that it calls, and a network for `has_elementwise`.
///
/// The overloads stand in the namespace of the device, or in gradus::kernels where it derives from
/// kernels::overload_set. Semantics: the headers of the concepts, and conformance::check_layers.
template <class Device, class Element, class Layout>
concept has_kernels =
    has_elementwise<Device, Element> && has_conv2d<Device, Element, Layout> && has_matmul<Device, Element> &&
    has_max_pool2d<Device, Element, Layout> && has_average_pool2d<Device, Element, Layout> &&
    has_batch_norm<Device, Element, Layout> && has_local_response_norm<Device, Element, Layout> &&
    has_dropout<Device, Element, Layout> && has_copy_channels<Device, Element, Layout> &&
    has_softmax_cross_entropy<Device, Element> && has_softmax<Device, Element>;

/// Says which overload of `has_kernels` the device misses. Always true when it compiles.
template <class Device, class Element, class Layout>
consteval bool explain_kernels() {
  static_assert(explain_elementwise<Device, Element>());
  static_assert(explain_conv2d<Device, Element, Layout>());
  static_assert(explain_matmul<Device, Element>());
  static_assert(explain_max_pool2d<Device, Element, Layout>());
  static_assert(explain_average_pool2d<Device, Element, Layout>());
  static_assert(explain_batch_norm<Device, Element, Layout>());
  static_assert(explain_local_response_norm<Device, Element, Layout>());
  static_assert(explain_dropout<Device, Element, Layout>());
  static_assert(explain_copy_channels<Device, Element, Layout>());
  static_assert(explain_softmax_cross_entropy<Device, Element>());
  static_assert(has_softmax<Device, Element>,
                "gradus: the device lacks a kernel: overload void softmax(Device&, index_t rows, index_t classes, "
                "const Element* logits, Element* probabilities)");
  return true;
}

}  // namespace gradus::kernels
