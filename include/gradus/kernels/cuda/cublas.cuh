// SPDX-License-Identifier: BSL-1.0
//
// The cuBLAS handle of a device.
// Module: kernels. Depends on: device.
#pragma once

#include <cublas_v2.h>     // cublasHandle_t
#include <cuda_runtime_api.h>  // cudaMalloc

#include <cstddef>          // std::size_t
#include <source_location>  // std::source_location
#include <string_view>      // std::string_view

#include "gradus/core/config.hpp"         // GRADUS_COLD
#include "gradus/core/error.hpp"          // device_error
#include "gradus/device/cuda.cuh"         // cuda
#include "gradus/device/cuda_error.cuh"   // check_cuda

namespace gradus::kernels::detail {

[[noreturn]] GRADUS_COLD inline void throw_cublas_error(cublasStatus_t status, std::string_view call,
                                                        const std::source_location& where) {
  throw device_error{call,
                     cublasGetStatusName(CUBLAS_STATUS_SUCCESS),
                     {cublasGetStatusName(status), ", ", cublasGetStatusString(status)},
                     "the failure may belong to earlier work on the device; CUBLAS_LOGINFO_DBG=1 in the environment "
                     "makes cuBLAS say more",
                     where};
}

/// @throws device_error with the call, the reason and the place unless a call of cuBLAS went well
inline void check_cublas(cublasStatus_t status, std::string_view call,
                         const std::source_location& where = std::source_location::current()) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]] {
    throw_cublas_error(status, call, where);
  }
}

/// cuBLAS on the stream of a device, with memory of its own: so its results are the same in every run, and a step that
/// is recorded takes none.
class cublas {
 public:
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20U;  // what NVIDIA advises for Hopper

  explicit cublas(const cuda& device) {
    check_cublas(cublasCreate(&handle_), "cublasCreate");
    try {
      gradus::detail::check_cuda(cudaMalloc(&workspace_, workspace_bytes), "cudaMalloc");
      check_cublas(cublasSetStream(handle_, device.stream()), "cublasSetStream");
      check_cublas(cublasSetWorkspace(handle_, workspace_, workspace_bytes), "cublasSetWorkspace");
      check_cublas(
          cublasSetMathMode(handle_, device.options().allow_tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH),
          "cublasSetMathMode");
    } catch (...) {
      release();
      throw;
    }
  }
  cublas(const cublas&) = delete;
  cublas& operator=(const cublas&) = delete;
  ~cublas() { release(); }

  [[nodiscard]] cublasHandle_t handle() const noexcept { return handle_; }

 private:
  void release() noexcept {
    static_cast<void>(cublasDestroy(handle_));
    static_cast<void>(cudaFree(workspace_));
  }

  cublasHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
};

}  // namespace gradus::kernels::detail
