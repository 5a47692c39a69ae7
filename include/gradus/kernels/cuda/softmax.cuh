// SPDX-License-Identifier: BSL-1.0
//
// Softmax and cross-entropy on CUDA.
#pragma once

#include <atomic>   // std::atomic_thread_fence
#include <cmath>    // NAN
#include <cstddef>  // std::size_t
#include <cstdint>  // std::int32_t, std::uint64_t
#include <utility>  // std::exchange

#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/device/cuda_memory.cuh"
#include "gradus/device/cuda_step.cuh"
#include "gradus/device/cuda_stream.cuh"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/kernels/cuda/elementwise.cuh"
#include "gradus/kernels/softmax.hpp"

namespace gradus::kernels {

namespace detail {

/// The sums of a batch, and the launch of the captured step that computed them.
struct stamped_sums {
  loss_sums sums;
  std::uint64_t launch = 0;
};

/// Memory of a loss: the sums of rows on the device, and the total in page-locked memory that the last kernel writes.
/// The host waits for it only in `take`.
class loss_memory {
 public:
  explicit loss_memory(const cuda& device) : stream_{device.stream()}, sums_{sizeof(stamped_sums)} { *sums() = {}; }
  loss_memory(const loss_memory&) = delete;
  loss_memory& operator=(const loss_memory&) = delete;
  ~loss_memory() { static_cast<void>(cudaFree(row_sums_)); }

  /// Allocates memory for `rows` rows. Does nothing if there is memory for that many.
  /// @throws device_error when there is too little memory
  void reserve(cuda& device, index_t rows) {
    if (rows <= rows_) {
      return;
    }
    device.synchronize();  // work that uses the old memory has ended
    static_cast<void>(cudaFree(row_sums_));
    row_sums_ = nullptr;
    rows_ = 0;
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&row_sums_), static_cast<std::size_t>(rows) * sizeof(loss_sums)),
               "cudaMalloc");
    rows_ = rows;
  }

  /// The sums are complete when the work that is now on the stream is done.
  void mark() {
    ready_.record(stream_);
    pending_ = true;
  }

  /// The gradient of the next loss is also multiplied by *scale, a number in the memory of the device.
  void use_scale(const double* scale) noexcept { scale_ = scale; }
  [[nodiscard]] const double* take_scale() noexcept { return std::exchange(scale_, nullptr); }

  [[nodiscard]] loss_sums* row_sums() const noexcept { return row_sums_; }
  [[nodiscard]] stamped_sums* sums() const noexcept { return static_cast<stamped_sums*>(sums_.data()); }

  /// Waits for the sums of the last call and returns them.
  [[nodiscard]] loss_sums take() {
    if (!pending_) {
      return {};
    }
    ready_.synchronize();
    pending_ = false;
    return sums()->sums;
  }

  /// Waits for the sums of a launch of a captured step; the rest of the step may still run.
  /// @throws device_error when the step failed
  [[nodiscard]] loss_sums take_of(std::uint64_t launch) const {
    const volatile std::uint64_t& seen = sums()->launch;
    for (int looks = 1; seen != launch; ++looks) {
      if (looks % 4096 == 0) {
        const cudaError_t status = cudaStreamQuery(stream_);
        if (status != cudaErrorNotReady) {
          check_cuda(status, "a captured training step");
          break;  // all work is done
        }
      }
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    return sums()->sums;
  }

 private:
  cudaStream_t stream_;
  index_t rows_ = 0;
  pinned_memory sums_;
  loss_sums* row_sums_ = nullptr;
  cuda_event ready_;
  bool pending_ = false;
  const double* scale_ = nullptr;
};

/// @throws configuration_error for memory that the device cannot read
inline void require_labels_on_device(const void* labels) {
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, labels), "cudaPointerGetAttributes");
  if (attributes.type == cudaMemoryTypeUnregistered) {
    gradus::raise<configuration_error>(
        "softmax_cross_entropy_loss", "labels in the memory of the device", "labels in memory of the host",
        "use data::loader<Element, Layout, cuda> or a tensor<std::int32_t, 1, row_major, cuda>");
  }
}

inline constexpr unsigned softmax_threads = 128;

template <class Value>
struct larger_first {
  Value value;
  index_t at;

  /// Takes the other value if it is larger, or equal and earlier; a NaN counts as larger than all numbers.
  __device__ void meet(const larger_first& other) {
    const bool other_nan = other.value != other.value;
    const bool nan = value != value;
    const bool takes = other.at >= 0 && (at < 0 || (other_nan && !nan) || (!nan && other.value > value) ||
                                         ((other.value == value || (other_nan && nan)) && other.at < at));
    if (takes) {
      *this = other;
    }
  }
};

/// Combines the values of all threads of a block in a fixed order; all threads get the result.
template <class Value, class Combine>
__device__ Value combine_in_block(Value own, const Combine& combine) {
  __shared__ Value values[softmax_threads];
  __syncthreads();
  values[threadIdx.x] = own;
  __syncthreads();
  for (unsigned half = softmax_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      combine(values[threadIdx.x], values[threadIdx.x + half]);
    }
    __syncthreads();
  }
  return values[0];
}

/// One block for each row. Without labels it writes probabilities.
template <class Element>
__global__ void softmax_kernel(index_t rows, index_t classes, const Element* logits, const std::int32_t* labels,
                               device_real<Element> scale, const double* loss_scale, Element* out,
                               loss_sums* row_sums) {
  using real = device_real<Element>;
  if (loss_scale != nullptr) {
    scale *= static_cast<real>(*loss_scale);
  }
  for (index_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const Element* const x = logits + row * classes;
    larger_first<real> largest{real{0}, -1};
    for (index_t i = threadIdx.x; i < classes; i += softmax_threads) {
      largest.meet({widen(x[i]), i});
    }
    largest = combine_in_block(largest, [](auto& a, const auto& b) { a.meet(b); });
    real sum = 0;
    for (index_t i = threadIdx.x; i < classes; i += softmax_threads) {
      sum += ::exp(widen(x[i]) - largest.value);
    }
    sum = combine_in_block(sum, [](real& a, real b) { a += b; });
    const index_t label = labels == nullptr ? -1 : labels[row];
    if (labels != nullptr && threadIdx.x == 0) {
      // A label that is not a class gives a NaN loss.
      const real at_label = label >= 0 && label < classes ? widen(x[label]) : static_cast<real>(NAN);
      row_sums[row] = {::log(static_cast<double>(sum)) - static_cast<double>(at_label - largest.value),
                       largest.at == label ? index_t{1} : index_t{0}, 1};
    }
    __syncthreads();  // out may be logits
    for (index_t i = threadIdx.x; i < classes && out != nullptr; i += softmax_threads) {
      const real probability = ::exp(widen(x[i]) - largest.value) / sum;
      out[row * classes + i] = narrow<Element>(scale * (i == label ? probability - real{1} : probability));
    }
  }
}

/// The cross-entropy of labeled pixels: blocks of threads share the pixels of an example, one thread for each pixel.
template <class Element>
__global__ void pixel_cross_entropy_kernel(pixel_cross_entropy<device_real<Element>> shape, index_t blocks_per_example,
                                           const Element* logits, const std::int32_t* labels, double scale,
                                           const double* loss_scale, Element* out, loss_sums* block_sums) {
  using real = device_real<Element>;
  if (loss_scale != nullptr) {
    scale *= *loss_scale;
  }
  const index_t class_stride = shape.channels_last ? index_t{1} : shape.pixels;
  const index_t pixel_stride = shape.channels_last ? shape.classes : index_t{1};
  const auto weight_of = [&](index_t k) { return shape.class_weights == nullptr ? real{1} : shape.class_weights[k]; };
  for (index_t block = blockIdx.x; block < shape.examples * blocks_per_example; block += gridDim.x) {
    const index_t example = block / blocks_per_example;
    const double weight =
        (shape.example_weights == nullptr ? 1.0 : static_cast<double>(shape.example_weights[example])) /
        static_cast<double>(shape.pixels);
    loss_sums own;
    for (index_t pixel = block % blocks_per_example * softmax_threads + threadIdx.x; pixel < shape.pixels;
         pixel += blocks_per_example * softmax_threads) {
      const Element* const x = logits + example * shape.pixels * shape.classes + pixel * pixel_stride;
      const index_t label = labels[example * shape.pixels + pixel];
      const bool counts = !(shape.ignores && label == shape.ignored_label);
      larger_first<real> largest{real{0}, -1};
      for (index_t k = 0; k < shape.classes; ++k) {
        largest.meet({widen(x[k * class_stride]), k});
      }
      real sum = 0;
      double weighted = 0;  // sum of class weight * (logit - largest)
      double total = 0;     // of the class weights
      for (index_t k = 0; k < shape.classes; ++k) {
        const real above = widen(x[k * class_stride]) - largest.value;
        sum += ::exp(above);
        weighted += static_cast<double>(weight_of(k)) * static_cast<double>(above);
        total += static_cast<double>(weight_of(k));
      }
      const bool valid = label >= 0 && label < shape.classes;
      const double of_label =
          counts ? (1 - shape.label_smoothing) * static_cast<double>(weight_of(valid ? label : 0)) : 0;
      const double of_all = counts ? shape.label_smoothing / static_cast<double>(shape.classes) : 0;
      if (counts) {
        // A label that is not a class gives a NaN loss.
        const real at_label = valid ? widen(x[label * class_stride]) : static_cast<real>(NAN);
        const double log_sum = ::log(static_cast<double>(sum));
        double loss = of_label * (log_sum - static_cast<double>(at_label - largest.value));
        if (of_all > 0) {
          loss += of_all * (total * log_sum - weighted);
        }
        own += {weight * loss, largest.at == label ? index_t{1} : index_t{0}, 1};
      }
      if (out != nullptr) {
        Element* const to = out + (x - logits);
        const double factor = scale * weight;
        for (index_t k = 0; k < shape.classes; ++k) {
          double value = 0;
          if (counts) {
            const real probability = ::exp(widen(x[k * class_stride]) - largest.value) / sum;
            value = factor * ((of_label + of_all * total) * static_cast<double>(probability) -
                              of_all * static_cast<double>(weight_of(k)) - (k == label ? of_label : 0.0));
          }
          to[k * class_stride] = narrow<Element>(static_cast<real>(value));
        }
      }
    }
    own = combine_in_block(own, [](loss_sums& a, const loss_sums& b) { a += b; });
    if (threadIdx.x == 0) {
      block_sums[block] = own;
    }
  }
}

/// A value times *scale, a number in the memory of the device.
struct scaled_value {
  const double* scale;

  template <class Value>
  __device__ Value operator()(Value x) const {
    return x * static_cast<Value>(*scale);
  }
};

/// One block adds up the rows in a fixed order.
template <class Unused = void>
__global__ void sum_losses_kernel(index_t rows, const loss_sums* row_sums, const step_numbers* recorded,
                                  stamped_sums* total) {
  loss_sums own;
  for (index_t row = threadIdx.x; row < rows; row += softmax_threads) {
    own += row_sums[row];
  }
  own = combine_in_block(own, [](loss_sums& a, const loss_sums& b) { a += b; });
  if (threadIdx.x == 0) {
    total->sums = own;
    if (recorded != nullptr) {
      __threadfence_system();
      *const_cast<volatile std::uint64_t*>(&total->launch) = recorded->launch;
    }
  }
}

}  // namespace detail

/// See has_softmax_cross_entropy. Labels are in the memory of the device; the loss is NaN if a label is not a class.
/// Does not wait: take_loss_sums returns the sums.
/// @note dlogits may be logits. A call with more rows than before allocates memory.
template <network_element Element>
loss_sums softmax_cross_entropy_loss(cuda& device, index_t rows, index_t classes, const Element* logits,
                                     const std::int32_t* labels, double scale, Element* dlogits) {
  auto& memory = device.context<detail::loss_memory>();
  const double* const loss_scale = memory.take_scale();
  if (rows == 0) {
    return {};
  }
  const step_numbers* const recorded = device.context<captured_numbers>().for_kernels();
  detail::require_labels_on_device(labels);
  memory.reserve(device, rows);
  launch(device, "softmax_cross_entropy_loss", detail::blocks_for(rows, 1), detail::softmax_threads,
         &detail::softmax_kernel<Element>, rows, classes, logits, labels,
         static_cast<detail::device_real<Element>>(scale), loss_scale, dlogits, memory.row_sums());
  launch(device, "softmax_cross_entropy_loss", 1, detail::softmax_threads, &detail::sum_losses_kernel<>, rows,
         static_cast<const loss_sums*>(memory.row_sums()), recorded, memory.sums());
  if (recorded == nullptr) {
    memory.mark();
  }
  return {};
}

/// See has_pixel_cross_entropy. Labels and weights are in the memory of the device; the loss is NaN if a label is
/// neither a class nor ignored. Does not wait: take_loss_sums returns the sums.
/// @note dlogits may be logits. A call with more pixels than before allocates memory.
template <network_element Element>
loss_sums pixel_cross_entropy_loss(cuda& device, const pixel_cross_entropy<parameter_element_t<Element>>& shape,
                                   const Element* logits, const std::int32_t* labels, double scale, Element* dlogits) {
  auto& memory = device.context<detail::loss_memory>();
  const double* const loss_scale = memory.take_scale();
  if (shape.examples * shape.pixels == 0) {
    return {};
  }
  const step_numbers* const recorded = device.context<captured_numbers>().for_kernels();
  detail::require_labels_on_device(labels);
  constexpr index_t threads = detail::softmax_threads;
  const index_t per_example = (shape.pixels + threads - 1) / threads;
  const index_t blocks = shape.examples * per_example;
  memory.reserve(device, blocks);
  launch(device, "pixel_cross_entropy_loss", detail::blocks_for(blocks, 1), detail::softmax_threads,
         &detail::pixel_cross_entropy_kernel<Element>, shape, per_example, logits, labels, scale, loss_scale, dlogits,
         memory.row_sums());
  launch(device, "pixel_cross_entropy_loss", 1, detail::softmax_threads, &detail::sum_losses_kernel<>, blocks,
         static_cast<const loss_sums*>(memory.row_sums()), recorded, memory.sums());
  if (recorded == nullptr) {
    memory.mark();
  }
  return {};
}

/// Implements has_loss_scale_use on a GPU.
inline void use_loss_scale(cuda& device, const loss_scale& scale) {
  constexpr int index = gradus::detail::index_of(loss_scale_number::scale);
  device.context<detail::loss_memory>().use_scale(scale.numbers == nullptr ? nullptr : scale.numbers + index);
}

/// Implements has_loss_scale_application on a GPU.
/// @note The scale is applied after 16-bit gradients were rounded.
template <network_element Element>
void apply_loss_scale(cuda& device, index_t count, Element* gradient) {
  const double* const scale = device.context<detail::loss_memory>().take_scale();
  if (scale != nullptr && gradient != nullptr) {
    detail::map(device, "apply_loss_scale", count, detail::scaled_value{scale}, gradient,
                static_cast<const Element*>(gradient));
  }
}

/// Implements has_deferred_loss_sums on a GPU.
[[nodiscard]] inline loss_sums take_loss_sums(cuda& device) {
  const bool recording = device.context<captured_numbers>().for_kernels() != nullptr;
  return recording ? loss_sums{} : device.context<detail::loss_memory>().take();
}

/// Implements has_softmax on a GPU.
/// @note probabilities may be logits.
template <network_element Element>
void softmax(cuda& device, index_t rows, index_t classes, const Element* logits, Element* probabilities) {
  if (rows != 0) {
    launch(device, "softmax", detail::blocks_for(rows, 1), detail::softmax_threads, &detail::softmax_kernel<Element>,
           rows, classes, logits, nullptr, detail::device_real<Element>{1}, nullptr, probabilities, nullptr);
  }
}

}  // namespace gradus::kernels
