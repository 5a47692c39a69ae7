// SPDX-License-Identifier: BSL-1.0
//
// Launches kernels on the stream of a device.
#pragma once

#include <cuda_runtime_api.h>  // cudaLaunchKernel

#include <array>        // std::array
#include <memory>       // std::addressof
#include <string_view>  // std::string_view
#include <type_traits>  // std::type_identity_t

#include "gradus/device/cuda.cuh"
#include "gradus/device/cuda_error.cuh"

namespace gradus {

/// Launches a kernel on the stream of the device.
/// @throws device_error if the launch fails or earlier work has failed
template <class... Parameters>
void launch(cuda& device, std::string_view name, dim3 blocks, dim3 threads, void (*kernel)(Parameters...),
            std::type_identity_t<Parameters>... arguments) {
  device.activate();
  std::array<void*, sizeof...(Parameters)> pointers{std::addressof(arguments)...};
  check_cuda(
      cudaLaunchKernel(reinterpret_cast<const void*>(kernel), blocks, threads, pointers.data(), 0, device.stream()),
      name);
}

}  // namespace gradus
