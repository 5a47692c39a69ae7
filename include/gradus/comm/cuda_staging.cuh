// SPDX-License-Identifier: BSL-1.0
//
// Staging of GPU memory through page-locked host memory, for communicators that only read host memory, such as MPI
// without GPU-direct.
#pragma once

#include <cuda_runtime_api.h>  // cudaHostAlloc, cudaMemcpyAsync, cudaPointerGetAttributes

#include <cstddef>  // std::size_t
#include <memory>   // std::make_shared, std::shared_ptr
#include <mutex>    // std::mutex, std::scoped_lock
#include <utility>  // std::move

#include "gradus/comm/staged.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/device/cuda_error.cuh"
#include "gradus/device/cuda_stream.cuh"

namespace gradus::comm {

/// Copies between a GPU and page-locked memory, on a stream of its own.
class cuda_staging {
 public:
  /// Staging for the memory of `device`.
  explicit cuda_staging(cuda& device) : shared_{std::make_shared<shared>(device)} {}

  /// True if the memory is that of the GPU.
  [[nodiscard]] bool on_device(const void* pointer) const {
    cudaPointerAttributes attributes{};
    check_cuda(cudaPointerGetAttributes(&attributes, pointer), "cudaPointerGetAttributes");
    return attributes.type == cudaMemoryTypeDevice;
  }
  /// Allocates page-locked memory. @throws device_error if there is not enough
  [[nodiscard]] void* allocate(std::size_t bytes) const {
    void* pointer = nullptr;
    check_cuda(cudaHostAlloc(&pointer, bytes, cudaHostAllocPortable), "cudaHostAlloc");
    return pointer;
  }
  /// Frees memory of allocate.
  void deallocate(void* pointer, std::size_t /*bytes*/) const noexcept { static_cast<void>(cudaFreeHost(pointer)); }

  /// Copies to the host after all earlier work of the device; returns when the copy is done.
  void to_host(void* host, const void* device, std::size_t bytes) const {
    copy(host, device, bytes, cudaMemcpyDeviceToHost);
  }
  /// Copies to the device after all earlier work of the device, which may read what was there; returns when the copy is
  /// done.
  void to_device(void* device, const void* host, std::size_t bytes) const {
    copy(device, host, bytes, cudaMemcpyHostToDevice);
  }

 private:
  struct shared {
    explicit shared(cuda& owner) : device{owner} {}
    cuda& device;
    std::mutex mutex;
    cuda_stream stream;
    cuda_event begin;
  };

  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) const {
    const std::scoped_lock lock{shared_->mutex};
    shared_->device.activate();
    shared_->begin.record(shared_->device.stream());
    shared_->stream.wait(shared_->begin);
    check_cuda(cudaMemcpyAsync(to, from, bytes, kind, shared_->stream.get()), "cudaMemcpyAsync");
    shared_->stream.synchronize();
  }

  std::shared_ptr<shared> shared_;  // shared with the duplicates of a communicator
};
static_assert(staging<cuda_staging>);

/// A communicator for GPU memory: `comm::staged_on_cuda ranks{mpi.duplicate(), device};`
template <class Communicator>
class staged_on_cuda : public staged<Communicator, cuda_staging> {
 public:
  /// Takes over a communicator of the host; see staged.
  staged_on_cuda(Communicator hosts, cuda& device)
      : staged<Communicator, cuda_staging>{std::move(hosts), cuda_staging{device}} {}

  /// A communicator of the same ranks with separate messages. Called by all ranks.
  [[nodiscard]] staged_on_cuda duplicate() { return staged_on_cuda{staged<Communicator, cuda_staging>::duplicate()}; }

 private:
  explicit staged_on_cuda(staged<Communicator, cuda_staging> made)
      : staged<Communicator, cuda_staging>{std::move(made)} {}
};

}  // namespace gradus::comm
