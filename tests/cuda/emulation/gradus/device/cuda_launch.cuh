// SPDX-License-Identifier: BSL-1.0
//
// In place of gradus/device/cuda_launch.cuh: kernels run on the host.
#pragma once

#include <string_view>
#include <type_traits>

#include "gradus/device/cuda.cuh"
#include "gradus/device/cuda_error.cuh"

namespace gradus {

template <class... Parameters>
void launch(cuda& device, std::string_view name, dim3 blocks, dim3 threads, void (*kernel)(Parameters...),
            std::type_identity_t<Parameters>... arguments) {
  device.activate();
  emulation::launch(device.stream(), blocks, threads, [=] { kernel(arguments...); });
  check_cuda(cudaGetLastError(), name);
}

}  // namespace gradus
