// SPDX-License-Identifier: BSL-1.0
//
// The numbers that change from step to step, where kernels of a recorded step find them.
// Module: device. Depends on: core.
#pragma once

#include <cstdint>  // std::uint64_t
#include <memory>   // std::unique_ptr

#include "gradus/device/cuda.cuh"         // cuda
#include "gradus/device/cuda_memory.cuh"  // pinned_memory

namespace gradus::detail {

/// What a training step that is launched as a graph reads instead of the arguments it was recorded with.
struct step_numbers {
  std::uint64_t step = 0;
  std::uint64_t first_example = 0;
  double learning_rate = 0;
};

/// The step numbers of a device. The memory is the host's, page-locked: kernels read it over the bus, 24 bytes a step.
class recorded_numbers {
 public:
  explicit recorded_numbers(const cuda&) : memory_{sizeof(step_numbers)} {
    *static_cast<step_numbers*>(memory_.data()) = {};
  }

  /// For kernels of a step that is being recorded; null otherwise.
  [[nodiscard]] const step_numbers* for_kernels() const noexcept {
    return recording ? static_cast<const step_numbers*>(memory_.data()) : nullptr;
  }
  /// @pre no launch of the recorded step is under way
  void set(const step_numbers& numbers) noexcept { *static_cast<step_numbers*>(memory_.data()) = numbers; }

  bool recording = false;

 private:
  pinned_memory memory_;
};

}  // namespace gradus::detail
