// SPDX-License-Identifier: BSL-1.0
//
// The loss of the cosine similarity on a GPU.
#pragma once

#include <algorithm>  // std::min

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/device/cuda_step.cuh"
#include "gradus/kernels/cosine.hpp"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/kernels/cuda/softmax.cuh"
#include "gradus/kernels/softmax.hpp"

namespace gradus::kernels {

namespace detail {

/// Sums of two vectors.
struct cosine_terms {
  double product = 0;
  double scores = 0;   // squares
  double targets = 0;  // squares

  __device__ void add(double y, double t) {
    product += y * t;
    scores += y * y;
    targets += t * t;
  }
};

/// The loss of two vectors, and the factors of the gradient scores * y - targets * t.
struct cosine_factors {
  double loss;
  double scores;
  double targets;

  static __device__ cosine_factors of(const cosine_terms& sums, double epsilon, double factor) {
    const double norm = ::sqrt(sums.scores);
    const double divisor = norm < epsilon ? epsilon : norm;
    const double other = ::sqrt(sums.targets);
    const double both = divisor * (other < epsilon ? epsilon : other);
    const double cosine = sums.product / both;
    return {1 - cosine, norm == 0 ? 0.0 : factor * cosine / divisor / norm, factor / both};
  }
};

template <class Element>
__device__ Element cosine_gradient(const cosine_factors& factors, Element y, device_real<Element> t) {
  return narrow<Element>(static_cast<device_real<Element>>(factors.scores * static_cast<double>(widen(y)) -
                                                           factors.targets * static_cast<double>(t)));
}

/// One thread for each vector.
template <class Element>
__global__ void cosine_pixels_kernel(cosine_vectors<device_real<Element>> shape, const Element* scores,
                                     const device_real<Element>* targets, double scale, const double* loss_scale,
                                     Element* gradient, loss_sums* block_sums) {
  if (loss_scale != nullptr) {
    scale *= *loss_scale;
  }
  const index_t channel_stride = shape.channels_last ? index_t{1} : shape.pixels;
  const index_t pixel_stride = shape.channels_last ? shape.channels : index_t{1};
  loss_sums own;
  for (index_t i = thread_index(); i < shape.examples * shape.pixels; i += thread_count()) {
    const index_t example = i / shape.pixels;
    const index_t offset = example * shape.pixels * shape.channels + i % shape.pixels * pixel_stride;
    const double weight =
        (shape.example_weights == nullptr ? 1.0 : static_cast<double>(shape.example_weights[example])) /
        static_cast<double>(shape.pixels);
    cosine_terms sums;
    for (index_t c = 0; c < shape.channels; ++c) {
      const index_t at = offset + c * channel_stride;
      sums.add(static_cast<double>(widen(scores[at])), static_cast<double>(targets[at]));
    }
    const cosine_factors factors = cosine_factors::of(sums, shape.epsilon, scale * weight);
    own.loss += weight * factors.loss;
    for (index_t c = 0; c < shape.channels && gradient != nullptr; ++c) {
      const index_t at = offset + c * channel_stride;
      gradient[at] = cosine_gradient<Element>(factors, scores[at], targets[at]);
    }
  }
  own = combine_in_block(own, [](loss_sums& a, const loss_sums& b) { a += b; });
  if (threadIdx.x == 0) {
    block_sums[blockIdx.x] = own;
  }
}

/// One block for each vector, whose numbers are adjacent.
template <class Element>
__global__ void cosine_rows_kernel(cosine_vectors<device_real<Element>> shape, const Element* scores,
                                   const device_real<Element>* targets, double scale, const double* loss_scale,
                                   Element* gradient, loss_sums* block_sums) {
  if (loss_scale != nullptr) {
    scale *= *loss_scale;
  }
  loss_sums own;
  for (index_t row = blockIdx.x; row < shape.examples * shape.pixels; row += gridDim.x) {
    const double weight =
        (shape.example_weights == nullptr ? 1.0 : static_cast<double>(shape.example_weights[row / shape.pixels])) /
        static_cast<double>(shape.pixels);
    const index_t offset = row * shape.channels;
    cosine_terms sums;
    for (index_t c = threadIdx.x; c < shape.channels; c += softmax_threads) {
      sums.add(static_cast<double>(widen(scores[offset + c])), static_cast<double>(targets[offset + c]));
    }
    sums = combine_in_block(sums, [](cosine_terms& a, const cosine_terms& b) {
      a.product += b.product;
      a.scores += b.scores;
      a.targets += b.targets;
    });
    const cosine_factors factors = cosine_factors::of(sums, shape.epsilon, scale * weight);
    own.loss += weight * factors.loss;  // the same in all threads
    for (index_t c = threadIdx.x; c < shape.channels && gradient != nullptr; c += softmax_threads) {
      gradient[offset + c] = cosine_gradient<Element>(factors, scores[offset + c], targets[offset + c]);
    }
  }
  if (threadIdx.x == 0) {
    block_sums[blockIdx.x] = own;
  }
}

}  // namespace detail

/// See has_cosine_loss. Does not wait: take_loss_sums returns the sum.
/// @note A call with more vectors than before may allocate memory.
template <network_element Element>
[[nodiscard]] loss_sums cosine_loss(cuda& device, const cosine_vectors<parameter_element_t<Element>>& shape,
                                    const Element* scores, const parameter_element_t<Element>* targets, double scale,
                                    Element* gradient) {
  auto& memory = device.context<detail::loss_memory>();
  const double* const loss_scale = memory.take_scale();
  const index_t vectors = shape.examples * shape.pixels;
  if (vectors == 0) {
    return {};
  }
  const step_numbers* const recorded = device.context<captured_numbers>().for_kernels();
  constexpr index_t threads = detail::softmax_threads;
  constexpr index_t channels_of_block = 32;  // from here on a block shares the numbers of a vector
  const bool rows = (shape.channels_last || shape.pixels == 1) && shape.channels >= channels_of_block;
  const index_t blocks = std::min<index_t>(1024, rows ? vectors : (vectors + threads - 1) / threads);
  memory.reserve(device, blocks);
  launch(device, "cosine_loss", static_cast<unsigned>(blocks), detail::softmax_threads,
         rows ? &detail::cosine_rows_kernel<Element> : &detail::cosine_pixels_kernel<Element>, shape, scores, targets,
         scale, loss_scale, gradient, memory.row_sums());
  launch(device, "cosine_loss", 1, detail::softmax_threads, &detail::sum_losses_kernel<>, blocks,
         static_cast<const loss_sums*>(memory.row_sums()), recorded, memory.sums());
  if (recorded == nullptr) {
    memory.mark();
  }
  return {};
}

}  // namespace gradus::kernels
