// SPDX-License-Identifier: BSL-1.0
//
// Batch normalization on CUDA in halves, between which other batches add their sums. The sums travel through the host.
#pragma once

#include <algorithm>  // std::fill
#include <cmath>      // ::sqrt
#include <cstddef>    // std::byte, std::size_t
#include <span>       // std::span

#include "gradus/core/element.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cuda/batch_norm.cuh"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/kernels/cuda/detail/norm/channel_sums.cuh"
#include "gradus/kernels/synchronized_batch_norm.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

namespace detail {

/// Stores the mean of a channel and the sum of squares around it.
template <class Element>
struct store_moments {
  channel_origin<Element> origin;
  double count;
  double* moments;  // (2, C)
  index_t channels;

  __device__ void operator()(index_t c, double sum, double squares) const {
    const double offset = sum / count;
    const double centered = squares - sum * offset;
    moments[c] = origin(c) + offset;
    moments[channels + c] = centered < 0 ? 0.0 : centered;  // keeps a NaN
  }
};

/// Stores the sums of g and of g * (x - mean), and the gradients of gamma and beta.
template <class Parameter>
struct store_gradient_sums {
  const Parameter* inverse_deviation;
  Parameter* dgamma;
  Parameter* dbeta;
  double* sums;  // (2, C)
  index_t channels;

  __device__ void operator()(index_t c, double sum, double product) const {
    sums[c] = sum;
    sums[channels + c] = product;
    if (dgamma != nullptr) {
      dgamma[c] = static_cast<Parameter>(product * static_cast<double>(inverse_deviation[c]));
    }
    if (dbeta != nullptr) {
      dbeta[c] = static_cast<Parameter>(sum);
    }
  }
};

/// What finish_moments computes, from moments.
template <class Parameter>
__global__ void store_statistics_kernel(index_t channels, const double* moments, double count, double epsilon,
                                        batch_norm_affine<Parameter> affine, batch_norm_running<Parameter> running,
                                        batch_norm_saved<Parameter> saved) {
  for (index_t c = thread_index(); c < channels; c += thread_count()) {
    const double mean = moments[c];
    const double variance = moments[channels + c] / count;
    const double inverse = 1.0 / ::sqrt(variance + epsilon);
    const auto stored_mean = static_cast<Parameter>(mean);
    const double scale = inverse * (affine.gamma == nullptr ? 1.0 : static_cast<double>(affine.gamma[c]));
    const double beta = affine.beta == nullptr ? 0.0 : static_cast<double>(affine.beta[c]);
    saved.mean[c] = stored_mean;
    saved.inverse_deviation[c] = static_cast<Parameter>(inverse);
    saved.coefficients[c] = stored_mean;
    saved.coefficients[channels + c] = static_cast<Parameter>(scale);
    saved.coefficients[2 * channels + c] =
        static_cast<Parameter>(beta + (static_cast<double>(stored_mean) - mean) * scale);
    const double keep = 1.0 - running.momentum;
    if (running.mean != nullptr) {
      running.mean[c] = static_cast<Parameter>(keep * static_cast<double>(running.mean[c]) + running.momentum * mean);
    }
    if (running.variance != nullptr) {
      const double unbiased = count > 1 ? variance * count / (count - 1) : variance;
      running.variance[c] =
          static_cast<Parameter>(keep * static_cast<double>(running.variance[c]) + running.momentum * unbiased);
    }
  }
}

/// What finish_gradients computes for dx, from sums.
template <class Parameter>
__global__ void gradient_coefficients_kernel(index_t channels, const double* sums, finish_gradients<Parameter> finish) {
  for (index_t c = thread_index(); c < channels; c += thread_count()) {
    finish(c, sums[c], sums[channels + c]);
  }
}

/// The workspace: two numbers of each channel, then what batch normalization needs.
struct halves_workspace {
  double* numbers;  // (2, C)
  std::span<std::byte> rest;

  halves_workspace(std::span<std::byte> workspace, index_t channels)
      : numbers{reinterpret_cast<double*>(workspace.data())}, rest{workspace.subspan(bytes(channels))} {}

  static std::size_t bytes(index_t channels) {
    return (2 * static_cast<std::size_t>(channels) * sizeof(double) + 63) / 64 * 64;
  }
};

}  // namespace detail

/// Implements has_synchronized_batch_norm_workspace_bytes on a GPU.
template <network_element Element, layout_policy Layout>
[[nodiscard]] std::size_t synchronized_batch_norm_workspace_bytes(cuda& device, const image_extents& shape) {
  return detail::halves_workspace::bytes(shape.c) + batch_norm_workspace_bytes<Element, Layout>(device, shape);
}

/// See has_batch_norm_moments. Returns when the moments are on the host.
template <network_element Element, layout_policy Layout>
void batch_norm_moments(cuda& device, image_view<const Element, Layout, cuda> x, std::span<double> moments,
                        std::span<std::byte> workspace) {
  if (x.size() == 0) {
    std::fill(moments.begin(), moments.end(), 0.0);
    return;
  }
  const auto view = detail::channel_view::of<Layout>(x.extents());
  const detail::halves_workspace work{workspace, view.channels};
  const detail::channel_origin<Element> origin{x.data(), view.inner};
  detail::channel_sums(
      device, "batch_norm_moments", view, detail::on_packets(x.data()), detail::moment_terms<Element>{x.data(), origin},
      detail::store_moments<Element>{origin, static_cast<double>(view.count()), work.numbers, view.channels},
      reinterpret_cast<double*>(work.rest.data()));
  device.copy_to_host(moments.data(), work.numbers, moments.size_bytes());
}

/// Implements has_batch_norm_store_statistics on a GPU.
template <class Real>
void batch_norm_store_statistics(cuda& device, std::span<const double> moments, double count,
                                 const batch_norm_affine<Real>& affine, double epsilon,
                                 const batch_norm_running<Real>& running, const batch_norm_saved<Real>& saved,
                                 std::span<std::byte> workspace) {
  const auto channels = static_cast<index_t>(moments.size() / 2);
  const detail::halves_workspace work{workspace, channels};
  device.copy_from_host(work.numbers, moments.data(), moments.size_bytes());
  launch(device, "batch_norm_store_statistics", detail::blocks_for(channels), detail::block_threads,
         &detail::store_statistics_kernel<Real>, channels, static_cast<const double*>(work.numbers), count, epsilon,
         affine, running, saved);
}

/// See has_batch_norm_gradient_sums. Returns when the sums are on the host.
template <network_element Element, layout_policy Layout>
void batch_norm_gradient_sums(cuda& device, image_view<const Element, Layout, cuda> x,
                              image_view<const Element, Layout, cuda> dy,
                              const batch_norm_saved<parameter_element_t<Element>>& saved,
                              const batch_norm_gradients<Element>& gradients, std::span<double> sums,
                              std::span<std::byte> workspace) {
  using real = parameter_element_t<Element>;
  const auto view = detail::channel_view::of<Layout>(x.extents());
  if (x.size() == 0) {
    std::fill(sums.begin(), sums.end(), 0.0);
    const auto bytes = static_cast<std::size_t>(view.channels) * sizeof(real);
    if (gradients.gamma != nullptr) {
      device.fill_zero(gradients.gamma, bytes);
    }
    if (gradients.beta != nullptr) {
      device.fill_zero(gradients.beta, bytes);
    }
    return;
  }
  const detail::halves_workspace work{workspace, view.channels};
  const Element* const no_output = nullptr;
  detail::channel_sums(device, "batch_norm_gradient_sums", view, detail::on_packets(x.data(), dy.data()),
                       detail::gradient_terms<Element, real>{x.data(), no_output, dy.data(), saved.mean},
                       detail::store_gradient_sums<real>{saved.inverse_deviation, gradients.gamma, gradients.beta,
                                                         work.numbers, view.channels},
                       reinterpret_cast<double*>(work.rest.data()));
  device.copy_to_host(sums.data(), work.numbers, sums.size_bytes());
}

/// Implements has_batch_norm_differentiate on a GPU.
template <network_element Element, layout_policy Layout>
void batch_norm_differentiate(cuda& device, image_view<const Element, Layout, cuda> x,
                              image_view<const Element, Layout, cuda> dy, image_view<Element, Layout, cuda> dx,
                              const batch_norm_affine<parameter_element_t<Element>>& affine,
                              const batch_norm_saved<parameter_element_t<Element>>& saved, std::span<const double> sums,
                              double count, const backward_epilogue<Element>& epilogue,
                              std::span<std::byte> workspace) {
  using real = parameter_element_t<Element>;
  if (dx.size() == 0) {
    return;
  }
  const auto view = detail::channel_view::of<Layout>(x.extents());
  const detail::halves_workspace work{workspace, view.channels};
  device.copy_from_host(work.numbers, sums.data(), sums.size_bytes());
  auto* const coefficients = reinterpret_cast<real*>(work.rest.data());
  real* const not_needed = nullptr;
  launch(device, "batch_norm_differentiate", detail::blocks_for(view.channels), detail::block_threads,
         &detail::gradient_coefficients_kernel<real>, view.channels, static_cast<const double*>(work.numbers),
         detail::finish_gradients<real>{count, affine.gamma, saved.mean, saved.inverse_deviation, not_needed,
                                        not_needed, coefficients, view.channels});
  detail::differentiate<Element, real, Layout>(device, view,
                                               {.x = x.data(),
                                                .y = nullptr,
                                                .dy = dy.data(),
                                                .dx = dx.data(),
                                                .relu_output = epilogue.relu_output,
                                                .residual_gradient = nullptr,
                                                .coefficients = coefficients,
                                                .accumulate = epilogue.accumulate,
                                                .accumulate_residual = false,
                                                .of_relu_output = detail::device_derivative<real>{epilogue.mask}},
                                               dx.extents());
}

}  // namespace gradus::kernels
