// SPDX-License-Identifier: BSL-1.0
//
// cuBLAS on the stream of a CUDA device.
#pragma once

#include <cublas_v2.h>  // cublasHandle_t, cublasSetStream

#include <cstddef>          // std::size_t
#include <memory>           // std::unique_ptr
#include <source_location>  // std::source_location
#include <string_view>      // std::string_view
#include <type_traits>      // std::remove_pointer_t

#include "gradus/core/error.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/device/cuda_error.cuh"

namespace gradus {

/// Checks the result of a cuBLAS call.
/// @throws device_error with the call, the reason and the location if the call failed
inline void check_cublas(cublasStatus_t result, std::string_view call,
                         const std::source_location& where = std::source_location::current()) {
  if (result != CUBLAS_STATUS_SUCCESS) [[unlikely]] {
    raise<device_error>(call, "success", {cublasGetStatusName(result), " (", cublasGetStatusString(result), ")"},
                        "set CUBLAS_LOGINFO_DBG=1 in the environment for details from cuBLAS", where);
  }
}

/// The cuBLAS handle of a device: `device.context<cublas>().get()`. Its pointer mode is "host": scalars are read from
/// host memory. Do not change it.
class cublas {
 public:
  /// A handle on the stream of `device`. @throws device_error if cuBLAS cannot start
  explicit cublas(const cuda& device) {
    cublasHandle_t handle = nullptr;
    check_cublas(cublasCreate(&handle), "cublasCreate");
    handle_.reset(handle);
    check_cublas(cublasSetStream(handle, device.stream()), "cublasSetStream");
    // Its own workspace: results do not depend on other work, and a captured step allocates none.
    void* workspace = nullptr;
    check_cuda(cudaMalloc(&workspace, workspace_bytes), "cudaMalloc");
    workspace_.reset(workspace);
    check_cublas(cublasSetWorkspace(handle, workspace, workspace_bytes), "cublasSetWorkspace");
    check_cublas(
        cublasSetMathMode(handle, device.options().allow_tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH),
        "cublasSetMathMode");
  }

  /// The handle of cuBLAS.
  [[nodiscard]] cublasHandle_t get() const noexcept { return handle_.get(); }

 private:
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20U;  // NVIDIA's recommendation for Hopper

  struct free {
    void operator()(void* memory) const noexcept { static_cast<void>(cudaFree(memory)); }
  };
  struct destroy {
    void operator()(cublasHandle_t handle) const noexcept { static_cast<void>(cublasDestroy(handle)); }
  };
  std::unique_ptr<void, free> workspace_;
  std::unique_ptr<std::remove_pointer_t<cublasHandle_t>, destroy> handle_;
};

}  // namespace gradus
