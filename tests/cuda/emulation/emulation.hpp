// SPDX-License-Identifier: BSL-1.0
//
// The programs that need a GPU, compiled by the C++ compiler: what nvcc gives kernels, for kernels that the host runs.
// Included before everything else (-include). See README.md in this folder.
#pragma once

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <functional>

#undef __shared__
#define __shared__ static thread_local  // one block runs at a time

namespace emulation {

/// The thread of the grid that the host runs now.
struct grid_position {
  uint3 thread;
  uint3 block;
  dim3 block_extents;
  dim3 grid_extents;
};
inline thread_local grid_position here;

/// Waits for the other threads of the block. Returns whether a thread gave a number that is not 0.
/// Ends the program when a thread of the block ends without it.
int barrier(int number);

/// Puts a kernel into the stream: `thread` is called for every thread of the grid.
void launch(cudaStream_t stream, dim3 blocks, dim3 threads, std::function<void()> thread);

/// Puts other work of the device into the stream.
void enqueue(cudaStream_t stream, std::function<void()> work);

/// The same for work that waits for other ranks: it is called until it returns true.
void enqueue_waiting(cudaStream_t stream, std::function<bool()> work);

}  // namespace emulation

#define threadIdx (::emulation::here.thread)
#define blockIdx (::emulation::here.block)
#define blockDim (::emulation::here.block_extents)
#define gridDim (::emulation::here.grid_extents)

inline void __syncthreads() {
  static_cast<void>(emulation::barrier(0));
}
inline int __syncthreads_or(int number) {
  return emulation::barrier(number);
}
inline void __threadfence_system() {}
