// SPDX-License-Identifier: BSL-1.0
//
// Memory that copies of an expression share: temporaries, and tensors that were moved into it.
#pragma once

#include <array>     // std::array
#include <atomic>    // std::atomic
#include <concepts>  // std::same_as
#include <cstddef>   // std::size_t
#include <memory>    // std::construct_at, std::destroy_at
#include <new>       // operator new
#include <utility>   // std::exchange, std::swap

#include "gradus/core/config.hpp"
#include "gradus/device/cpu.hpp"

namespace gradus::detail {

/// A cache of small blocks of host memory for each thread: temporaries of small expressions then need no call of the
/// allocator.
class block_cache {
 public:
  static constexpr std::size_t block_bytes = 4096 + 64;  // a small temporary and the header of its buffer
  static constexpr std::size_t alignment = 64;

  [[nodiscard]] static void* take() {
    state& cache = mine();
    if (cache.count > 0) {
      return cache.blocks[static_cast<std::size_t>(--cache.count)];
    }
    return ::operator new (block_bytes, std::align_val_t{alignment});
  }

  static void give(void* block) noexcept {
    thread_local const cleaner at_exit;
    state& cache = mine();
    if (cache.closed || cache.count == static_cast<int>(cache.blocks.size())) {
      ::operator delete (block, std::align_val_t{alignment});
    } else {
      cache.blocks[static_cast<std::size_t>(cache.count++)] = block;
    }
  }

 private:
  // Has no destructor, so that it can be used while a thread ends.
  struct state {
    std::array<void*, 16> blocks;
    int count;
    bool closed;
  };
  struct cleaner {
    cleaner() noexcept = default;
    cleaner(const cleaner&) = delete;
    cleaner& operator=(const cleaner&) = delete;
    ~cleaner() {
      state& cache = mine();
      while (cache.count > 0) {
        ::operator delete (cache.blocks[static_cast<std::size_t>(--cache.count)], std::align_val_t{alignment});
      }
      cache.closed = true;
    }
  };
  static state& mine() noexcept {
    thread_local constinit state cache{};
    return cache;
  }
};

/// A counted reference to device memory; the last owner frees it. Empty for memory of another owner.
template <class Device>
class shared_buffer {
 public:
  shared_buffer() noexcept = default;

  /// Allocates memory, not initialized. @throws device_error when there is not enough
  shared_buffer(Device& device, std::size_t bytes) {
    if constexpr (std::same_as<Device, cpu>) {
      if (bytes <= block_cache::block_bytes - block_cache::alignment) {
        void* const block = block_cache::take();
        head_ = std::construct_at(static_cast<head*>(block), &device,
                                  static_cast<void*>(static_cast<char*>(block) + block_cache::alignment), bytes, true);
        return;
      }
    }
    void* const data = device.allocate(bytes);
    adopt(device, data, bytes);
  }

  /// Takes ownership of memory from device.allocate.
  shared_buffer(Device& device, void* data, std::size_t bytes) { adopt(device, data, bytes); }

  shared_buffer(const shared_buffer& other) noexcept : head_{other.head_} {
    if (head_ != nullptr) {
      head_->owners.fetch_add(1, std::memory_order_relaxed);
    }
  }
  shared_buffer(shared_buffer&& other) noexcept : head_{std::exchange(other.head_, nullptr)} {}
  shared_buffer& operator=(shared_buffer other) noexcept {
    std::swap(head_, other.head_);
    return *this;
  }
  ~shared_buffer() {
    if (head_ != nullptr && head_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      release(head_);
    }
  }

  [[nodiscard]] void* data() const noexcept { return head_ == nullptr ? nullptr : head_->data; }

 private:
  struct head {
    head(Device* owner, void* memory, std::size_t count, bool in_block) noexcept
        : device{owner}, data{memory}, bytes{count}, cached{in_block} {}
    std::atomic<int> owners{1};
    Device* device;
    void* data;
    std::size_t bytes;
    bool cached;  // the header is in a cached block, in front of the data
  };
  static_assert(sizeof(head) <= block_cache::alignment);

  /// Frees what has no owner left. Out of line: GCC takes the count of another owner for a use of freed memory
  /// (-Wuse-after-free) where it sees both.
  GRADUS_NEVER_INLINE static void release(head* last) noexcept {
    if (last->cached) {
      std::destroy_at(last);
      block_cache::give(last);
    } else {
      last->device->deallocate(last->data, last->bytes);
      delete last;
    }
  }

  void adopt(Device& device, void* data, std::size_t bytes) {
    try {
      head_ = new head{&device, data, bytes, false};
    } catch (...) {
      device.deallocate(data, bytes);
      throw;
    }
  }

  head* head_ = nullptr;
};

}  // namespace gradus::detail
