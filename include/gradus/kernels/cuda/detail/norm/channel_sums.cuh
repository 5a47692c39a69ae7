// SPDX-License-Identifier: BSL-1.0
//
// Sums of every channel over n, h and w on CUDA, in double precision and in a fixed order.
#pragma once

#include <algorithm>    // std::clamp, std::max
#include <cstddef>      // std::size_t
#include <string_view>  // std::string_view

#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/layout/layout_policy.hpp"

namespace gradus::kernels::detail {

/// A batch as (outer, channels, inner) in memory order: (n, c, h*w) for nchw, (n*h*w, c, 1) for nhwc.
struct channel_view {
  index_t outer = 1;
  index_t channels = 0;
  index_t inner = 1;

  template <class Layout>
  static channel_view of(const image_extents& shape) {
    channel_view result{1, shape.c, 1};
    bool before = true;
    for (const axis a : Layout::order) {
      if (a == axis::c) {
        before = false;
      } else {
        (before ? result.outer : result.inner) *= a == axis::n ? shape.n : a == axis::h ? shape.h : shape.w;
      }
    }
    return result;
  }

  /// The number of elements of one channel.
  [[nodiscard]] index_t count() const noexcept { return outer * inner; }
};

inline constexpr int lanes_across = 16;  // threads along the channels, or along a plane
inline constexpr int lanes_along = 16;   // threads along the outer axis
inline constexpr int sum_packet = 4;     // channels of a thread

/// The number of slices of the outer axis that are summed separately. Only the shape sets it, and so the bits of the
/// sums.
[[nodiscard]] inline index_t sum_slices(const channel_view& view) noexcept {
  const index_t columns =
      view.inner == 1 ? (view.channels + lanes_across * sum_packet - 1) / (lanes_across * sum_packet) : view.channels;
  const index_t rows_of_work = view.inner == 1 ? 64 : std::max<index_t>(1, 4096 / view.inner);
  return std::clamp<index_t>((view.outer + rows_of_work - 1) / rows_of_work, 1,
                             std::max<index_t>(1, 1024 / std::max<index_t>(1, columns)));
}

/// Bytes of the partial sums: (slices, 2, channels) of double.
[[nodiscard]] inline std::size_t channel_sums_bytes(const channel_view& view) noexcept {
  return static_cast<std::size_t>(sum_slices(view) * 2 * view.channels) * sizeof(double);
}

/// For adjacent channels: a thread sums Width channels of every 16th row of its slice.
template <int Width, class Terms>
__global__ void channel_sums_across_kernel(Terms terms, index_t rows, index_t channels, index_t slice,
                                           double* partial) {
  __shared__ double shared[2][lanes_along][lanes_across * Width];
  const index_t first = static_cast<index_t>(blockIdx.x) * (lanes_across * Width) + threadIdx.x * Width;
  double a[Width] = {};
  double b[Width] = {};
  const index_t begin = blockIdx.y * slice;
  const index_t end = begin + slice < rows ? begin + slice : rows;
  if (first < channels) {
#pragma unroll 4
    for (index_t row = begin + threadIdx.y; row < end; row += lanes_along) {
      terms.template add<Width, true>(row * channels + first, first, a, b);
    }
  }
#pragma unroll
  for (int k = 0; k < Width; ++k) {
    shared[0][threadIdx.y][threadIdx.x * Width + k] = a[k];
    shared[1][threadIdx.y][threadIdx.x * Width + k] = b[k];
  }
  __syncthreads();
  for (unsigned i = threadIdx.y * lanes_across + threadIdx.x; i < 2 * lanes_across * Width;
       i += lanes_across * lanes_along) {
    const unsigned which = i / (lanes_across * Width);
    const unsigned column = i % (lanes_across * Width);
    const index_t channel = static_cast<index_t>(blockIdx.x) * (lanes_across * Width) + column;
    if (channel < channels) {
      double sum = 0;
      for (int row = 0; row < lanes_along; ++row) {
        sum += shared[which][row][column];
      }
      partial[(blockIdx.y * 2 + which) * channels + channel] = sum;
    }
  }
}

/// For planes of `inner` adjacent elements of one channel.
template <class Terms>
__global__ void channel_sums_planes_kernel(Terms terms, index_t outer, index_t channels, index_t inner, index_t slice,
                                           double* partial) {
  __shared__ double shared[2][lanes_across * lanes_along];
  const index_t channel = blockIdx.x;
  double a[1] = {};
  double b[1] = {};
  const index_t begin = blockIdx.y * slice;
  const index_t end = begin + slice < outer ? begin + slice : outer;
  for (index_t n = begin + threadIdx.y; n < end; n += lanes_along) {
    const index_t plane = (n * channels + channel) * inner;
    for (index_t i = threadIdx.x; i < inner; i += lanes_across) {
      terms.template add<1, false>(plane + i, channel, a, b);
    }
  }
  const unsigned own = threadIdx.y * lanes_across + threadIdx.x;
  shared[0][own] = a[0];
  shared[1][own] = b[0];
  __syncthreads();
  for (unsigned half = lanes_across * lanes_along / 2; half > 0; half /= 2) {
    if (own < half) {
      shared[0][own] += shared[0][own + half];
      shared[1][own] += shared[1][own + half];
    }
    __syncthreads();
  }
  if (own < 2) {
    partial[(blockIdx.y * 2 + own) * channels + channel] = shared[own][0];
  }
}

/// Calls finish(channel, a, b) on the device with both sums of every channel.
template <class Finish>
__global__ void finish_channels_kernel(index_t channels, index_t slices, const double* partial, Finish finish) {
  for (index_t c = thread_index(); c < channels; c += thread_count()) {
    double a = 0;
    double b = 0;
    for (index_t s = 0; s < slices; ++s) {
      a += partial[(s * 2) * channels + c];
      b += partial[(s * 2 + 1) * channels + c];
    }
    finish(c, a, b);
  }
}

/// Computes two sums for every channel. Terms has `template <int Width, bool Across> __device__ void add(index_t
/// offset, index_t channel, double (&a)[Width], double (&b)[Width]) const`, which adds the terms of the elements
/// [offset, offset + Width): those of Width channels starting at `channel` if Across, else of one channel.
/// @param packets  true if the elements may be loaded in packets of sum_packet
template <class Terms, class Finish>
void channel_sums(cuda& device, std::string_view name, const channel_view& view, bool packets, const Terms& terms,
                  const Finish& finish, double* partial) {
  const index_t slices = sum_slices(view);
  const index_t slice = (view.outer + slices - 1) / slices;
  const dim3 threads{lanes_across, lanes_along, 1};
  const auto y = static_cast<unsigned>(slices);
  if (view.inner != 1) {
    launch(device, name, dim3{static_cast<unsigned>(view.channels), y, 1}, threads, &channel_sums_planes_kernel<Terms>,
           terms, view.outer, view.channels, view.inner, slice, partial);
  } else if (packets && view.channels % sum_packet == 0) {
    const auto x = static_cast<unsigned>((view.channels + lanes_across * sum_packet - 1) / (lanes_across * sum_packet));
    launch(device, name, dim3{x, y, 1}, threads, &channel_sums_across_kernel<sum_packet, Terms>, terms, view.outer,
           view.channels, slice, partial);
  } else {
    const auto x = static_cast<unsigned>((view.channels + lanes_across - 1) / lanes_across);
    launch(device, name, dim3{x, y, 1}, threads, &channel_sums_across_kernel<1, Terms>, terms, view.outer,
           view.channels, slice, partial);
  }
  launch(device, name, blocks_for(view.channels, 64), 64, &finish_channels_kernel<Finish>, view.channels, slices,
         static_cast<const double*>(partial), finish);
}

/// Terms whose first sum is that of the elements; the second stays 0.
template <class Element>
struct plain_terms {
  const Element* x;

  template <int Width, bool Across>
  __device__ void add(index_t offset, index_t, double (&a)[Width], double (&)[Width]) const {
    const auto loaded = load_packet<Width>(x + offset);
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      a[k] += static_cast<double>(widen(loaded.values[k]));
    }
  }
};

template <class Parameter>
struct store_sum {
  Parameter* sums;

  __device__ void operator()(index_t channel, double a, double) const { sums[channel] = static_cast<Parameter>(a); }
};

}  // namespace gradus::kernels::detail
