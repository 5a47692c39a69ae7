// SPDX-License-Identifier: BSL-1.0
//
// The CPU as a device: host memory and a pool of threads.
#pragma once

#include <algorithm>    // std::max, std::min
#include <cstddef>      // std::size_t
#include <cstdlib>      // std::aligned_alloc, std::free
#include <cstring>      // std::memcpy, std::memset
#include <memory>       // std::unique_ptr
#include <string_view>  // std::string_view

#if defined(__linux__)
#include <sys/mman.h>  // madvise
#endif

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/device/processor_share.hpp"
#include "gradus/device/thread_pool.hpp"

namespace gradus {

/// How a `cpu` device uses the machine.
struct cpu_options {
  /// Threads for each of `inter_op_threads` operations that run at the same time. 0: the available processors divided
  /// by the ranks of this machine (processors_of_rank) and by inter_op_threads, at least 1.
  int intra_op_threads = 0;
  /// Independent operations of a network that run at the same time, such as the branches of an Inception module, if the
  /// network is compiled with nn::compile_options::parallel_branches. An operation that runs alone uses all
  /// intra_op_threads * inter_op_threads threads, the caller included.
  int inter_op_threads = 1;
  /// Bind each worker to one processor of the process's affinity mask; workers of streams are not bound.
  bool pin_threads = false;
  /// Denormal numbers, those below 1.2e-38 in float, are 0 as operands and as results, on all threads of the device and
  /// in all of its kernels. Steps that meet many of them are then several times as fast on some processors. The results
  /// are other bits than without, but the same for any number of threads. All ranks of a training need the same value.
  bool flush_denormals = false;
};

/// The processors and the memory of the host as a device.
///
/// Operations on one device run one after another; in a threaded program, give each rank its own device. With
/// inter_op_threads above 1 the device has streams: devices of intra_op_threads threads each, on which operations run
/// at the same time. The results of each operation are the same bits for any number of threads.
///
/// The work of the device rounds to nearest and treats denormal numbers as cpu_options::flush_denormals says, on its
/// threads and on the calling one, whatever the caller has set for its own arithmetic, which has that back afterwards.
class cpu : public kernels::overload_set {
 public:
  /// The name of the device in messages.
  static constexpr std::string_view name = "cpu";
  static constexpr std::size_t alignment = 64;  ///< alignment of memory in bytes: a cache line, an AVX-512 register

  /// @throws configuration_error if a number of threads, or their product, is outside [0, 4096], or the processor
  /// cannot
  ///         flush denormals (can_flush_denormals)
  GRADUS_COLD explicit cpu(cpu_options options = {}, error_location where = error_location::current()) try
      : pool_{std::make_unique<detail::thread_pool>(checked_threads(options), options.pin_threads,
                                                    options.flush_denormals)},
        flush_denormals_{options.flush_denormals} {
    for (int stream = 0; options.inter_op_threads > 1 && stream < options.inter_op_threads; ++stream) {
      streams_.push_back(
          cpu{{.intra_op_threads = threads() / options.inter_op_threads, .flush_denormals = options.flush_denormals}});
    }
  } catch (error& failure) {
    failure.location_at_call(where);
  }

  /// Threads that an operation uses when it runs alone, the caller included.
  [[nodiscard]] int threads() const { return pool().threads(); }

  /// Whether denormal numbers are 0: cpu_options::flush_denormals.
  [[nodiscard]] bool flush_denormals() const noexcept { return flush_denormals_; }

  /// Allocates memory aligned to `alignment` bytes. Large memory is on huge pages if the system provides them. For 0
  /// bytes it also returns a valid pointer.
  /// @throws device_error if there is not enough memory
  [[nodiscard]] void* allocate(std::size_t bytes) {
    const bool large = bytes >= huge_page;
    const std::size_t unit = large ? huge_page : alignment;
    const std::size_t rounded = bytes == 0 ? unit : (bytes + unit - 1) / unit * unit;
    void* pointer = rounded < bytes ? nullptr : std::aligned_alloc(unit, rounded);
    if (pointer == nullptr) {
      raise<device_error>("cpu.allocate", {bytes, " bytes of memory"}, "an allocation that failed",
                          "use a smaller batch or a smaller network");
    }
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (large) {
      madvise(pointer, rounded, MADV_HUGEPAGE);  // only a hint: without huge pages the memory is valid too
    }
#endif
    return pointer;
  }

  /// Frees memory of allocate.
  void deallocate(void* pointer, std::size_t /*bytes*/) noexcept {
    std::free(pointer);
  }

  /// Copies bytes within the memory of the host.
  void copy(void* destination, const void* source, std::size_t bytes) {
    if (bytes != 0) {
      std::memcpy(destination, source, bytes);
    }
  }
  /// The same as copy.
  void copy_from_host(void* destination, const void* source, std::size_t bytes) {
    copy(destination, source, bytes);
  }
  /// The same as copy.
  void copy_to_host(void* destination, const void* source, std::size_t bytes) {
    copy(destination, source, bytes);
  }
  /// Sets bytes to 0.
  void fill_zero(void* destination, std::size_t bytes) {
    if (bytes != 0) {
      std::memset(destination, 0, bytes);
    }
  }
  /// Does nothing: operations are done when they return.
  void synchronize() noexcept {}

  /// Number of operations that may run at the same time: cpu_options::inter_op_threads.
  [[nodiscard]] int streams() const noexcept {
    return streams_.empty() ? 1 : static_cast<int>(streams_.size());
  }

  /// The device on which a stream runs its operations. @pre streams() > 1, 0 <= index < streams()
  [[nodiscard]] cpu& stream(std::size_t index) noexcept {
    return streams_[index];
  }

  /// Calls task(i) once for each stream i, at the same time if enough threads are free. The task may use stream(i).
  /// @throws the first exception of a task
  template <class Task>
  void parallel_streams(const Task& task) {
    pool().run(streams(), task);
  }

  /// Calls task(i) once for each i in [0, count), on all threads. Tasks must be independent of each other.
  /// @throws the first exception of a task
  template <class Task>
  void parallel_tasks(index_t count, const Task& task) {
    pool().run(count, task);
  }

  /// Calls body(begin, end) on consecutive ranges of [0, count) with `grain` indices each (the last may be shorter), on
  /// all threads. The ranges do not depend on the number of threads.
  /// @pre grain > 0
  template <class Body>
  void parallel_for(index_t count, index_t grain, const Body& body) {
    const index_t pieces = (count + grain - 1) / grain;
    if (pieces <= 1) {
      if (count > 0) {
        const floating_point_scope arithmetic{flush_denormals_};
        body(index_t{0}, count);
      }
      return;
    }
    auto task = [&](index_t piece) { body(piece * grain, std::min(count, (piece + 1) * grain)); };
    pool().run(pieces, task);
  }

 private:
  static constexpr std::size_t huge_page = std::size_t{2} << 20U;  // bytes

  static int checked_threads(const cpu_options& options);

  [[nodiscard]] detail::thread_pool& pool() const {
    if (pool_ == nullptr) {
      raise_moved_from();
    }
    return *pool_;
  }
  [[noreturn]] static void raise_moved_from() {
    raise<device_error>("cpu", "a device", "a device that was moved from", "use the device that it was moved to");
  }

  std::unique_ptr<detail::thread_pool> pool_;
  bool flush_denormals_;
  dynamic_array<cpu> streams_;  // empty if operations run one after another
};
static_assert(device_policy<cpu>);

}  // namespace gradus

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus {

GRADUS_INLINE int cpu::checked_threads(const cpu_options& options) {
  const int threads = options.intra_op_threads;
  const int streams = options.inter_op_threads;
  if (options.flush_denormals && !can_flush_denormals) {
    raise<configuration_error>("cpu", "flush_denormals = false on this processor", "flush_denormals = true",
                               "x86-64 and AArch64 can flush denormals; gradus::can_flush_denormals says it");
  }
  if (threads < 0 || threads > 4096) {
    raise<configuration_error>("cpu", "0 (the processors of the rank) to 4096 intra_op_threads", {threads});
  }
  if (streams < 1 || streams > 4096 || streams * std::max(threads, 1) > 4096) {
    raise<configuration_error>("cpu", "1 or more inter_op_threads, of at most 4096 threads in all", {streams});
  }
  return streams * (threads == 0 ? std::max(1, processors_of_rank() / streams) : threads);
}

}  // namespace gradus
#endif
