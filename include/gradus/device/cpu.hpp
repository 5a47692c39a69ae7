// SPDX-License-Identifier: BSL-1.0
//
// The CPU as a device: host memory and a pool of threads.
// Module: device. Depends on: core.
#pragma once

#include <algorithm>    // std::min
#include <cstddef>      // std::size_t
#include <cstdlib>      // std::aligned_alloc, std::free
#include <cstring>      // std::memcpy, std::memset
#include <memory>       // std::unique_ptr
#include <string_view>  // std::string_view

#if defined(__linux__)
#include <sys/mman.h>  // madvise
#endif

#include "gradus/core/error.hpp"            // configuration_error, device_error
#include "gradus/core/index.hpp"            // index_t
#include "gradus/device/device_policy.hpp"  // device_policy
#include "gradus/device/thread_pool.hpp"    // detail::thread_pool, available_processors

namespace gradus {

/// How a `cpu` device uses the machine.
struct cpu_options {
  int intra_op_threads = 0;  ///< threads that share one operation, the caller included; 0: all available processors
  bool pin_threads = false;  ///< bind each worker to one processor of the process's affinity mask
};

/// The processors and the memory of the host.
///
/// Operations on one device run one after another; give every rank of a threaded program a device of its own. The
/// results of every operation are the same bits for any number of threads.
class cpu : public kernels::overload_set {
 public:
  static constexpr std::string_view name = "cpu";
  static constexpr std::size_t alignment = 64;  // bytes: a cache line, an AVX-512 register

  /// @throws configuration_error when the number of threads is negative or above 4096
  explicit cpu(cpu_options options = {})
      : pool_{std::make_unique<detail::thread_pool>(checked_threads(options.intra_op_threads), options.pin_threads)} {}

  /// Threads that share one operation, the caller included.
  [[nodiscard]] int threads() const noexcept { return pool_->threads(); }

  /// Memory aligned to `alignment` bytes, on huge pages where it is large and the system gives them. For 0 bytes a
  /// valid pointer too.
  /// @throws device_error when there is not enough memory
  [[nodiscard]] void* allocate(std::size_t bytes) {
    const bool large = bytes >= huge_page;
    const std::size_t unit = large ? huge_page : alignment;
    const std::size_t rounded = bytes == 0 ? unit : (bytes + unit - 1) / unit * unit;
    void* pointer = rounded < bytes ? nullptr : std::aligned_alloc(unit, rounded);
    if (pointer == nullptr) {
      throw device_error{"cpu.allocate",
                         {bytes, " bytes of memory"},
                         "an allocation that failed",
                         "use a smaller batch or a smaller network"};
    }
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (large) {
      madvise(pointer, rounded, MADV_HUGEPAGE);  // advice: the memory is right without it
    }
#endif
    return pointer;
  }

  void deallocate(void* pointer, std::size_t /*bytes*/) noexcept {
    std::free(pointer);
  }

  void copy(void* destination, const void* source, std::size_t bytes) {
    if (bytes != 0) {
      std::memcpy(destination, source, bytes);
    }
  }
  void copy_from_host(void* destination, const void* source, std::size_t bytes) {
    copy(destination, source, bytes);
  }
  void copy_to_host(void* destination, const void* source, std::size_t bytes) {
    copy(destination, source, bytes);
  }
  void fill_zero(void* destination, std::size_t bytes) {
    if (bytes != 0) {
      std::memset(destination, 0, bytes);
    }
  }
  void synchronize() noexcept {}

  /// Calls task(i) once for every i in [0, count), on all threads; tasks must be independent of each other.
  /// @throws the first exception that a task threw
  template <class Task>
  void parallel_tasks(index_t count, const Task& task) {
    pool_->run(count, task);
  }

  /// Calls body(begin, end) on consecutive pieces of [0, count) of `grain` indices (the last may be shorter), on all
  /// threads. The pieces do not depend on the number of threads.
  /// @pre grain > 0
  template <class Body>
  void parallel_for(index_t count, index_t grain, const Body& body) {
    const index_t pieces = (count + grain - 1) / grain;
    if (pieces <= 1) {
      if (count > 0) {
        body(index_t{0}, count);
      }
      return;
    }
    auto task = [&](index_t piece) { body(piece * grain, std::min(count, (piece + 1) * grain)); };
    pool_->run(pieces, task);
  }

 private:
  static constexpr std::size_t huge_page = std::size_t{2} << 20U;  // bytes

  static int checked_threads(int threads) {
    if (threads < 0 || threads > 4096) {
      throw configuration_error{"cpu", "0 (all processors) to 4096 intra_op_threads", {threads}};
    }
    return threads == 0 ? available_processors() : threads;
  }

  std::unique_ptr<detail::thread_pool> pool_;
};
static_assert(device_policy<cpu>);

}  // namespace gradus
