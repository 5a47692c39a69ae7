// SPDX-License-Identifier: BSL-1.0
//
// Places arrays of the MPI ranks of a node into memory that all of them can access.
#pragma once

#include <mpi.h>
#if defined(__linux__)
#include <sys/mman.h>     // madvise, mmap, munmap
#include <sys/syscall.h>  // SYS_mremap
#include <unistd.h>       // syscall
#endif

#include <algorithm>    // std::max, std::min
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::int64_t, std::uint64_t, std::uintptr_t
#include <cstring>      // std::memcpy
#include <functional>   // std::less
#include <memory>       // std::make_shared, std::shared_ptr, std::weak_ptr
#include <mutex>        // std::mutex, std::scoped_lock
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/comm/detail/mpi/blocking_calls.hpp"
#include "gradus/comm/detail/mpi/check.hpp"
#include "gradus/comm/detail/mpi_shared/memory.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"

namespace gradus::comm::detail {

/// Maps new private pages; null if there is not enough memory or the system has no such calls.
/// @param at     whole pages that they replace; null for any address
[[nodiscard]] inline std::byte* own_pages(std::byte* at, std::size_t bytes) noexcept {
#if defined(__linux__)
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at == nullptr ? 0 : MAP_FIXED);
  void* const pages = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (pages == MAP_FAILED) {
    return nullptr;
  }
  madvise(pages, bytes, MADV_HUGEPAGE);  // as gradus::cpu does; only a hint
  return static_cast<std::byte*>(pages);
#else
  static_cast<void>(at);
  static_cast<void>(bytes);
  return nullptr;
#endif
}

/// Maps the shared pages at `from` a second time; null if the system cannot.
[[nodiscard]] inline std::byte* same_pages(std::byte* from, std::size_t bytes) noexcept {
#if defined(__linux__)
  void* const pages = mremap(from, 0, bytes, MREMAP_MAYMOVE);
  return pages == MAP_FAILED ? nullptr : static_cast<std::byte*>(pages);
#else
  static_cast<void>(from);
  static_cast<void>(bytes);
  return nullptr;
#endif
}

enum class pages_moved { pages, contents, nothing };

/// Moves whole pages from addresses that are given up to the addresses of others with the same contents. If there is
/// not enough memory for that, only the contents are at the new addresses, in private pages, or nothing has changed.
[[nodiscard]] inline pages_moved move_pages(std::byte* from, std::byte* to, std::size_t bytes) noexcept {
#if defined(__linux__)
  // Call mmap first, then mremap by its system-call number: MPI libraries replace the C library's functions to track
  // unmapped memory, and the replacement in UCX 1.13 loses the address.
  pages_moved result = pages_moved::nothing;
  if (own_pages(to, bytes) != nullptr) {
    if (syscall(SYS_mremap, from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != -1) {
      return pages_moved::pages;
    }
    std::memcpy(to, from, bytes);
    result = pages_moved::contents;
  }
  munmap(from, bytes);
  return result;
#else
  static_cast<void>(from);
  static_cast<void>(to);
  static_cast<void>(bytes);
  return pages_moved::nothing;
#endif
}

/// Replaces whole pages of this process by the pages of `shared`, which get their contents: later writes are visible in
/// both. False if the system cannot; then nothing has changed.
[[nodiscard]] inline bool show_shared_pages(std::byte* begin, std::byte* shared, std::size_t bytes) noexcept {
  std::byte* const second = same_pages(shared, bytes);
  if (second == nullptr) {
    return false;
  }
  std::memcpy(shared, begin, bytes);
  return move_pages(second, begin, bytes) == pages_moved::pages;
}

/// A hint that this process will write to the pages, so that it does not fault on each of them.
inline void populate_pages(std::byte* begin, std::size_t bytes) noexcept {
#if defined(__linux__) && defined(MADV_POPULATE_WRITE)
  madvise(begin, bytes, MADV_POPULATE_WRITE);
#else
  static_cast<void>(begin);
  static_cast<void>(bytes);
#endif
}

class mpi_registered_memory;

/// The arrays of this process that are in registered memory. Pages can be replaced only once, so registering an array
/// again returns the memory that contains it.
class registered_arrays {
 public:
  static const std::shared_ptr<registered_arrays>& of_process() {
    static const auto all = std::make_shared<registered_arrays>();
    return all;
  }

  /// What is known about an array before it is registered.
  struct finding {
    std::int64_t number = none;  ///< number of its registered memory, which all ranks of the communicator share
    std::int64_t next = 0;       ///< a number that is not used yet
    std::shared_ptr<mpi_registered_memory> memory;
  };
  static constexpr std::int64_t none = 0;
  static constexpr std::int64_t others = -1;  ///< ranks other than those of the communicator share some of its pages

  /// @param pool  the pool of the communicator and its duplicates
  [[nodiscard]] finding find(const std::byte* begin, index_t bytes, const mpi_shared_pool* pool) const {
    const std::scoped_lock lock{mutex_};
    finding found;
    found.next = next_;
    for (const entry& each : entries_) {
      if (std::less{}(each.begin, begin + bytes) && std::less{}(begin, each.begin + each.bytes)) {
        found.memory = each.memory.lock();
        const bool same = each.begin == begin && each.bytes == bytes && each.pool == pool && found.memory != nullptr;
        found.number = same ? each.number : others;
        break;
      }
    }
    return found;
  }

  /// @param number  unused on all ranks
  void add(const std::byte* begin, index_t bytes, const mpi_shared_pool* pool, std::int64_t number,
           const std::shared_ptr<mpi_registered_memory>& memory) {
    const std::scoped_lock lock{mutex_};
    next_ = number + 1;
    entries_.push_back({begin, bytes, pool, number, memory});
  }

  /// The array has private pages again.
  void remove(std::int64_t number, const mpi_shared_pool* pool) noexcept {
    const std::scoped_lock lock{mutex_};
    for (entry& each : entries_) {
      if (each.number == number && each.pool == pool) {
        each = std::move(entries_.back());
        entries_.pop_back();
        return;
      }
    }
  }

 private:
  struct entry {
    const std::byte* begin;
    index_t bytes;
    const mpi_shared_pool* pool;
    std::int64_t number;
    std::weak_ptr<mpi_registered_memory> memory;
  };

  mutable std::mutex mutex_;
  std::int64_t next_ = 1;
  dynamic_array<entry> entries_;
};

/// Memory of a rank with shared whole pages; all ranks have the same size. The part [first, last), in bytes from its
/// begin, is shared on all ranks: all except less than a page at each end. The destructor makes the memory private
/// again, with its contents.
class mpi_registered_memory {
 public:
  /// Called by all ranks with the same size. Null on all ranks if the system cannot share the memory, if there is not
  /// enough shared memory, if no page is whole on all ranks, or for a part of an array that is registered, here or by
  /// other ranks.
  [[nodiscard]] static std::shared_ptr<mpi_registered_memory> of(MPI_Comm ranks, int rank,
                                                                 const std::shared_ptr<mpi_shared_pool>& pool,
                                                                 std::byte* begin, index_t bytes,
                                                                 const mpi_blocking_calls& call) {
    const std::shared_ptr<registered_arrays>& arrays = registered_arrays::of_process();
    registered_arrays::finding known = arrays->find(begin, bytes, pool.get());
    // The offset of the memory in its page may differ between ranks.
    const registration own{known.number, known.next, static_cast<std::int64_t>(address(begin) % page_bytes())};
    int size = 1;
    MPI_Comm_size(ranks, &size);
    const dynamic_array<registration> registrations = call([ranks, size, own] {
      dynamic_array<registration> all(static_cast<std::size_t>(size));
      check_mpi(MPI_Allgather(&own, 3, MPI_INT64_T, all.data(), 3, MPI_INT64_T, ranks), what, "MPI_Allgather");
      return all;
    });
    std::int64_t number = known.next;
    bool known_to_none = true;
    bool known_to_all = own.number > 0;
    for (const registration& each : registrations) {
      number = std::max(number, each.next);
      known_to_none = known_to_none && each.number == registered_arrays::none;
      known_to_all = known_to_all && each.number == own.number;
    }
    if (known_to_all) {
      return std::move(known.memory);
    }
    if (!known_to_none) {
      return nullptr;
    }
    auto memory = std::make_shared<mpi_registered_memory>(rank, pool, number, begin, bytes);
    if (!memory->share(ranks, registrations, call)) {
      return nullptr;
    }
    arrays->add(begin, bytes, pool.get(), number, memory);
    return memory;
  }

  /// Memory that is not shared yet; for `of`.
  mpi_registered_memory(int rank, std::shared_ptr<mpi_shared_pool> pool, std::int64_t number, std::byte* begin,
                        index_t bytes)
      : rank_{rank}, number_{number}, begin_{begin}, bytes_{bytes}, pool_{std::move(pool)} {}

  mpi_registered_memory(const mpi_registered_memory&) = delete;
  mpi_registered_memory& operator=(const mpi_registered_memory&) = delete;
  ~mpi_registered_memory() {
    if (unshare()) {
      arrays_->remove(number_, pool_.get());
    }
  }

  /// The number of the memory, the same on all ranks.
  [[nodiscard]] std::uint64_t number() const noexcept { return static_cast<std::uint64_t>(number_); }
  /// First byte of the part that all ranks share.
  [[nodiscard]] index_t first() const noexcept { return shared_.first; }
  [[nodiscard]] index_t last() const noexcept { return shared_.last; }
  /// The address that the begin of a rank's memory would have in the shared pages.
  [[nodiscard]] std::byte* origin(int rank) const noexcept { return origins_[static_cast<std::size_t>(rank)]; }
  /// The offset of `data` in this memory, or a negative number if it is not completely in its shared part.
  [[nodiscard]] index_t offset_of(const std::byte* data, index_t bytes) const noexcept {
    const auto offset = static_cast<index_t>(address(data) - address(begin_));
    const bool inside = offset >= 0 && offset + bytes <= bytes_;
    return inside && offset < shared_.last && offset + bytes > shared_.first ? offset : -1;
  }

 private:
  static constexpr std::string_view what = "comm::mpi_shared.register_memory";

  /// What a rank sends to the others about its memory.
  struct registration {
    std::int64_t number = 0;  // see registered_arrays::finding
    std::int64_t next = 0;
    std::int64_t shift = 0;  // offset in its page, in bytes
  };

  struct interval {
    index_t first = 0;
    index_t last = 0;

    [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(last - first); }
  };

  static std::uintptr_t address(const std::byte* at) noexcept { return reinterpret_cast<std::uintptr_t>(at); }

  /// The whole pages of memory with the offset `shift` in its page.
  [[nodiscard]] interval whole_pages(index_t shift) const noexcept {
    const auto page = static_cast<index_t>(page_bytes());
    return {(shift + page - 1) / page * page - shift, (shift + bytes_) / page * page - shift};
  }

  /// Called by all ranks. False on all of them if sharing is not possible.
  bool share(MPI_Comm ranks, const dynamic_array<registration>& registrations, const mpi_blocking_calls& call) {
    const index_t shift = registrations[static_cast<std::size_t>(rank_)].shift;
    own_ = whole_pages(shift);
    interval common = own_;
    for (const registration& each : registrations) {
      common.first = std::max(common.first, whole_pages(each.shift).first);
      common.last = std::min(common.last, whole_pages(each.shift).last);
    }
    if (common.first >= common.last) {
      return false;
    }
    memory_ =
        call([ranks, bytes = static_cast<std::size_t>(bytes_) + page_bytes(), pool = pool_]() -> mpi_shared_memory* {
          try {
            return &pool->take(ranks, bytes);
          } catch (const communication_error&) {
            return nullptr;  // no such window: handled like a lack of memory
          }
        });
    shown_ = memory_ != nullptr &&
             show_shared_pages(begin_ + own_.first, memory_->of(rank_) + shift + own_.first, own_.size());
    const bool all = call([ranks, shown = shown_ ? 1 : 0]() mutable {
      check_mpi(MPI_Allreduce(MPI_IN_PLACE, &shown, 1, MPI_INT, MPI_MIN, ranks), what, "MPI_Allreduce");
      return shown != 0;
    });
    if (!all) {
      return false;
    }
    shared_ = common;
    populate_pages(begin_ + own_.first, own_.size());
    for (std::size_t other = 0; other < registrations.size(); ++other) {
      const index_t from = registrations[other].shift;
      origins_.push_back(memory_->of(static_cast<int>(other)) + from);
      if (static_cast<int>(other) != rank_) {
        const interval pages = whole_pages(from);
        populate_pages(origins_.back() + pages.first, pages.size());
      }
    }
    return true;
  }

  /// Makes the memory private to this rank again, with its contents. False if there is not enough memory for that.
  bool unshare() noexcept {
    if (memory_ == nullptr) {
      return true;
    }
    if (shown_) {
      // Copy from the pages themselves: MPI may be finalized, and its window freed.
      std::byte* const pages = begin_ + own_.first;
      std::byte* const own = own_pages(nullptr, own_.size());
      if (own == nullptr) {
        return false;  // they stay shared and use shared memory
      }
      std::memcpy(own, pages, own_.size());
      if (move_pages(own, pages, own_.size()) == pages_moved::nothing) {
        return false;
      }
    }
    pool_->give_back(*memory_);
    memory_ = nullptr;
    return true;
  }

  int rank_;
  std::int64_t number_;
  std::byte* begin_;
  index_t bytes_;
  std::shared_ptr<mpi_shared_pool> pool_;
  std::shared_ptr<registered_arrays> arrays_ = registered_arrays::of_process();
  mpi_shared_memory* memory_ = nullptr;
  bool shown_ = false;  // true if the pages are shared
  interval own_{};      // whole pages of this rank's memory
  interval shared_{};
  dynamic_array<std::byte*> origins_;
};

/// Memory that is registered with one communicator, until the communicator ends.
class mpi_registration {
 public:
  explicit mpi_registration(std::shared_ptr<mpi_registered_memory> memory) noexcept : memory_{std::move(memory)} {}

  /// Null after the end of the communicator.
  [[nodiscard]] const mpi_registered_memory* memory() const noexcept { return memory_.get(); }
  void end() noexcept { memory_ = nullptr; }

 private:
  std::shared_ptr<mpi_registered_memory> memory_;
};

}  // namespace gradus::comm::detail
