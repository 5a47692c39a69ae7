// SPDX-License-Identifier: BSL-1.0
//
// A GPU of NVIDIA as a device: its memory, one stream, and the handles of libraries that work on it.
//
// It needs the CUDA runtime alone, and a C++ compiler; expressions on the device need nvcc, and
// gradus/tensor/cuda.cuh.
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

/// How a `cuda` device uses the card.
struct cuda_options {
  /// The card's number among those that the process sees (CUDA_VISIBLE_DEVICES).
  int device = 0;
  /// Free bytes of memory that are kept for reuse; what is above goes back to the card at the next synchronize().
  std::size_t release_threshold = std::numeric_limits<std::size_t>::max();
  /// Matrix products and convolutions of float round their factors to TF32 (10 bits after the point, tensor cores);
  /// sums stay float. Faster, and exact enough for most training.
  bool allow_tf32 = false;
  /// Convolutions use algorithms alone that give the same bits in every run.
  bool deterministic = true;
  /// The algorithms of convolutions are measured when a network is compiled; without it cuDNN's rules choose them.
  bool benchmark = true;
  /// Bytes that an algorithm of a convolution may use beside images and weights.
  std::size_t convolution_workspace = std::size_t{1} << 30U;
};

/// The number of CUDA devices that the process sees; 0 without a card or a driver.
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
/// All work of the device is done in order on its stream while the host goes on; copy_to_host and synchronize wait for
/// it. Memory comes from a pool of the device's own, and is taken and given back in stream order too. A device is used
/// by one thread at a time; several devices, on one card or on several, work at the same time. Errors of work that the
/// host did not wait for are thrown by a later call.
class cuda : public kernels::overload_set, public thrust_device {
 public:
  static constexpr std::string_view name = "cuda";
  static constexpr bool host_accessible = false;

  /// @throws device_error when there is no such card or no driver
  GRADUS_COLD explicit cuda(const cuda_options& options = {}, error_location where = error_location::current()) try
      : options_{checked(options)}, pool_{options_.device, options_.release_threshold} {
  } catch (error& failure) {
    failure.location_at_call(where);
  }
  /// @pre nothing uses `other`
  cuda(cuda&& other) noexcept = default;
  cuda& operator=(cuda&&) = delete;
  /// Waits for the work so far: it may use what contexts keep.
  GRADUS_COLD ~cuda() {
    if (stream() != nullptr) {
      static_cast<void>(cudaStreamSynchronize(stream()));
    }
  }

  /// The card's number.
  [[nodiscard]] int index() const noexcept { return options_.device; }
  [[nodiscard]] const cuda_options& options() const noexcept { return options_; }
  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_.get(); }

  /// Makes the card the current one of the calling thread: before a kernel is launched or a library is called.
  void activate() const { check_cuda(cudaSetDevice(options_.device), "cudaSetDevice"); }

  /// Memory on the card, aligned to 256 bytes, for work that comes later on the stream. For 0 bytes a valid pointer
  /// too.
  /// @throws device_error when there is not enough memory
  [[nodiscard]] void* allocate(std::size_t bytes) { return pool_.allocate(bytes == 0 ? 1 : bytes, stream()); }

  /// Gives memory back when the work so far is done; does not wait.
  void deallocate(void* pointer, std::size_t /*bytes*/) noexcept {
    // It fails when earlier work failed, which the next call that may throw reports.
    static_cast<void>(cudaFreeAsync(pointer, stream()));
  }

  /// The most bytes that allocate has given at one time; what libraries take for themselves is not counted.
  [[nodiscard]] std::size_t peak_memory_bytes() const { return pool_.peak_bytes(); }

  void copy(void* destination, const void* source, std::size_t bytes) {
    transfer(destination, source, bytes, cudaMemcpyDeviceToDevice);
  }
  /// From pinned memory it does not wait: keep the source as it is until the copy is done. Other memory may be changed
  /// when the call returns.
  void copy_from_host(void* destination, const void* source, std::size_t bytes) {
    transfer(destination, source, bytes, cudaMemcpyHostToDevice);
  }
  /// Waits for the copy, and so for all earlier work.
  void copy_to_host(void* destination, const void* source, std::size_t bytes) {
    copy_to_host_async(destination, source, bytes);
    synchronize();
  }
  /// To pinned memory, without a wait: the bytes are there when the work so far is done.
  void copy_to_host_async(void* destination, const void* source, std::size_t bytes) {
    transfer(destination, source, bytes, cudaMemcpyDeviceToHost);
  }
  void fill_zero(void* destination, std::size_t bytes) {
    if (bytes != 0) {
      check_cuda(cudaMemsetAsync(destination, 0, bytes, stream()), "cudaMemsetAsync");
    }
  }

  /// Returns when all work so far is done. @throws device_error when some of it failed
  void synchronize() { stream_.synchronize(); }

  /// What works on this stream and is kept as long as the device, such as the handle of cuBLAS: made by Context{*this}
  /// at the first call.
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
  static constexpr char context_type = 0;  // its address stands for the type
  struct kept_context {
    const char* type;
    std::unique_ptr<void, void (*)(void*)> object;
  };

  // Also makes the card the current one, for the stream that is created next.
  GRADUS_COLD static cuda_options checked(const cuda_options& options) {
    int count = 0;
    check_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    if (options.device < 0 || options.device >= count) {
      raise<device_error>("cuda", {"a device from 0 to ", count - 1}, {"device ", options.device},
                          "nvidia-smi lists the cards, and CUDA_VISIBLE_DEVICES says which of them a process sees");
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
