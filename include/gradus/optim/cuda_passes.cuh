// SPDX-License-Identifier: BSL-1.0
//
// Kernels of update rules over parameters, gradients and velocities on CUDA devices.
#pragma once

#include <cuda_runtime_api.h>  // cudaMalloc

#include <algorithm>  // std::min
#include <cmath>      // std::sqrt
#include <cstddef>    // std::size_t
#include <memory>     // std::unique_ptr
#include <span>       // std::span
#include <utility>    // std::move

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/device/cuda_launch.cuh"
#include "gradus/device/cuda_memory.cuh"
#include "gradus/device/cuda_step.cuh"
#include "gradus/optim/cpu_passes.hpp"
#include "gradus/optim/loss_scaling.hpp"
#include "gradus/optim/segment.hpp"

namespace gradus::optim {

namespace detail {

/// The part of a segment that one thread block handles.
struct segment_piece {
  index_t offset;
  int size;
  int decay;
};

/// Lists of segments, split into pieces, in device memory. Each list is kept, so that later steps copy nothing.
class segment_tables {
 public:
  static constexpr index_t piece = 8192;  // elements

  explicit segment_tables(const cuda&) {}
  segment_tables(const segment_tables&) = delete;
  segment_tables& operator=(const segment_tables&) = delete;
  ~segment_tables() {
    for (const std::unique_ptr<table>& each : tables_) {
      static_cast<void>(cudaFree(each->on_device));
    }
  }

  struct table {
    dynamic_array<segment_piece> segments;  // the list from which the pieces were made
    segment_piece* on_device = nullptr;
    index_t pieces = 0;
  };

  [[nodiscard]] const table& of(std::span<const segment> segments) {
    for (const std::unique_ptr<table>& each : tables_) {
      if (same(*each, segments)) {
        return *each;
      }
    }
    return make(segments);
  }

 private:
  [[nodiscard]] static bool same(const table& known, std::span<const segment> segments) noexcept {
    if (known.segments.size() != segments.size()) {
      return false;
    }
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const segment_piece& one = known.segments[i];
      if (one.offset != segments[i].offset || one.size != segments[i].size || (one.decay != 0) != segments[i].decay) {
        return false;
      }
    }
    return true;
  }

  const table& make(std::span<const segment> segments) {
    auto made = std::make_unique<table>();
    dynamic_array<segment_piece> pieces;
    for (const segment& one : segments) {
      made->segments.push_back({one.offset, static_cast<int>(one.size), one.decay ? 1 : 0});
      for (index_t begin = 0; begin < one.size; begin += piece) {
        pieces.push_back({one.offset + begin, static_cast<int>(std::min(piece, one.size - begin)), one.decay ? 1 : 0});
      }
    }
    made->pieces = static_cast<index_t>(pieces.size());
    if (!pieces.empty()) {
      const std::size_t bytes = pieces.size() * sizeof(segment_piece);
      check_cuda(cudaMalloc(reinterpret_cast<void**>(&made->on_device), bytes), "cudaMalloc");
      tables_.push_back(std::move(made));  // tables_ frees its memory from now on
      check_cuda(cudaMemcpy(tables_.back()->on_device, pieces.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    } else {
      tables_.push_back(std::move(made));
    }
    return *tables_.back();
  }

  dynamic_array<std::unique_ptr<table>> tables_;
};

/// The coefficients of a momentum_pass in the element type.
template <class Element>
struct momentum_numbers {
  Element rate, momentum, decay, scale;
  bool nesterov;
};

inline constexpr int scale_index = gradus::detail::index_of(loss_scale_number::scale);
inline constexpr int not_finite_index = gradus::detail::index_of(loss_scale_number::not_finite);

template <class Element>
__global__ void momentum_kernel(const segment_piece* pieces, momentum_numbers<Element> numbers,
                                const step_numbers* recorded, const double* loss_scale, Element* values,
                                const Element* gradients, Element* velocities) {
  if (loss_scale != nullptr) {
    if (loss_scale[not_finite_index] != 0) {
      return;  // the step is skipped
    }
    numbers.scale = static_cast<Element>(numbers.scale / loss_scale[scale_index]);
    numbers.decay = static_cast<Element>(numbers.decay * loss_scale[scale_index]);
  }
  const segment_piece piece = pieces[blockIdx.x];
  const Element rate = recorded == nullptr ? numbers.rate : static_cast<Element>(recorded->learning_rate);
  const Element decay = piece.decay != 0 ? numbers.decay : Element{0};
  Element* const p = values + piece.offset;
  const Element* const g = gradients + piece.offset;
  Element* const v = velocities == nullptr ? nullptr : velocities + piece.offset;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < piece.size; i += static_cast<int>(blockDim.x)) {
    const Element gradient = numbers.scale * (g[i] + decay * p[i]);
    Element step = gradient;
    if (v != nullptr) {
      const Element velocity = numbers.momentum * v[i] + gradient;
      v[i] = velocity;
      step = numbers.nesterov ? gradient + numbers.momentum * velocity : velocity;
    }
    p[i] -= rate * step;
  }
}

/// Each thread block tests one piece.
template <class Element>
__global__ void not_finite_kernel(const segment_piece* pieces, const Element* gradients, double* found) {
  const segment_piece piece = pieces[blockIdx.x];
  const Element* const g = gradients + piece.offset;
  int any = 0;
  for (int i = static_cast<int>(threadIdx.x); i < piece.size; i += static_cast<int>(blockDim.x)) {
    any |= g[i] - g[i] == Element{0} ? 0 : 1;
  }
  if (__syncthreads_or(any) != 0 && threadIdx.x == 0) {
    *found = 1;
  }
}

template <class Unused = void>
__global__ void next_loss_scale_kernel(loss_scaling options, double* numbers) {
  next_loss_scale(options, numbers);
}

inline constexpr int norm_blocks = 64;
inline constexpr int norm_threads = 256;

/// Thread block b writes the sum of squares of its share of the elements to partial[b], in double precision.
template <class Element>
__global__ void squares_kernel(index_t count, const Element* x, double* partial) {
  __shared__ double sums[norm_threads];
  double sum = 0;
  for (index_t i = static_cast<index_t>(blockIdx.x) * norm_threads + threadIdx.x; i < count;
       i += norm_blocks * norm_threads) {
    const auto value = static_cast<double>(x[i]);
    sum += value * value;
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = norm_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sums[0];
  }
}

/// Page-locked memory to which squares_kernel writes.
class norm_memory {
 public:
  explicit norm_memory(const cuda&) : memory_{norm_blocks * sizeof(double)} {}
  [[nodiscard]] double* data() const noexcept { return static_cast<double*>(memory_.data()); }

 private:
  pinned_memory memory_;
};

}  // namespace detail

/// Runs one step for the parameters of `segments` in one launch; see momentum_pass. Segment offsets index all buffers.
/// The first call with a list of segments copies the list to the device.
template <class Element>
void apply_momentum(cuda& device, std::span<const segment> segments, const momentum_pass& pass, Element* values,
                    const Element* gradients, Element* velocities) {
  const detail::segment_tables::table& table = device.context<detail::segment_tables>().of(segments);
  if (table.pieces == 0) {
    return;
  }
  launch(device, "apply_momentum", static_cast<unsigned>(table.pieces), 256, &detail::momentum_kernel<Element>,
         table.on_device,
         {.rate = static_cast<Element>(pass.learning_rate),
          .momentum = static_cast<Element>(pass.momentum),
          .decay = static_cast<Element>(pass.weight_decay * pass.loss_scale.factor),
          .scale = static_cast<Element>(pass.gradient_scale / pass.loss_scale.factor),
          .nesterov = pass.nesterov},
         device.context<captured_numbers>().for_kernels(), pass.loss_scale.numbers, values, gradients, velocities);
}

/// Sets *found, in device memory, to 1 if a gradient of `segments` is infinite or NaN; otherwise leaves it unchanged.
/// One launch; does not wait.
template <class Element>
void note_not_finite(cuda& device, std::span<const segment> segments, const Element* gradients, double* found) {
  const detail::segment_tables::table& table = device.context<detail::segment_tables>().of(segments);
  if (table.pieces == 0) {
    return;
  }
  launch(device, "note_not_finite", static_cast<unsigned>(table.pieces), 256, &detail::not_finite_kernel<Element>,
         table.on_device, gradients, found);
}

/// Runs next_loss_scale on the device.
inline void finish_loss_scale(cuda& device, const loss_scaling& options, double* numbers) {
  launch(device, "finish_loss_scale", 1, 1, &detail::next_loss_scale_kernel<>, options, numbers);
}

/// The factor by which gradients have been multiplied. Waits if it is stored on the device.
[[nodiscard]] inline double factor_of(cuda& device, const loss_scale& scale) {
  double number = 1;
  if (scale.numbers != nullptr) {
    device.copy_to_host(&number, scale.numbers + detail::scale_index, sizeof(number));
  }
  return scale.factor * number;
}

}  // namespace gradus::optim

namespace gradus::kernels {

/// The Euclidean norm of `count` elements; found by lookup on the device. Sums are in double precision. Waits.
template <class Element>
[[nodiscard]] double norm(cuda& device, index_t count, const Element* x) {
  double* const partial = device.context<optim::detail::norm_memory>().data();
  launch(device, "norm", optim::detail::norm_blocks, optim::detail::norm_threads,
         &optim::detail::squares_kernel<Element>, count, x, partial);
  device.synchronize();
  double sum = 0;
  for (int block = 0; block < optim::detail::norm_blocks; ++block) {
    sum += partial[block];
  }
  return std::sqrt(sum);
}

}  // namespace gradus::kernels
