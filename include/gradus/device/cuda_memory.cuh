// SPDX-License-Identifier: BSL-1.0
//
// Memory for CUDA: pools of device memory, and pinned host memory.
#pragma once

#include <cuda_runtime_api.h>  // cudaMemPool_t, cudaHostAlloc

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <memory>       // std::unique_ptr
#include <type_traits>  // std::remove_pointer_t

#include "gradus/device/cuda_error.cuh"

namespace gradus {

namespace detail {

/// A pool of device memory, allocated and freed in stream order without waiting.
class cuda_memory_pool {
 public:
  /// @param device             index of the device that has the memory
  /// @param release_threshold  free bytes that the pool keeps for reuse when the stream is synchronized
  cuda_memory_pool(int device, std::size_t release_threshold) {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;  // CUDA's name for device memory that does not move
    properties.handleTypes = cudaMemHandleTypeNone;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device;
    cudaMemPool_t pool = nullptr;
    check_cuda(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate");
    pool_.reset(pool);
    std::uint64_t threshold = release_threshold;
    check_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold), "cudaMemPoolSetAttribute");
  }

  /// Allocates memory for later work of the stream; aligned to 256 bytes.
  [[nodiscard]] void* allocate(std::size_t bytes, cudaStream_t stream) const {
    void* pointer = nullptr;
    check_cuda(cudaMallocFromPoolAsync(&pointer, bytes, pool_.get(), stream), "cudaMallocFromPoolAsync");
    return pointer;
  }

  /// The maximum of bytes allocated at one time.
  [[nodiscard]] std::size_t peak_bytes() const {
    std::uint64_t bytes = 0;
    check_cuda(cudaMemPoolGetAttribute(pool_.get(), cudaMemPoolAttrUsedMemHigh, &bytes), "cudaMemPoolGetAttribute");
    return static_cast<std::size_t>(bytes);
  }

 private:
  struct destroy {
    void operator()(cudaMemPool_t pool) const noexcept { static_cast<void>(cudaMemPoolDestroy(pool)); }
  };
  // CUDA keeps the pool until all its memory is freed
  std::unique_ptr<std::remove_pointer_t<cudaMemPool_t>, destroy> pool_;
};

/// Pins existing host memory for the lifetime of this object.
class pinned_range {
 public:
  pinned_range() noexcept = default;
  /// @pre no other pinned memory is on the same pages
  /// @throws device_error if the system does not lock that much memory, or there is no device
  pinned_range(void* memory, std::size_t bytes) {
    check_cuda(cudaHostRegister(memory, bytes, cudaHostRegisterPortable), "cudaHostRegister");
    memory_.reset(memory);
  }

 private:
  struct unregister {
    void operator()(void* memory) const noexcept { static_cast<void>(cudaHostUnregister(memory)); }
  };
  std::unique_ptr<void, unregister> memory_;
};

}  // namespace detail

/// Page-locked host memory, page-aligned. A device copies from and to it while the host continues.
class pinned_memory {
 public:
  pinned_memory() noexcept = default;
  /// @throws device_error if the system does not lock that much memory, or there is no device
  explicit pinned_memory(std::size_t bytes) : bytes_{bytes} {
    void* pointer = nullptr;
    check_cuda(cudaHostAlloc(&pointer, bytes == 0 ? 1 : bytes, cudaHostAllocPortable), "cudaHostAlloc");
    memory_.reset(pointer);
  }

  /// The first byte.
  [[nodiscard]] void* data() const noexcept { return memory_.get(); }
  /// The size in bytes.
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

 private:
  struct free {
    void operator()(void* pointer) const noexcept { static_cast<void>(cudaFreeHost(pointer)); }
  };
  std::unique_ptr<void, free> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace gradus
