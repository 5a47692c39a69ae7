// SPDX-License-Identifier: BSL-1.0
//
// The contract of the kernels of synchronized batch normalization: the passes of batch normalization, with a way for
// others to add their sums between the halves of each pass.
#pragma once

#include <concepts>  // std::same_as
#include <cstddef>   // std::byte, std::size_t
#include <span>      // std::span

#include "gradus/core/element.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/kernels/batch_norm.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

/// A requirement of `has_synchronized_batch_norm`: synchronized_batch_norm_workspace_bytes is for these kernels what
/// batch_norm_workspace_bytes is for batch normalization.
template <class Device, class Element, class Layout>
concept has_synchronized_batch_norm_workspace_bytes = requires(Device& device, const image_extents& shape) {
  { synchronized_batch_norm_workspace_bytes<Element, Layout>(device, shape) } -> std::same_as<std::size_t>;
};

/// A requirement of `has_synchronized_batch_norm`: batch_norm_moments overwrites `moments`, (2, C) on the host, with
/// the mean of every channel and with the sum of the squares of x - mean. They are 0 for a batch of 0.
template <class Device, class Element, class Layout>
concept has_batch_norm_moments = requires(Device& device, image_view<const Element, Layout, Device> x,
                                          std::span<double> moments, std::span<std::byte> workspace) {
  batch_norm_moments(device, x, moments, workspace);
};

/// A requirement of `has_synchronized_batch_norm`: batch_norm_store_statistics moves `running` towards the statistics
/// of a batch with `count` values in each channel, and overwrites `saved`, whose arrays are not null. The moments are
/// those of batch_norm_moments.
template <class Device, class Element>
concept has_batch_norm_store_statistics = requires(Device& device, std::span<const double> moments, double count,
                                                   const batch_norm_affine<parameter_element_t<Element>>& affine,
                                                   double epsilon,
                                                   const batch_norm_running<parameter_element_t<Element>>& running,
                                                   const batch_norm_saved<parameter_element_t<Element>>& saved,
                                                   std::span<std::byte> workspace) {
  batch_norm_store_statistics(device, moments, count, affine, epsilon, running, saved, workspace);
};

/// A requirement of `has_synchronized_batch_norm`: batch_norm_gradient_sums overwrites `sums`, (2, C) on the host, with
/// the sums of dy and of dy * (x - saved.mean) over a batch, and gradients.gamma and gradients.beta with the gradients
/// that follow from them.
template <class Device, class Element, class Layout>
concept has_batch_norm_gradient_sums = requires(Device& device, image_view<const Element, Layout, Device> x,
                                                image_view<const Element, Layout, Device> dy,
                                                const batch_norm_saved<parameter_element_t<Element>>& saved,
                                                const batch_norm_gradients<Element>& gradients, std::span<double> sums,
                                                std::span<std::byte> workspace) {
  batch_norm_gradient_sums(device, x, dy, saved, gradients, sums, workspace);
};

/// A requirement of `has_synchronized_batch_norm`: batch_norm_differentiate computes dx as batch_norm_backward does,
/// with the sums over `count` values in each channel.
template <class Device, class Element, class Layout>
concept has_batch_norm_differentiate =
    requires(Device& device, image_view<const Element, Layout, Device> x, image_view<const Element, Layout, Device> dy,
             image_view<Element, Layout, Device> dx, const batch_norm_affine<parameter_element_t<Element>>& affine,
             const batch_norm_saved<parameter_element_t<Element>>& saved, std::span<const double> sums, double count,
             const backward_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  batch_norm_differentiate(device, x, dy, dx, affine, saved, sums, count, epilogue, workspace);
};

/// A device that can add the sums of several batches; nn::synchronized_batch_norm asks for it.
///
/// Forward is batch_norm_moments, then batch_norm_store_statistics with the moments of all batches, then
/// batch_norm_forward_again. Backward is batch_norm_gradient_sums, then batch_norm_differentiate with the sums over all
/// batches. With one batch, both are the passes of batch normalization, to rounding. See has_batch_norm.
template <class Device, class Element, class Layout>
concept has_synchronized_batch_norm =
    has_batch_norm<Device, Element, Layout> && has_synchronized_batch_norm_workspace_bytes<Device, Element, Layout> &&
    has_batch_norm_moments<Device, Element, Layout> && has_batch_norm_store_statistics<Device, Element> &&
    has_batch_norm_gradient_sums<Device, Element, Layout> && has_batch_norm_differentiate<Device, Element, Layout>;

/// Says which overload of `has_synchronized_batch_norm` the device misses. Always true when it compiles.
template <class Device, class Element, class Layout>
consteval bool explain_synchronized_batch_norm() {
  static_assert(explain_batch_norm<Device, Element, Layout>());
  static_assert(has_synchronized_batch_norm_workspace_bytes<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload template <class Element, class Layout> "
                "std::size_t synchronized_batch_norm_workspace_bytes(Device&, const image_extents&); for gradus::cuda "
                "include gradus/kernels/cuda/synchronized_batch_norm.cuh");
  static_assert(has_batch_norm_moments<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload void batch_norm_moments(Device&, x, "
                "std::span<double> moments, std::span<std::byte> workspace); for gradus::cuda include "
                "gradus/kernels/cuda/synchronized_batch_norm.cuh");
  static_assert(has_batch_norm_store_statistics<Device, Element>,
                "gradus: the device lacks a kernel of the network: overload void batch_norm_store_statistics(Device&, "
                "std::span<const double> moments, double count, const batch_norm_affine<P>&, double epsilon, const "
                "batch_norm_running<P>&, const batch_norm_saved<P>&, std::span<std::byte> workspace); for gradus::cuda "
                "include gradus/kernels/cuda/synchronized_batch_norm.cuh");
  static_assert(has_batch_norm_gradient_sums<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload void batch_norm_gradient_sums(Device&, x, "
                "dy, const batch_norm_saved<P>&, const batch_norm_gradients<Element>&, std::span<double> sums, "
                "std::span<std::byte> workspace); for gradus::cuda include "
                "gradus/kernels/cuda/synchronized_batch_norm.cuh");
  static_assert(has_batch_norm_differentiate<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload void batch_norm_differentiate(Device&, x, "
                "dy, dx, const batch_norm_affine<P>&, const batch_norm_saved<P>&, std::span<const double> sums, double "
                "count, const backward_epilogue<Element>&, std::span<std::byte> workspace); for gradus::cuda include "
                "gradus/kernels/cuda/synchronized_batch_norm.cuh");
  return true;
}

}  // namespace gradus::kernels
