// SPDX-License-Identifier: BSL-1.0
//
// Turns failed calls of the CUDA libraries into exceptions with the call, the reason and the location.
#pragma once

#include <cuda_runtime_api.h>  // cudaError_t, cudaGetErrorString

#include <source_location>  // std::source_location
#include <string_view>      // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"

namespace gradus {

/// Throws device_error for a failed call, with the call, the reason and the location.
[[noreturn]] inline void throw_cuda_error(cudaError_t result, std::string_view call,
                                          const std::source_location& where) {
  // Clears the error of this call, so that the next call does not report it; a sticky error comes back there too.
  static_cast<void>(cudaGetLastError());
  const std::string_view reason{cudaGetErrorString(result)};
  const std::string_view name{cudaGetErrorName(result)};
  switch (result) {
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
      raise<device_error>("cuda: no CUDA device was found", "an NVIDIA GPU and its driver",
                          {name, " (", reason, ") from ", call},
                          "check that nvidia-smi lists the GPU, that its driver is new enough for this toolkit and "
                          "that CUDA_VISIBLE_DEVICES does not hide it; gradus::cpu works everywhere",
                          where);
    case cudaErrorMemoryAllocation:
      raise<device_error>(call, "memory on the device", {name, " (", reason, ")"},
                          "use a smaller batch or a smaller network", where);
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
      raise<device_error>(
          call, "work that can be captured", {name, " (", reason, ")"},
          "work that waits for the device (scalar_of, copies to the host) or allocates memory cannot be part of a "
          "captured step: remove it, or train without capturing steps",
          where);
    default:
      raise<device_error>(call, "success", {name, " (", reason, ")"},
                          "the failure may belong to earlier work on the device: with CUDA_LAUNCH_BLOCKING=1 in the "
                          "environment the call that fails reports it, and compute-sanitizer shows the cause",
                          where);
  }
}

/// Checks the result of a call of the CUDA runtime.
/// @throws device_error with the call, the reason and the location if the call failed
inline void check_cuda(cudaError_t result, std::string_view call,
                       const std::source_location& where = std::source_location::current()) {
  if (result != cudaSuccess) [[unlikely]] {
    throw_cuda_error(result, call, where);
  }
}

}  // namespace gradus
