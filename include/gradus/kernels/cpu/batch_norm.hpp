// SPDX-License-Identifier: BSL-1.0
//
// Batch normalization on the CPU: two passes over memory forward, two backward.
#pragma once

#include <algorithm>    // std::clamp, std::fill, std::max, std::min
#include <cmath>        // std::sqrt
#include <cstddef>      // std::byte, std::size_t
#include <span>         // std::span
#include <string>       // std::to_string
#include <type_traits>  // std::type_identity_t

#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/batch_norm.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/elementwise/activation.hpp"
#include "gradus/kernels/cpu/detail/norm/batch_norm_runs.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::kernels {

namespace detail {

/// How a batch is divided: into `rows` of all channels (channels adjacent), or into planes of one channel each. Sums
/// are taken piece by piece; the pieces do not depend on the number of threads.
struct batch_norm_split {
  bool channels_adjacent = false;
  index_t channels = 0;
  index_t planes = 0;  ///< images
  index_t plane = 0;   ///< pixels of an image
  index_t rows = 0;    ///< planes * plane: values of a channel
  index_t pieces = 0;  ///< number of pieces of images or rows
  index_t piece = 0;   ///< images or rows of one piece

  /// Adjacent elements of all channels or of one channel.
  [[nodiscard]] index_t run() const noexcept { return channels_adjacent ? channels : plane; }
};

template <layout_policy Layout>
[[nodiscard]] batch_norm_split split_batch(const image_extents& shape) {
  static_assert(Layout::order[0] == axis::n && (Layout::order[1] == axis::c || Layout::order[3] == axis::c),
                "gradus: batch normalization on the CPU needs a layout with channels just after the images or last");
  batch_norm_split split;
  split.channels = shape.c;
  split.planes = shape.n;
  split.plane = shape.h * shape.w;
  split.rows = split.planes * split.plane;
  // Images are the slowest axis, so for planes of one pixel the channels are adjacent, and the rows are the images.
  split.channels_adjacent = Layout::order[3] == axis::c || split.plane == 1;
  const index_t units = split.channels_adjacent ? split.rows : split.planes;
  const index_t unit = std::max(index_t{1}, split.channels * (split.channels_adjacent ? 1 : split.plane));
  // About 32768 elements in a piece, and at most 64 pieces, because each needs a row of sums in the workspace.
  split.piece = std::max({index_t{1}, (index_t{1} << 15U) / unit, (units + 63) / 64});
  if (!split.channels_adjacent && split.plane > 0) {
    split.piece = std::max(split.piece, 1024 / split.plane);  // for small planes: enough of a channel at a time
  }
  split.pieces = units == 0 ? 0 : (units + split.piece - 1) / split.piece;
  return split;
}

/// The workspace: two sums for every piece and channel, then three coefficients for every channel.
template <class Element>
struct batch_norm_workspace {
  batch_norm_workspace(std::span<std::byte> memory, const batch_norm_split& split)
      : sums{reinterpret_cast<double*>(memory.data())},
        coefficients{reinterpret_cast<Element*>(sums + 2 * (split.pieces + 1) * split.channels)} {}

  static std::size_t bytes(const batch_norm_split& split) {
    return static_cast<std::size_t>(split.channels) *
           (2 * static_cast<std::size_t>(split.pieces + 1) * sizeof(double) + 3 * sizeof(Element));
  }

  double* sums;           // (pieces + 1, 2, C); the last row holds the totals
  Element* coefficients;  // (3, C)
};

/// Adds the sums of all pieces in a fixed order and stores them behind the pieces. @return (2, C)
inline double* add_pieces(cpu& device, const batch_norm_split& split, double* sums) {
  const index_t width = 2 * split.channels;
  double* const total = sums + split.pieces * width;
  device.parallel_for(width, 512, [=, &split](index_t begin, index_t end) {
    std::fill(total + begin, total + end, 0.0);
    for (index_t piece = 0; piece < split.pieces; ++piece) {
      const double* const row = sums + piece * width;
      for (index_t i = begin; i < end; ++i) {
        total[i] += row[i];
      }
    }
  });
  return total;
}

/// Calls for every piece sum_planes(offset, planes, channel, first, second), which adds to two sums, or
/// sum_rows(offset, rows, first, second), which adds to two rows of sums.
template <class SumPlanes, class SumRows>
void sum_pieces(cpu& device, const batch_norm_split& split, double* sums, const SumPlanes& sum_planes,
                const SumRows& sum_rows) {
  if (split.channels_adjacent) {
    device.parallel_for(split.pieces, 1, [&](index_t begin, index_t end) {
      for (index_t piece = begin; piece < end; ++piece) {
        double* const first = sums + 2 * piece * split.channels;
        std::fill(first, first + 2 * split.channels, 0.0);
        const index_t row = piece * split.piece;
        sum_rows(row * split.channels, std::min(split.piece, split.rows - row), first, first + split.channels);
      }
    });
    return;
  }
  const index_t grain = std::max(index_t{1}, (index_t{1} << 14U) / std::max(index_t{1}, split.piece * split.plane));
  device.parallel_for(split.pieces * split.channels, grain, [&](index_t begin, index_t end) {
    for (index_t task = begin; task < end; ++task) {
      const index_t piece = task / split.channels;
      const index_t channel = task % split.channels;
      double* const first = sums + 2 * piece * split.channels + channel;
      first[0] = 0;
      first[split.channels] = 0;
      const index_t last = std::min(split.planes, (piece + 1) * split.piece);
      const index_t image = piece * split.piece;
      sum_planes((image * split.channels + channel) * split.plane, last - image, channel, first[0],
                 first[split.channels]);
    }
  });
}

/// The offset of the first value of a channel. Differences to it stay accurate where the mean is far from 0.
[[nodiscard]] inline index_t first_of_channel(const batch_norm_split& split, index_t channel) noexcept {
  return split.channels_adjacent ? channel : channel * split.plane;
}

/// The sums of x - s and of (x - s)^2 over each channel, where s is the channel's first value.
/// @param sums  of batch_norm_workspace
/// @return those of x - s of all channels, then those of the squares
template <class Element>
[[nodiscard]] const double* sums_of_channels(cpu& device, const batch_norm_split& split, const Element* x,
                                             double* sums) {
  sum_pieces(
      device, split, sums,
      [&](index_t offset, index_t planes, index_t channel, double& first, double& second) {
        const auto shift = static_cast<computed<Element>>(x[first_of_channel(split, channel)]);
        sum_runs(norm_terms<Element>{x + offset}, planes, split.channels * split.plane, split.plane, shift, first,
                 second);
      },
      [&](index_t offset, index_t rows, double* first, double* second) {
        sum_rows(norm_terms<Element>{x + offset}, rows, split.channels, x, first, second);
      });
  return add_pieces(device, split, sums);
}

/// The sums of g and of g * (x - mean) over each channel; see norm_terms.
/// @return those of g of all channels, then those of the products
template <class Element>
[[nodiscard]] const double* gradient_sums_of_channels(cpu& device, const batch_norm_split& split,
                                                      const norm_terms<Element>& terms, const computed<Element>* mean,
                                                      double* sums) {
  const auto from = [&](index_t offset) {
    return norm_terms<Element>{terms.x + offset, terms.y == nullptr ? nullptr : terms.y + offset, terms.dy + offset,
                               terms.derivative};
  };
  sum_pieces(
      device, split, sums,
      [&](index_t offset, index_t planes, index_t channel, double& first, double& second) {
        sum_runs(from(offset), planes, split.channels * split.plane, split.plane, mean[channel], first, second);
      },
      [&](index_t offset, index_t rows, double* first, double* second) {
        sum_rows(from(offset), rows, split.channels, mean, first, second);
      });
  return add_pieces(device, split, sums);
}

/// Calls body(begin, end) on all threads for ranges of the runs of a batch.
template <class Body>
void for_each_run(cpu& device, const batch_norm_split& split, const Body& body) {
  const index_t runs = split.channels_adjacent ? split.rows : split.planes * split.channels;
  device.parallel_for(runs, std::max(index_t{1}, (index_t{1} << 14U) / std::max(index_t{1}, split.run())), body);
}

/// y = act((x - mean) * scale + shift + residual) with the coefficients (mean, scale, shift) of every channel.
template <class Element>
void normalize(cpu& device, const batch_norm_split& split, const Element* x, Element* y,
               const computed<Element>* coefficients, const batch_norm_epilogue<Element>& epilogue) {
  const normalized_runs<Element> runs{.x = x,
                                      .y = y,
                                      .residual = epilogue.residual,
                                      .mean = coefficients,
                                      .scale = coefficients + split.channels,
                                      .shift = coefficients + 2 * split.channels,
                                      .act = held_activation<computed<Element>>{epilogue.act},
                                      .channels = split.channels,
                                      .length = split.run(),
                                      .per_lane = split.channels_adjacent};
  for_each_run(device, split, [&](index_t begin, index_t end) {
    on_target([&](auto target) { normalize_runs(target, runs, begin, end); });
  });
}

/// Writes what follows from the statistics of channel c: the running averages, what backward reads, and the
/// coefficients (3, C) of y. Arrays that are null are left out.
template <class Real>
void store_statistics(index_t c, index_t channels, double mean, double variance, double count,
                      const batch_norm_affine<Real>& affine, double epsilon, const batch_norm_running<Real>& running,
                      const batch_norm_saved<Real>& saved, Real* coefficients) {
  const double inverse = 1.0 / std::sqrt(variance + epsilon);
  if (running.mean != nullptr) {
    running.mean[c] =
        static_cast<Real>((1 - running.momentum) * static_cast<double>(running.mean[c]) + running.momentum * mean);
  }
  if (running.variance != nullptr) {
    const double unbiased = count > 1 ? variance * count / (count - 1) : variance;
    running.variance[c] = static_cast<Real>((1 - running.momentum) * static_cast<double>(running.variance[c]) +
                                            running.momentum * unbiased);
  }
  if (saved.mean != nullptr) {
    saved.mean[c] = static_cast<Real>(mean);
  }
  if (saved.inverse_deviation != nullptr) {
    saved.inverse_deviation[c] = static_cast<Real>(inverse);
  }
  const double gamma = affine.gamma == nullptr ? 1.0 : static_cast<double>(affine.gamma[c]);
  const double scale = gamma * inverse;
  const auto rounded_mean = static_cast<Real>(mean);
  const double beta = affine.beta == nullptr ? 0.0 : static_cast<double>(affine.beta[c]);
  coefficients[c] = rounded_mean;
  coefficients[channels + c] = static_cast<Real>(scale);
  coefficients[2 * channels + c] = static_cast<Real>(beta + (static_cast<double>(rounded_mean) - mean) * scale);
}

/// Writes the coefficients (3, C) of dx = scale * (g - mean of g) - factor * (x - mean) for channel c.
/// @param sum      of g
/// @param product  sum of g * (x - mean)
template <class Real>
void store_gradient_coefficients(index_t c, index_t channels, double scale, double inverse, double sum, double product,
                                 double count, Real* coefficients) {
  coefficients[c] = static_cast<Real>(scale);
  coefficients[channels + c] = static_cast<Real>(sum / count);
  coefficients[2 * channels + c] = static_cast<Real>(scale * inverse * inverse * product / count);
}

/// dx and the gradient of the residual, with the coefficients of store_gradient_coefficients. A null output: no
/// activation.
template <class Element>
void differentiate(cpu& device, const batch_norm_split& split, const Element* input, const Element* output,
                   const Element* gradient, Element* dx, const computed<Element>* mean,
                   const computed<Element>* coefficients, const batch_norm_gradients<Element>& gradients,
                   const backward_epilogue<Element>& epilogue, const activation& act = activation::relu) {
  const gradient_runs<Element> runs{.x = input,
                                    .y = output,
                                    .dy = gradient,
                                    .dx = dx,
                                    .dresidual = gradients.residual,
                                    .relu_output = epilogue.relu_output,
                                    .mean = mean,
                                    .scale = coefficients,
                                    .shift = coefficients + split.channels,
                                    .factor = coefficients + 2 * split.channels,
                                    .channels = split.channels,
                                    .length = split.run(),
                                    .per_lane = split.channels_adjacent,
                                    .of_y = held_derivative<computed<Element>>{act},
                                    .of_relu_output = held_derivative<computed<Element>>{epilogue.mask},
                                    .accumulate = epilogue.accumulate,
                                    .accumulate_residual = gradients.accumulate_residual};
  for_each_run(device, split, [&](index_t begin, index_t end) {
    on_target([&](auto target) { differentiate_runs(target, runs, begin, end); });
  });
}

inline void require_batch_norm_workspace(std::size_t wanted, std::size_t given) {
  if (given < wanted) {
    raise<shape_error>("batch_norm", "a workspace of " + std::to_string(wanted) + " bytes", std::to_string(given),
                       "call batch_norm_workspace_bytes with the largest batch");
  }
}

}  // namespace detail

/// Implements has_batch_norm_workspace_bytes on the CPU.
template <network_element Element, layout_policy Layout>
[[nodiscard]] std::size_t batch_norm_workspace_bytes(cpu& /*device*/, const image_extents& shape) {
  // A smaller batch never has more than 64 pieces.
  detail::batch_norm_split split = detail::split_batch<Layout>(shape);
  split.pieces = std::max(split.pieces, index_t{64});
  return detail::batch_norm_workspace<detail::computed<Element>>::bytes(split);
}

/// Implements has_batch_norm_forward_training on the CPU.
template <network_element Element, layout_policy Layout>
void batch_norm_forward_training(cpu& device, std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                                 image_view<Element, Layout, cpu> y,
                                 const std::type_identity_t<batch_norm_affine<parameter_element_t<Element>>>& affine,
                                 double epsilon,
                                 const std::type_identity_t<batch_norm_running<parameter_element_t<Element>>>& running,
                                 const std::type_identity_t<batch_norm_saved<parameter_element_t<Element>>>& saved,
                                 const std::type_identity_t<batch_norm_epilogue<Element>>& epilogue,
                                 std::span<std::byte> workspace) {
  const floating_point_scope arithmetic{device.flush_denormals()};
  using real = detail::computed<Element>;
  const detail::batch_norm_split split = detail::split_batch<Layout>(y.extents());
  if (split.rows == 0 || split.channels == 0) {
    return;
  }
  detail::require_batch_norm_workspace(detail::batch_norm_workspace<real>::bytes(split), workspace.size());
  const detail::batch_norm_workspace<real> work{workspace, split};
  const Element* const input = x.data();
  const double* const totals = detail::sums_of_channels(device, split, input, work.sums);
  const auto count = static_cast<double>(split.rows);
  real* const coefficients = saved.coefficients == nullptr ? work.coefficients : saved.coefficients;
  for (index_t c = 0; c < split.channels; ++c) {
    const double offset = totals[c] / count;
    const double mean = static_cast<double>(static_cast<real>(input[detail::first_of_channel(split, c)])) + offset;
    const double difference = totals[split.channels + c] / count - offset * offset;
    const double variance = difference < 0 ? 0.0 : difference;  // keeps a NaN
    detail::store_statistics(c, split.channels, mean, variance, count, affine, epsilon, running, saved, coefficients);
  }
  detail::normalize(device, split, input, y.data(), coefficients, epilogue);
}

/// Implements has_batch_norm_forward_again on the CPU.
template <network_element Element, layout_policy Layout>
void batch_norm_forward_again(cpu& device, std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                              image_view<Element, Layout, cpu> y,
                              const std::type_identity_t<batch_norm_saved<parameter_element_t<Element>>>& saved,
                              const std::type_identity_t<batch_norm_epilogue<Element>>& epilogue) {
  const detail::batch_norm_split split = detail::split_batch<Layout>(y.extents());
  detail::normalize(device, split, x.data(), y.data(), saved.coefficients, epilogue);
}

/// Implements has_batch_norm_forward_inference on the CPU.
template <network_element Element, layout_policy Layout>
void batch_norm_forward_inference(cpu& device, std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                                  image_view<Element, Layout, cpu> y,
                                  const std::type_identity_t<batch_norm_affine<parameter_element_t<Element>>>& affine,
                                  double epsilon,
                                  const std::type_identity_t<batch_norm_running<parameter_element_t<Element>>>& running,
                                  const std::type_identity_t<batch_norm_epilogue<Element>>& epilogue,
                                  std::span<std::byte> workspace) {
  const floating_point_scope arithmetic{device.flush_denormals()};
  using real = detail::computed<Element>;
  const detail::batch_norm_split split = detail::split_batch<Layout>(y.extents());
  detail::require_batch_norm_workspace(detail::batch_norm_workspace<real>::bytes(split), workspace.size());
  const detail::batch_norm_workspace<real> work{workspace, split};
  for (index_t c = 0; c < split.channels; ++c) {
    const double gamma = affine.gamma == nullptr ? 1.0 : static_cast<double>(affine.gamma[c]);
    work.coefficients[c] = running.mean[c];
    work.coefficients[split.channels + c] =
        static_cast<real>(gamma / std::sqrt(static_cast<double>(running.variance[c]) + epsilon));
    work.coefficients[2 * split.channels + c] = affine.beta == nullptr ? real{0} : affine.beta[c];
  }
  detail::normalize(device, split, x.data(), y.data(), work.coefficients, epilogue);
}

/// Implements has_batch_norm_backward on the CPU.
template <network_element Element, layout_policy Layout>
void batch_norm_backward(cpu& device, std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                         std::type_identity_t<image_view<const Element, Layout, cpu>> y,
                         std::type_identity_t<image_view<const Element, Layout, cpu>> dy,
                         image_view<Element, Layout, cpu> dx,
                         const std::type_identity_t<batch_norm_affine<parameter_element_t<Element>>>& affine,
                         const std::type_identity_t<batch_norm_saved<parameter_element_t<Element>>>& saved,
                         activation act, const std::type_identity_t<batch_norm_gradients<Element>>& gradients,
                         const std::type_identity_t<backward_epilogue<Element>>& epilogue,
                         std::span<std::byte> workspace) {
  const floating_point_scope arithmetic{device.flush_denormals()};
  using real = detail::computed<Element>;
  const detail::batch_norm_split split = detail::split_batch<Layout>(x.extents());
  detail::require_batch_norm_workspace(detail::batch_norm_workspace<real>::bytes(split), workspace.size());
  const detail::batch_norm_workspace<real> work{workspace, split};
  const Element* const input = x.data();
  const Element* const output = act == activation::identity ? nullptr : y.data();
  const Element* const gradient = dy.data();
  const double* const totals = detail::gradient_sums_of_channels<Element>(
      device, split, {input, output, gradient, detail::held_derivative<real>{act}}, saved.mean, work.sums);
  const auto count = static_cast<double>(std::max(index_t{1}, split.rows));
  for (index_t c = 0; c < split.channels; ++c) {
    const auto inverse = static_cast<double>(saved.inverse_deviation[c]);
    const double scale = (affine.gamma == nullptr ? 1.0 : static_cast<double>(affine.gamma[c])) * inverse;
    if (gradients.beta != nullptr) {
      gradients.beta[c] = static_cast<real>(totals[c]);
    }
    if (gradients.gamma != nullptr) {
      gradients.gamma[c] = static_cast<real>(totals[split.channels + c] * inverse);
    }
    detail::store_gradient_coefficients(c, split.channels, scale, inverse, totals[c], totals[split.channels + c], count,
                                        work.coefficients);
  }
  if (dx.data() == nullptr && gradients.residual == nullptr) {
    return;
  }
  detail::differentiate(device, split, input, output, gradient, dx.data(), saved.mean, work.coefficients, gradients,
                        epilogue, act);
}

}  // namespace gradus::kernels
