// SPDX-License-Identifier: BSL-1.0
//
// Batch normalization on the CPU in halves, between which other batches add their sums.
#pragma once

#include <algorithm>    // std::copy, std::fill
#include <cstddef>      // std::byte, std::size_t
#include <span>         // std::span
#include <type_traits>  // std::type_identity_t

#include "gradus/core/element.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/batch_norm.hpp"
#include "gradus/kernels/synchronized_batch_norm.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

/// Implements has_synchronized_batch_norm_workspace_bytes on the CPU.
template <network_element Element, layout_policy Layout>
[[nodiscard]] std::size_t synchronized_batch_norm_workspace_bytes(cpu& device, const image_extents& shape) {
  return batch_norm_workspace_bytes<Element, Layout>(device, shape);
}

/// Implements has_batch_norm_moments on the CPU.
template <network_element Element, layout_policy Layout>
void batch_norm_moments(cpu& device, image_view<const Element, Layout, cpu> x, std::span<double> moments,
                        std::span<std::byte> workspace) {
  const floating_point_scope arithmetic{device.flush_denormals()};
  using real = detail::computed<Element>;
  const detail::batch_norm_split split = detail::split_batch<Layout>(x.extents());
  if (split.rows == 0) {
    std::fill(moments.begin(), moments.end(), 0.0);
    return;
  }
  detail::require_batch_norm_workspace(detail::batch_norm_workspace<real>::bytes(split), workspace.size());
  const detail::batch_norm_workspace<real> work{workspace, split};
  const Element* const input = x.data();
  const double* const totals = detail::sums_of_channels(device, split, input, work.sums);
  const auto channels = static_cast<std::size_t>(split.channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const double offset = totals[c] / static_cast<double>(split.rows);
    const double squares = totals[channels + c] - totals[c] * offset;
    moments[c] =
        static_cast<double>(static_cast<real>(input[detail::first_of_channel(split, static_cast<index_t>(c))])) +
        offset;
    moments[channels + c] = squares < 0 ? 0.0 : squares;  // keeps a NaN
  }
}

/// Implements has_batch_norm_store_statistics on the CPU.
template <class Real>
void batch_norm_store_statistics(cpu& device, std::span<const double> moments, double count,
                                 const batch_norm_affine<Real>& affine, double epsilon,
                                 const batch_norm_running<Real>& running, const batch_norm_saved<Real>& saved,
                                 std::span<std::byte> /*workspace*/) {
  const floating_point_scope arithmetic{device.flush_denormals()};
  const std::size_t channels = moments.size() / 2;
  for (std::size_t c = 0; c < channels; ++c) {
    detail::store_statistics(static_cast<index_t>(c), static_cast<index_t>(channels), moments[c],
                             moments[channels + c] / count, count, affine, epsilon, running, saved, saved.coefficients);
  }
}

/// Implements has_batch_norm_gradient_sums on the CPU.
template <network_element Element, layout_policy Layout>
void batch_norm_gradient_sums(cpu& device, image_view<const Element, Layout, cpu> x,
                              std::type_identity_t<image_view<const Element, Layout, cpu>> dy,
                              const std::type_identity_t<batch_norm_saved<parameter_element_t<Element>>>& saved,
                              const std::type_identity_t<batch_norm_gradients<Element>>& gradients,
                              std::span<double> sums, std::span<std::byte> workspace) {
  const floating_point_scope arithmetic{device.flush_denormals()};
  using real = detail::computed<Element>;
  const detail::batch_norm_split split = detail::split_batch<Layout>(x.extents());
  std::fill(sums.begin(), sums.end(), 0.0);
  if (split.rows != 0) {
    detail::require_batch_norm_workspace(detail::batch_norm_workspace<real>::bytes(split), workspace.size());
    const detail::batch_norm_workspace<real> work{workspace, split};
    const double* const totals = detail::gradient_sums_of_channels<Element>(
        device, split, {x.data(), nullptr, dy.data()}, saved.mean, work.sums);
    std::copy(totals, totals + sums.size(), sums.begin());
  }
  const std::size_t channels = sums.size() / 2;
  for (std::size_t c = 0; c < channels; ++c) {
    if (gradients.beta != nullptr) {
      gradients.beta[c] = static_cast<real>(sums[c]);
    }
    if (gradients.gamma != nullptr) {
      gradients.gamma[c] = static_cast<real>(sums[channels + c] * static_cast<double>(saved.inverse_deviation[c]));
    }
  }
}

/// Implements has_batch_norm_differentiate on the CPU.
template <network_element Element, layout_policy Layout>
void batch_norm_differentiate(cpu& device, std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                              std::type_identity_t<image_view<const Element, Layout, cpu>> dy,
                              image_view<Element, Layout, cpu> dx,
                              const std::type_identity_t<batch_norm_affine<parameter_element_t<Element>>>& affine,
                              const std::type_identity_t<batch_norm_saved<parameter_element_t<Element>>>& saved,
                              std::span<const double> sums, double count,
                              const std::type_identity_t<backward_epilogue<Element>>& epilogue,
                              std::span<std::byte> workspace) {
  const floating_point_scope arithmetic{device.flush_denormals()};
  using real = detail::computed<Element>;
  const detail::batch_norm_split split = detail::split_batch<Layout>(x.extents());
  if (split.rows == 0) {
    return;
  }
  detail::require_batch_norm_workspace(detail::batch_norm_workspace<real>::bytes(split), workspace.size());
  const detail::batch_norm_workspace<real> work{workspace, split};
  const std::size_t channels = sums.size() / 2;
  for (std::size_t c = 0; c < channels; ++c) {
    const auto inverse = static_cast<double>(saved.inverse_deviation[c]);
    const double scale = (affine.gamma == nullptr ? 1.0 : static_cast<double>(affine.gamma[c])) * inverse;
    detail::store_gradient_coefficients(static_cast<index_t>(c), split.channels, scale, inverse, sums[c],
                                        sums[channels + c], count, work.coefficients);
  }
  const Element* const no_output = nullptr;
  detail::differentiate(device, split, x.data(), no_output, dy.data(), dx.data(), saved.mean, work.coefficients, {},
                        epilogue);
}

}  // namespace gradus::kernels
