// SPDX-License-Identifier: BSL-1.0
//
// The contract of the kernels of group, layer and instance normalization: statistics of parts of each example.
#pragma once

#include <concepts>  // std::same_as
#include <cstddef>   // std::byte, std::size_t
#include <span>      // std::span

#include "gradus/core/element.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/batch_norm.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

/// The elements that share a mean and a variance.
enum class normalized_set {
  group,  ///< the channels of a group, and all h and w, of one example
  image,  ///< all c, h and w of one example
  pixel   ///< all channels of one pixel
};

/// The options of a pass. Gamma and beta have the shape (C). For normalized_set::image it is (C, H, W), in the memory
/// order of the layout.
struct group_norm_parameters {
  normalized_set over = normalized_set::group;  ///< what one mean and one variance are taken over
  index_t groups = 1;     ///< groups of neighboring channels, a divisor of C; read for normalized_set::group
  double epsilon = 1e-5;  ///< added to the variance
};

/// The bytes that the passes need for a batch, or for a smaller one.
struct group_norm_memory {
  std::size_t state = 0;      ///< kept from forward to backward
  std::size_t workspace = 0;  ///< used during one call
};

/// The gradients of gamma and beta, of their shape, overwritten. Null pointers: not needed.
template <class Element>
struct group_norm_gradients {
  Element* gamma = nullptr;  ///< gradient of gamma
  Element* beta = nullptr;   ///< gradient of beta
};

/// A requirement of `has_group_norm`: group_norm_memory_for returns the memory for images of `shape` (N, C, H, W).
template <class Device, class Element, class Layout>
concept has_group_norm_memory_for = requires(Device& device, const image_extents& shape,
                                             const group_norm_parameters& parameters) {
  { group_norm_memory_for<Element, Layout>(device, shape, parameters) } -> std::same_as<group_norm_memory>;
};

/// A requirement of `has_group_norm`: group_norm_forward overwrites y with the normalized x, and `state` with the
/// statistics.
template <class Device, class Element, class Layout>
concept has_group_norm_forward = requires(Device& device, image_view<const Element, Layout, Device> x,
                                          image_view<Element, Layout, Device> y,
                                          const group_norm_parameters& parameters,
                                          const batch_norm_affine<parameter_element_t<Element>>& affine,
                                          const batch_norm_epilogue<Element>& epilogue, std::span<std::byte> state,
                                          std::span<std::byte> workspace) {
  group_norm_forward(device, x, y, parameters, affine, epilogue, state, workspace);
};

/// A requirement of `has_group_norm`: group_norm_backward computes dx and `gradients` from x, dy, gamma and the state
/// of the forward pass. It overwrites dx unless `epilogue.accumulate`; a dx without data is not needed.
template <class Device, class Element, class Layout>
concept has_group_norm_backward = requires(Device& device, image_view<const Element, Layout, Device> x,
                                           image_view<const Element, Layout, Device> dy,
                                           image_view<Element, Layout, Device> dx,
                                           const group_norm_parameters& parameters,
                                           const batch_norm_affine<parameter_element_t<Element>>& affine,
                                           const group_norm_gradients<parameter_element_t<Element>>& gradients,
                                           const backward_epilogue<Element>& epilogue, std::span<std::byte> state,
                                           std::span<std::byte> workspace) {
  group_norm_backward(device, x, dy, dx, parameters, affine, gradients, epilogue, state, workspace);
};

/// A device that normalizes groups; nn::group_norm, nn::instance_norm and nn::layer_norm ask for it.
///
/// For each set of M elements that share a mean and a variance (Wu, He 2018, section 3.1; Ba et al. 2016, equation 3):
///
///   xhat = (x - mean) / sqrt(variance + epsilon);   y = act(gamma * xhat + beta + residual)
///
/// with the biased variance. For g = dL/dy, before the activation, and means over the set:
///
///   dbeta = sum g;   dgamma = sum g * xhat            over all elements that gamma and beta belong to
///   dx = (gamma * g - mean(gamma * g) - xhat * mean(gamma * g * xhat)) / sqrt(variance + epsilon)
///
/// Where all elements of a set are equal, xhat is 0, exactly.
///
/// The variance is computed from differences to an element x0 of the set: mean((x - x0)^2) - mean(x - x0)^2. So it
/// stays accurate for any mean. Its error is a few roundings of variance + (x0 - mean)^2. xhat has no error from the
/// rounding of the mean: the state has what rounding takes from it.
///
/// Images x, y, dy and dx have the shape (N, C, H, W). In forward, y may be x unless backward will read x; dx may be
/// dy. Sums are in double precision. State and workspace have the bytes that group_norm_memory_for gives for this batch
/// or a larger one, and are aligned to 64 bytes; other arrays need only the alignment of their elements. A batch of 0
/// gives gradients of 0. Results are bitwise the same for any number of threads, and those of an example do not depend
/// on the others.
template <class Device, class Element, class Layout>
concept has_group_norm = has_group_norm_memory_for<Device, Element, Layout> &&
    has_group_norm_forward<Device, Element, Layout> && has_group_norm_backward<Device, Element, Layout>;

/// Says which overload of `has_group_norm` the device misses. Always true when it compiles.
template <class Device, class Element, class Layout>
consteval bool explain_group_norm() {
  static_assert(has_group_norm_memory_for<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload template <class Element, class Layout> "
                "kernels::group_norm_memory group_norm_memory_for(Device&, const image_extents&, const "
                "group_norm_parameters&); for gradus::cuda include gradus/kernels/cuda/group_norm.cuh");
  static_assert(has_group_norm_forward<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload void group_norm_forward(Device&, x, y, "
                "const group_norm_parameters&, const batch_norm_affine<P>&, const batch_norm_epilogue<Element>&, "
                "std::span<std::byte> state, std::span<std::byte> workspace); for gradus::cuda include "
                "gradus/kernels/cuda/group_norm.cuh");
  static_assert(has_group_norm_backward<Device, Element, Layout>,
                "gradus: the device lacks a kernel of the network: overload void group_norm_backward(Device&, x, dy, "
                "dx, const group_norm_parameters&, const batch_norm_affine<P>&, const group_norm_gradients<P>&, const "
                "backward_epilogue<Element>&, std::span<std::byte> state, std::span<std::byte> workspace); for "
                "gradus::cuda include gradus/kernels/cuda/group_norm.cuh");
  return true;
}

}  // namespace gradus::kernels
