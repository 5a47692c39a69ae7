// SPDX-License-Identifier: BSL-1.0
//
// An NVIDIA GPU as a device: its memory, one stream, and the handles of libraries that work on the stream.
//
// It needs only the CUDA runtime and a C++ compiler. Expressions on the device need nvcc and gradus/tensor/cuda.cuh.
#pragma once

#include <cuda_runtime_api.h>  // cudaMemcpyAsync, cudaMemsetAsync

#include <cstddef>      // std::size_t
#include <limits>       // std::numeric_limits
#include <memory>       // std::unique_ptr
#include <string_view>  // std::string_view
#include <utility>      // std::as_const

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/device/cuda_error.cuh"
#include "gradus/device/cuda_memory.cuh"
#include "gradus/device/cuda_stream.cuh"
#include "gradus/device/device_policy.hpp"
#include "gradus/device/thrust_device.cuh"

namespace gradus {

/// How a `cuda` device uses the GPU.
struct cuda_options {
  /// Index of the GPU among those that are visible to the process (CUDA_VISIBLE_DEVICES).
  int device = 0;
  /// Free bytes of memory that the pool keeps for reuse; synchronize() returns more than that to the GPU.
  std::size_t release_threshold = std::numeric_limits<std::size_t>::max();
  /// Matrix products and convolutions of float round their factors to TF32 (10 bits after the point, tensor cores) and
  /// accumulate in float. Faster, and accurate enough for most training.
  bool allow_tf32 = false;
  /// Convolutions use only algorithms that give the same bits in every run.
  bool deterministic = true;
  /// Measures convolution algorithms when a network is compiled; if false, cuDNN's heuristics choose them.
  bool benchmark = true;
  /// Workspace bytes that a convolution algorithm may use in addition to images and weights.
  std::size_t convolution_workspace = std::size_t{1} << 30U;
};

/// The number of CUDA devices that are visible to the process; 0 without a GPU or a driver.
[[nodiscard]] inline int cuda_device_count() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  return count;
}

/// A GPU and a stream of work on it.
///
/// Write gradus::cuda in full, also after `using namespace gradus`: the toolkit has a namespace named cuda too.
///
/// The device does all work in order on its stream, asynchronously to the host; copy_to_host and synchronize wait for
/// it. Memory comes from the device's own pool and is also allocated and freed in stream order. Only one thread may use
/// a device at a time; several devices, on one GPU or on several, work at the same time. An error of asynchronous work
/// is thrown by a later call.
class cuda : public kernels::overload_set, public thrust_device {
 public:
  /// The name of the device in messages.
  static constexpr std::string_view name = "cuda";
  /// False: the host cannot read or write the memory.
  static constexpr bool host_accessible = false;

  /// @throws device_error if there is no such GPU or no driver
  explicit cuda(const cuda_options& options = {}, error_location where = error_location::current()) try
      : options_{checked(options)}, pool_{options_.device, options_.release_threshold} {
  } catch (error& failure) {
    failure.location_at_call(where);
  }
  /// @pre no operation or tensor uses `other`
  cuda(cuda&& other) noexcept = default;
  cuda& operator=(cuda&&) = delete;
  /// Waits for all earlier work, because it may use what contexts own.
  ~cuda() {
    if (stream() != nullptr) {
      static_cast<void>(cudaStreamSynchronize(stream()));
    }
  }

  /// Index of the GPU.
  [[nodiscard]] int index() const noexcept { return options_.device; }
  /// The options of the constructor.
  [[nodiscard]] const cuda_options& options() const noexcept { return options_; }
  /// The stream on which all work is done.
  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_.get(); }

  /// Makes the GPU the current one of the calling thread. Call it before a kernel launch or a library call.
  void activate() const { check_cuda(cudaSetDevice(options_.device), "cudaSetDevice"); }

  /// Allocates memory on the GPU, aligned to 256 bytes, for later work on the stream. For 0 bytes it also returns a
  /// valid pointer.
  /// @throws device_error if there is not enough memory
  [[nodiscard]] void* allocate(std::size_t bytes) { return pool_.allocate(bytes == 0 ? 1 : bytes, stream()); }

  /// Frees memory after all earlier work; does not wait.
  void deallocate(void* pointer, std::size_t /*bytes*/) noexcept {
    // It fails if earlier work failed; the next call that can throw reports that.
    static_cast<void>(cudaFreeAsync(pointer, stream()));
  }

  /// The maximum of bytes allocated at one time; memory that libraries allocate themselves is not counted.
  [[nodiscard]] std::size_t peak_memory_bytes() const { return pool_.peak_bytes(); }

  /// Copies bytes within the memory of the GPU; does not wait.
  void copy(void* destination, const void* source, std::size_t bytes) {
    transfer(destination, source, bytes, cudaMemcpyDeviceToDevice);
  }
  /// Copies from host memory. From pinned memory it does not wait: do not change the source before the copy is done.
  /// Other memory may be changed when the call returns.
  void copy_from_host(void* destination, const void* source, std::size_t bytes) {
    transfer(destination, source, bytes, cudaMemcpyHostToDevice);
  }
  /// Copies to host memory; waits for the copy and all earlier work.
  void copy_to_host(void* destination, const void* source, std::size_t bytes) {
    copy_to_host_async(destination, source, bytes);
    synchronize();
  }
  /// Copies to pinned memory without waiting: the bytes are valid when all earlier work is done.
  void copy_to_host_async(void* destination, const void* source, std::size_t bytes) {
    transfer(destination, source, bytes, cudaMemcpyDeviceToHost);
  }
  /// Sets bytes to 0; does not wait.
  void fill_zero(void* destination, std::size_t bytes) {
    if (bytes != 0) {
      check_cuda(cudaMemsetAsync(destination, 0, bytes, stream()), "cudaMemsetAsync");
    }
  }

  /// Waits until all earlier work is done. @throws device_error if some of it failed
  void synchronize() { stream_.synchronize(); }

  /// An object that belongs to this stream and is kept as long as the device, such as the handle of cuBLAS. The first
  /// call makes it as Context{*this}.
  template <class Context>
  [[nodiscard]] Context& context() {
    for (const kept_context& kept : contexts_) {
      if (kept.type == &context_type<Context>) {
        return *static_cast<Context*>(kept.object.get());
      }
    }
    activate();
    contexts_.push_back({&context_type<Context>, {new Context{std::as_const(*this)}, [](void* object) {
                                                    delete static_cast<Context*>(object);
                                                  }}});
    return *static_cast<Context*>(contexts_.back().object.get());
  }

 private:
  template <class Context>
  static constexpr char context_type = 0;  // its address identifies the type
  struct kept_context {
    const char* type;
    std::unique_ptr<void, void (*)(void*)> object;
  };

  // Also makes the GPU the current one, for the stream that is created next.
  static cuda_options checked(const cuda_options& options) {
    int count = 0;
    check_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    if (options.device < 0 || options.device >= count) {
      raise<device_error>(
          "cuda", {"a device from 0 to ", count - 1}, {"device ", options.device},
          "nvidia-smi lists the GPUs, and CUDA_VISIBLE_DEVICES selects those that are visible to a process");
    }
    check_cuda(cudaSetDevice(options.device), "cudaSetDevice");
    return options;
  }

  void transfer(void* destination, const void* source, std::size_t bytes, cudaMemcpyKind kind) {
    if (bytes != 0) {
      check_cuda(cudaMemcpyAsync(destination, source, bytes, kind, stream()), "cudaMemcpyAsync");
    }
  }

  cuda_options options_;
  cuda_stream stream_;
  detail::cuda_memory_pool pool_;
  dynamic_array<kept_context> contexts_;
};
static_assert(device_policy<cuda>);

}  // namespace gradus
