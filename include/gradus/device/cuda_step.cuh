// SPDX-License-Identifier: BSL-1.0
//
// The numbers that change from step to step, in device memory for the kernels of a captured step.
#pragma once

#include <cuda_runtime_api.h>  // cudaMalloc

#include <cstdint>  // std::uint64_t

#include "gradus/device/cuda.cuh"
#include "gradus/device/cuda_error.cuh"

namespace gradus {

/// What a step that runs as a graph reads instead of the arguments of its capture.
struct step_numbers {
  std::uint64_t launch = 0;         ///< index of the launch over all graphs of the device, counted from 1
  std::uint64_t step = 0;           ///< index of the training step
  std::uint64_t first_example = 0;  ///< position of the first example in the order of the epoch
  double learning_rate = 0;         ///< learning rate of the step
};

/// The step numbers of a device, in device memory.
class captured_numbers {
 public:
  /// Allocates the numbers. @throws device_error if there is not enough memory
  explicit captured_numbers(const cuda&) {
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&numbers_), sizeof(step_numbers)), "cudaMalloc");
  }
  captured_numbers(const captured_numbers&) = delete;
  captured_numbers& operator=(const captured_numbers&) = delete;
  ~captured_numbers() { static_cast<void>(cudaFree(numbers_)); }

  /// The numbers for kernels of a step that is being captured; null otherwise.
  [[nodiscard]] const step_numbers* for_kernels() const noexcept { return recording_ ? numbers_ : nullptr; }

  /// Sets the numbers for the next launch on the stream. Returns the index of the launch, which is unique on the
  /// device.
  std::uint64_t set(cuda& device, step_numbers numbers) {
    numbers.launch = ++launches_;
    device.copy_from_host(numbers_, &numbers, sizeof(numbers));
    return numbers.launch;
  }

  /// Marks that a step is being captured, for the lifetime of this object.
  class recording {
   public:
    /// Begins the capture.
    explicit recording(captured_numbers& owner) noexcept : owner_{owner} { owner_.recording_ = true; }
    recording(const recording&) = delete;
    recording& operator=(const recording&) = delete;
    ~recording() { owner_.recording_ = false; }

   private:
    captured_numbers& owner_;
  };

 private:
  step_numbers* numbers_ = nullptr;
  std::uint64_t launches_ = 0;
  bool recording_ = false;
};

}  // namespace gradus
