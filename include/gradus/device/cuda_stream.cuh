// SPDX-License-Identifier: BSL-1.0
//
// CUDA streams and events as objects.
#pragma once

#include <cuda_runtime_api.h>  // cudaStream_t, cudaEvent_t

#include <memory>       // std::unique_ptr
#include <type_traits>  // std::remove_pointer_t

#include "gradus/device/cuda_error.cuh"

namespace gradus {

class cuda_event;

/// A queue of work on CUDA's current device, done in order. It does not wait for the legacy default stream.
class cuda_stream {
 public:
  /// @throws device_error if CUDA cannot create a stream
  cuda_stream() {
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    stream_.reset(stream);
  }

  /// The handle of the stream.
  [[nodiscard]] cudaStream_t get() const noexcept { return stream_.get(); }

  /// Waits until all earlier work is done. @throws device_error if some of it failed
  void synchronize() const { check_cuda(cudaStreamSynchronize(get()), "cudaStreamSynchronize"); }

  /// Later work of this stream waits for the event. The host does not wait.
  void wait(const cuda_event& event) const;

 private:
  struct destroy {
    void operator()(cudaStream_t stream) const noexcept { static_cast<void>(cudaStreamDestroy(stream)); }
  };
  std::unique_ptr<std::remove_pointer_t<cudaStream_t>, destroy> stream_;
};

/// A point in a stream, reached when all work before it is done.
class cuda_event {
 public:
  /// @param timing  true if seconds_since will be called; events are cheaper without timing
  /// @throws device_error if CUDA cannot create an event
  explicit cuda_event(bool timing = false) {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming),
               "cudaEventCreateWithFlags");
    event_.reset(event);
  }

  /// The handle of the event.
  [[nodiscard]] cudaEvent_t get() const noexcept { return event_.get(); }

  /// Records the event after all current work of the stream.
  void record(cudaStream_t stream) const { check_cuda(cudaEventRecord(get(), stream), "cudaEventRecord"); }

  /// Waits until the event is reached; returns at once if it was not recorded.
  void synchronize() const { check_cuda(cudaEventSynchronize(get()), "cudaEventSynchronize"); }

  /// Seconds between two events that are reached, to about half a microsecond. @pre both were made with timing
  [[nodiscard]] double seconds_since(const cuda_event& begin) const {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin.get(), get()), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  struct destroy {
    void operator()(cudaEvent_t event) const noexcept { static_cast<void>(cudaEventDestroy(event)); }
  };
  std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, destroy> event_;
};

inline void cuda_stream::wait(const cuda_event& event) const {
  check_cuda(cudaStreamWaitEvent(get(), event.get(), 0), "cudaStreamWaitEvent");
}

}  // namespace gradus
