// SPDX-License-Identifier: BSL-1.0
//
// Softmax and cross-entropy on CUDA.
// Module: kernels. Depends on: tensor.
#pragma once

#include <cstddef>  // std::size_t
#include <cstdint>  // std::int32_t
#include <cstring>  // std::memcpy
#include <memory>   // std::unique_ptr

#include "gradus/core/element.hpp"         // network_element
#include "gradus/core/error.hpp"           // configuration_error
#include "gradus/core/index.hpp"           // index_t
#include "gradus/device/cuda.cuh"          // cuda
#include "gradus/device/cuda_memory.cuh"   // pinned_memory
#include "gradus/device/cuda_stream.cuh"   // cuda_event
#include "gradus/kernels/cuda/launch.cuh"  // launch
#include "gradus/device/cuda_step.cuh"  // recorded_numbers
#include "gradus/kernels/softmax.hpp"      // loss_sums

namespace gradus::kernels {

namespace detail {

/// What the loss of a device needs beside the scores: labels on their way to the card, sums on their way back.
///
/// The host writes labels into page-locked memory, and the sums are written into such memory by the last kernel: nobody
/// waits until `take` asks for the sums.
class loss_memory {
 public:
  explicit loss_memory(const cuda&) : sums_{sizeof(loss_sums)} {}
  loss_memory(const loss_memory&) = delete;
  loss_memory& operator=(const loss_memory&) = delete;
  ~loss_memory() {
    static_cast<void>(cudaFree(device_labels_));
    static_cast<void>(cudaFree(row_sums_));
  }

  /// Takes memory for so many rows. Does nothing when it has been called with as many before.
  /// @throws device_error when the memory does not suffice
  void reserve(cuda& device, index_t rows) {
    if (rows <= rows_) {
      return;
    }
    device.synchronize();  // what the memory of before was used for is done
    const auto count = static_cast<std::size_t>(rows);
    static_cast<void>(cudaFree(device_labels_));
    static_cast<void>(cudaFree(row_sums_));
    device_labels_ = nullptr;
    row_sums_ = nullptr;
    rows_ = 0;
    labels_ = pinned_memory{count * sizeof(std::int32_t)};
    gradus::detail::check_cuda(cudaMalloc(reinterpret_cast<void**>(&device_labels_), count * sizeof(std::int32_t)),
                               "cudaMalloc");
    gradus::detail::check_cuda(cudaMalloc(reinterpret_cast<void**>(&row_sums_), count * sizeof(loss_sums)),
                               "cudaMalloc");
    rows_ = rows;
  }

  /// Waits until the labels of the call before are on the card, and puts others in their place.
  /// @pre reserve(rows)
  void write_labels(index_t rows, const std::int32_t* labels) {
    copied_.synchronize();
    std::memcpy(labels_.data(), labels, static_cast<std::size_t>(rows) * sizeof(std::int32_t));
  }
  void copy_labels(cuda& device, index_t rows) {
    device.copy_from_host(device_labels_, labels_.data(), static_cast<std::size_t>(rows) * sizeof(std::int32_t));
  }
  /// The labels are on the card, and the sums in place, when what is on the stream now is done.
  void mark(cuda& device) {
    copied_.record(device.stream());
    pending_ = true;
  }

  [[nodiscard]] const std::int32_t* labels() const noexcept { return device_labels_; }
  [[nodiscard]] loss_sums* row_sums() const noexcept { return row_sums_; }
  [[nodiscard]] loss_sums* sums() const noexcept { return static_cast<loss_sums*>(sums_.data()); }

  /// Waits for the sums of the last call.
  [[nodiscard]] loss_sums take() {
    if (!pending_) {
      return {};
    }
    copied_.synchronize();
    pending_ = false;
    return *sums();
  }

 private:
  index_t rows_ = 0;
  pinned_memory labels_;
  pinned_memory sums_;
  std::int32_t* device_labels_ = nullptr;
  loss_sums* row_sums_ = nullptr;
  cuda_event copied_;
  bool pending_ = false;
};

inline constexpr unsigned softmax_threads = 128;

template <class T>
struct larger_first {
  T value;
  index_t at;

  /// The larger of two values, of equals the first; a NaN is larger than all.
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

/// All threads of a block get what `combine` makes of their values, in a fixed order.
template <class T, class Combine>
__device__ T combine_in_block(T own, const Combine& combine) {
  __shared__ T values[softmax_threads];
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

/// One block a row. Without labels it writes probabilities.
template <class E>
__global__ void softmax_kernel(index_t rows, index_t classes, const E* logits, const std::int32_t* labels,
                               device_real<E> scale, E* out, loss_sums* row_sums) {
  using real = device_real<E>;
  for (index_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const E* const x = logits + row * classes;
    larger_first<real> largest{real{0}, -1};
    for (index_t i = threadIdx.x; i < classes; i += softmax_threads) {
      largest.meet({widen(x[i]), i});
    }
    largest = combine_in_block(largest, [](auto& a, const auto& b) { a.meet(b); });
    real sum = 0;
    for (index_t i = threadIdx.x; i < classes; i += softmax_threads) {
      sum += exp(widen(x[i]) - largest.value);
    }
    sum = combine_in_block(sum, [](real& a, real b) { a += b; });
    const index_t label = labels == nullptr ? -1 : labels[row];
    if (labels != nullptr && threadIdx.x == 0) {
      const real at_label = widen(x[label]);
      row_sums[row] = {log(static_cast<double>(sum)) - static_cast<double>(at_label - largest.value),
                       largest.at == label ? index_t{1} : index_t{0}};
    }
    __syncthreads();  // out may be logits
    for (index_t i = threadIdx.x; i < classes && out != nullptr; i += softmax_threads) {
      const real probability = exp(widen(x[i]) - largest.value) / sum;
      out[row * classes + i] = narrow<E>(scale * (i == label ? probability - real{1} : probability));
    }
  }
}

/// One block adds up the rows, in a fixed order.
template <class Unused = void>
__global__ void sum_losses_kernel(index_t rows, const loss_sums* row_sums, loss_sums* total) {
  loss_sums own;
  for (index_t row = threadIdx.x; row < rows; row += softmax_threads) {
    own.loss += row_sums[row].loss;
    own.correct += row_sums[row].correct;
  }
  own = combine_in_block(own, [](loss_sums& a, const loss_sums& b) {
    a.loss += b.loss;
    a.correct += b.correct;
  });
  if (threadIdx.x == 0) {
    *total = own;
  }
}

}  // namespace detail

/// See kernels/softmax.hpp. Does not wait: the sums are those that take_loss_sums returns.
/// @note dlogits may be logits. Memory is taken at the first call for a larger number of rows.
template <network_element Element>
loss_sums softmax_cross_entropy_loss(cuda& device, index_t rows, index_t classes, const Element* logits,
                                     const std::int32_t* labels, double scale, Element* dlogits) {
  if (rows == 0) {
    return {};
  }
  auto& memory = device.library<detail::loss_memory>();
  const bool recording = device.library<gradus::detail::recorded_numbers>().for_kernels() != nullptr;
  if (!recording) {  // else whoever launches the graph does so
    memory.reserve(device, rows);
    memory.write_labels(rows, labels);
  }
  memory.copy_labels(device, rows);
  detail::launch(device, "softmax_cross_entropy_loss", detail::blocks_for(rows, 1), detail::softmax_threads,
                 &detail::softmax_kernel<Element>, rows, classes, logits, memory.labels(),
                 static_cast<detail::device_real<Element>>(scale), dlogits, memory.row_sums());
  detail::launch(device, "softmax_cross_entropy_loss", 1, detail::softmax_threads, &detail::sum_losses_kernel<>, rows,
                 static_cast<const loss_sums*>(memory.row_sums()), memory.sums());
  if (!recording) {
    memory.mark(device);
  }
  return {};
}

/// See kernels/softmax.hpp.
[[nodiscard]] inline loss_sums take_loss_sums(cuda& device) {
  const bool recording = device.library<gradus::detail::recorded_numbers>().for_kernels() != nullptr;
  return recording ? loss_sums{} : device.library<detail::loss_memory>().take();
}

/// See kernels/softmax.hpp.
/// @note probabilities may be logits.
template <network_element Element>
void softmax(cuda& device, index_t rows, index_t classes, const Element* logits, Element* probabilities) {
  if (rows != 0) {
    detail::launch(device, "softmax", detail::blocks_for(rows, 1), detail::softmax_threads,
                   &detail::softmax_kernel<Element>, rows, classes, logits, nullptr,
                   detail::device_real<Element>{1}, probabilities, nullptr);
  }
}

}  // namespace gradus::kernels
