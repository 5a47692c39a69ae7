// SPDX-License-Identifier: BSL-1.0
//
// In place of Thrust's.
#pragma once

namespace thrust::cuda {

struct par_on {
  cudaStream_t stream;
};
inline constexpr struct {
  [[nodiscard]] par_on on(cudaStream_t stream) const { return {stream}; }
} par_nosync;

}  // namespace thrust::cuda
