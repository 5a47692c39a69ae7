// SPDX-License-Identifier: BSL-1.0
//
// The norm of all gradients of a step on CUDA devices.
#pragma once

#include <span>  // std::span

#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/device/cuda_launch.cuh"
#include "gradus/optim/cuda_passes.cuh"
#include "gradus/optim/gradient_norm.hpp"
#include "gradus/optim/segment.hpp"

namespace gradus::optim {

namespace detail {

/// Each thread block writes the sum of squares of one piece to sums[block].
template <class Element>
__global__ void piece_squares_kernel(const segment_piece* pieces, const Element* gradients, double* sums) {
  const segment_piece piece = pieces[blockIdx.x];
  const Element* const g = gradients + piece.offset;
  double sum = 0;
  double unused = 0;
  for (int i = static_cast<int>(threadIdx.x); i < piece.size; i += static_cast<int>(blockDim.x)) {
    const auto value = static_cast<double>(g[i]);
    sum += value * value;
  }
  add_over_block(sum, unused);
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = sum;
  }
}

/// One thread block adds the sums of all pieces to *total.
template <class Unused = void>
__global__ void add_pieces_kernel(index_t pieces, const double* sums, double* total) {
  double sum = 0;
  double unused = 0;
  for (index_t i = threadIdx.x; i < pieces; i += static_cast<index_t>(blockDim.x)) {
    sum += sums[i];
  }
  add_over_block(sum, unused);
  if (threadIdx.x == 0) {
    *total += sum;
  }
}

/// Ends a sum of squares: one thread makes `numbers` those of a loss scale that clips. A skipped step has no norm.
template <class Unused = void>
__global__ void clip_kernel(double max_norm, double factor, const double* scaled, double* numbers) {
  numbers[not_finite_index] = scaled == nullptr ? 0 : scaled[not_finite_index];
  numbers[skipped_index] = scaled == nullptr ? 0 : scaled[skipped_index];
  const double scale = scaled == nullptr ? factor : factor * scaled[scale_index];
  if (numbers[not_finite_index] != 0) {
    numbers[index_of(norm_number::squares)] = 0;
    numbers[scale_index] = scale;
  } else {
    numbers[scale_index] = scale / clip_factor(max_norm, scale, numbers);
  }
}

}  // namespace detail

/// Adds the squares of the gradients of `segments` to *sum, in device memory. Two launches; does not wait. The first
/// call with a list of segments copies the list to the device.
template <class Element>
void add_squares(cuda& device, std::span<const segment> segments, const Element* gradients, double* sum) {
  auto& tables = device.context<detail::segment_tables>();
  const detail::segment_tables::table& table = tables.of(segments);
  if (table.pieces == 0) {
    return;
  }
  double* const sums = tables.sums_of(table);
  launch(device, "add_squares", static_cast<unsigned>(table.pieces), detail::lamb_threads,
         &detail::piece_squares_kernel<Element>, table.on_device, gradients, sums);
  launch(device, "add_squares", 1, detail::lamb_threads, &detail::add_pieces_kernel<>, table.pieces, sums, sum);
}

}  // namespace gradus::optim

namespace gradus::kernels {

/// As optim::clip_by_norm, on the device; found by lookup on the device. Does not wait.
[[nodiscard]] inline loss_scale clip_by_norm(cuda& device, double max_norm, const loss_scale& scale, double* numbers) {
  launch(device, "clip_by_norm", 1, 1, &optim::detail::clip_kernel<>, max_norm, scale.factor, scale.numbers, numbers);
  return {.factor = 1, .numbers = numbers};
}

}  // namespace gradus::kernels
