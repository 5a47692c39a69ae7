// SPDX-License-Identifier: BSL-1.0
//
// CUDA graphs: work of a device that is captured once and launched many times.
#pragma once

#include <cuda_runtime_api.h>  // cudaGraph_t, cudaStreamBeginCapture

#include <cstddef>      // std::size_t
#include <memory>       // std::unique_ptr
#include <type_traits>  // std::remove_pointer_t

#include "gradus/core/error.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/device/cuda_error.cuh"

namespace gradus {

/// A sequence of work as a CUDA graph: one launch costs the host some microseconds, whatever it contains.
///
/// Kernels run with the arguments of the capture, so memory must keep its address. Work that waits for the device, or
/// allocates memory outside of stream order, cannot be captured: run it once before, so that its memory exists already.
class cuda_graph {
 public:
  /// Captures the work that work() submits to the device, without running it.
  /// @throws device_error if it cannot be captured; any exception of work()
  template <class Work>
  cuda_graph(cuda& device, const Work& work) : device_{&device} {
    device.activate();
    check_cuda(cudaStreamBeginCapture(device.stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    try {
      work();
    } catch (...) {
      cudaGraph_t unfinished = nullptr;
      static_cast<void>(cudaStreamEndCapture(device.stream(), &unfinished));
      static_cast<void>(cudaGraphDestroy(unfinished));
      static_cast<void>(cudaGetLastError());
      throw;
    }
    cudaGraph_t recorded = nullptr;
    check_cuda(cudaStreamEndCapture(device.stream(), &recorded), "cudaStreamEndCapture");
    const std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, destroy_graph> owner{recorded};
    check_cuda(cudaGraphGetNodes(recorded, nullptr, &nodes_), "cudaGraphGetNodes");
    cudaGraphExec_t ready = nullptr;
    check_cuda(cudaGraphInstantiate(&ready, recorded, 0), "cudaGraphInstantiate");
    executable_.reset(ready);
    check_cuda(cudaGraphUpload(ready, device.stream()), "cudaGraphUpload");
  }

  /// Number of nodes of the graph: kernels, copies and others.
  [[nodiscard]] std::size_t nodes() const noexcept { return nodes_; }

  /// Runs the graph once more on the device; does not wait.
  void launch() const {
    device_->activate();
    check_cuda(cudaGraphLaunch(executable_.get(), device_->stream()), "cudaGraphLaunch");
  }

 private:
  struct destroy_graph {
    void operator()(cudaGraph_t graph) const noexcept { static_cast<void>(cudaGraphDestroy(graph)); }
  };
  struct destroy_executable {
    void operator()(cudaGraphExec_t graph) const noexcept { static_cast<void>(cudaGraphExecDestroy(graph)); }
  };

  cuda* device_;
  std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, destroy_executable> executable_;
  std::size_t nodes_ = 0;
};

}  // namespace gradus
