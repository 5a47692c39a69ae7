// SPDX-License-Identifier: BSL-1.0
//
// Memory that the MPI ranks of a node share, and how memory of a rank comes to lie in it.
// Module: comm. Depends on: core, MPI. For mpi_shared.hpp; not for use by itself.
#pragma once

#include <mpi.h>
#if defined(__linux__)
#include <fcntl.h>        // open
#include <sys/mman.h>     // madvise, mmap, munmap
#include <sys/syscall.h>  // SYS_mremap
#include <unistd.h>       // close, read, syscall, sysconf
#endif

#include <algorithm>    // std::max, std::min
#include <bit>          // std::countr_zero
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::int64_t, std::uint64_t, std::uintptr_t
#include <cstring>      // std::memcpy
#include <memory>       // std::make_unique, std::shared_ptr, std::unique_ptr
#include <mutex>        // std::mutex, std::scoped_lock
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/comm/mpi_process.hpp"  // check_mpi
#include "gradus/core/config.hpp"       // GRADUS_COLD
#include "gradus/core/error.hpp"        // communication_error
#include "gradus/core/index.hpp"        // index_t
#include "gradus/core/vector.hpp"       // vector

namespace gradus::comm::detail {

/// Bytes of a page of memory; a power of two.
[[nodiscard]] GRADUS_COLD inline std::size_t page_bytes() noexcept {
#if defined(__linux__)
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
#else
  return 4096;
#endif
}

/// A piece of memory of every rank of a communicator, on pages of its own, that all of them reach (an MPI-3 window).
class mpi_shared_memory {
 public:
  /// Called by all ranks with the same size.
  /// @throws communication_error when there is not enough shared memory
  GRADUS_COLD mpi_shared_memory(MPI_Comm ranks, std::size_t bytes) : bytes_{bytes} {
    constexpr std::string_view what = "comm::mpi_shared";
    const std::size_t page = page_bytes();
    int size = 1;
    MPI_Comm_size(ranks, &size);
    MPI_Info apart = MPI_INFO_NULL;  // each rank's memory on its own pages, near its processor
    MPI_Info_create(&apart);
    MPI_Info_set(apart, "alloc_shared_noncontig", "true");
    void* memory = nullptr;
    MPI_Win window = MPI_WIN_NULL;
    const int code = MPI_Win_allocate_shared(static_cast<MPI_Aint>(bytes + page), 1, apart, ranks, &memory, &window);
    MPI_Info_free(&apart);
    check_mpi(code, what, "MPI_Win_allocate_shared");
    free_at_end(window);
    // Processes see the memory at different addresses: what aligns it here has to be known to the others.
    const auto own = static_cast<std::uint64_t>((page - reinterpret_cast<std::uintptr_t>(memory) % page) % page);
    gradus::detail::vector<std::uint64_t> shifts(static_cast<std::size_t>(size));
    check_mpi(MPI_Allgather(&own, 1, MPI_UINT64_T, shifts.data(), 1, MPI_UINT64_T, ranks), what, "MPI_Allgather");
    bases_ = gradus::detail::vector<std::byte*>(static_cast<std::size_t>(size));
    bool aligned = true;
    for (int other = 0; other < size; ++other) {
      MPI_Aint unused = 0;
      int unit = 0;
      void* theirs = nullptr;
      check_mpi(MPI_Win_shared_query(window, other, &unused, &unit, &theirs), what, "MPI_Win_shared_query");
      const auto i = static_cast<std::size_t>(other);
      bases_[i] = static_cast<std::byte*>(theirs) + shifts[i];
      aligned = aligned && reinterpret_cast<std::uintptr_t>(bases_[i]) % page == 0;
    }
    if (!aligned) {
      gradus::raise<communication_error>(what, "shared memory on pages in all processes", "memory that lies otherwise");
    }
  }

  /// Of each rank; as much as was asked for or more.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// The piece of a rank.
  [[nodiscard]] std::byte* of(int rank) const noexcept { return bases_[static_cast<std::size_t>(rank)]; }

 private:
  /// MPI frees a window on all its ranks together; handles are destroyed at different times, or in different order. So
  /// it stays until MPI_Finalize, which first deletes what is attached to MPI_COMM_SELF, the youngest first.
  GRADUS_COLD static void free_at_end(MPI_Win window) {
    const auto free_window = [](MPI_Comm, int key, void* value, void*) -> int {
      auto* const owned = static_cast<MPI_Win*>(value);
      MPI_Win_free(owned);
      delete owned;
      return MPI_Comm_free_keyval(&key);
    };
    int key = MPI_KEYVAL_INVALID;
    check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_window, &key, nullptr), "comm::mpi_shared",
              "MPI_Comm_create_keyval");
    check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, key, new MPI_Win{window}), "comm::mpi_shared", "MPI_Comm_set_attr");
  }

  std::size_t bytes_;
  gradus::detail::vector<std::byte*> bases_;
};

/// Pieces of shared memory that are used again, as they stay until MPI_Finalize. For all duplicates of a communicator.
class mpi_shared_pool {
 public:
  /// Called by all ranks with the same size. Memory that no rank uses any more, or new.
  /// @throws communication_error when there is not enough shared memory
  [[nodiscard]] GRADUS_COLD mpi_shared_memory& take(MPI_Comm ranks, std::size_t bytes) {
    // What this rank does not use is kept from other threads until the ranks have agreed.
    const std::uint64_t idle = reserve(bytes);
    std::uint64_t everywhere = idle;
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &everywhere, 1, MPI_UINT64_T, MPI_BAND, ranks), "comm::mpi_shared",
              "MPI_Allreduce");
    const std::uint64_t chosen = everywhere & (~everywhere + 1);
    {
      const std::scoped_lock lock{mutex_};
      mpi_shared_memory* found = nullptr;
      for_each_bit(idle, [&](std::size_t i) {
        pieces_[i].used = chosen >> i == 1;
        found = pieces_[i].used ? pieces_[i].memory.get() : found;
      });
      if (found != nullptr) {
        return *found;
      }
    }
    auto made = std::make_unique<mpi_shared_memory>(ranks, bytes);
    mpi_shared_memory& memory = *made;
    const std::scoped_lock lock{mutex_};
    pieces_.push_back({std::move(made), true});
    return memory;
  }

  /// This rank does not use the memory any more.
  GRADUS_COLD void give_back(const mpi_shared_memory& memory) noexcept {
    const std::scoped_lock lock{mutex_};
    for (piece& each : pieces_) {
      each.used = each.used && each.memory.get() != &memory;
    }
  }

 private:
  struct piece {
    std::unique_ptr<mpi_shared_memory> memory;
    bool used;
  };

  template <class Function>
  static void for_each_bit(std::uint64_t bits, const Function& function) {
    for (; bits != 0; bits &= bits - 1) {
      function(static_cast<std::size_t>(std::countr_zero(bits)));
    }
  }

  /// Idle pieces that are long enough, by bits; now they count as used.
  [[nodiscard]] std::uint64_t reserve(std::size_t bytes) {
    constexpr std::size_t known = 64;  // the later ones are not used again
    const std::scoped_lock lock{mutex_};
    std::uint64_t idle = 0;
    for (std::size_t i = 0; i < std::min(pieces_.size(), known); ++i) {
      if (!pieces_[i].used && pieces_[i].memory->bytes() >= bytes) {
        pieces_[i].used = true;
        idle |= std::uint64_t{1} << i;
      }
    }
    return idle;
  }

  std::mutex mutex_;
  gradus::detail::vector<piece> pieces_;
};

/// Fresh pages that this process alone has; null without memory for them, and where the system has no such calls.
/// @param place  whole pages that they replace; null for any place
[[nodiscard]] GRADUS_COLD inline std::byte* own_pages(std::byte* place, std::size_t bytes) noexcept {
#if defined(__linux__)
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (place == nullptr ? 0 : MAP_FIXED);
  void* const pages = mmap(place, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (pages == MAP_FAILED) {
    return nullptr;
  }
  madvise(pages, bytes, MADV_HUGEPAGE);  // as gradus::cpu does; advice
  return static_cast<std::byte*>(pages);
#else
  static_cast<void>(place);
  static_cast<void>(bytes);
  return nullptr;
#endif
}

/// The pages that lie at `from`, which are shared, a second time; null where the system cannot.
[[nodiscard]] GRADUS_COLD inline std::byte* same_pages(std::byte* from, std::size_t bytes) noexcept {
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

/// Puts whole pages, from a place that is given up, in the place of others with the same contents. Without memory for
/// that only the contents are there afterwards, in pages of this process's own, or nothing has changed.
[[nodiscard]] GRADUS_COLD inline pages_moved move_pages(std::byte* from, std::byte* to, std::size_t bytes) noexcept {
#if defined(__linux__)
  // First by mmap and then by the number of mremap: libraries of MPI put functions of their own in the place of the C
  // library's, to see what is unmapped, and that of UCX 1.13 loses the place.
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

/// Whether there is memory for shared pages. Where a mount limits it (64 MB in most containers), MPI gives a window of
/// any size, and who writes to a page too many is killed by SIGBUS; the system's own writing only stops.
[[nodiscard]] GRADUS_COLD inline bool has_memory(std::byte* shared, std::size_t bytes) noexcept {
#if defined(__linux__)
  const int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  std::size_t written = 0;
  while (zeros != -1 && written < bytes) {
    const ssize_t more = read(zeros, shared + written, bytes - written);
    if (more <= 0) {
      break;
    }
    written += static_cast<std::size_t>(more);
  }
  close(zeros);
  if (written < bytes) {
    madvise(shared, bytes, MADV_REMOVE);
  }
  return written == bytes;
#else
  static_cast<void>(shared);
  static_cast<void>(bytes);
  return false;
#endif
}

/// Makes whole pages of this process show the pages of `shared`, which get their contents: what is written here is seen
/// there. False where the system cannot; then nothing has changed.
[[nodiscard]] GRADUS_COLD inline bool show_shared_pages(std::byte* begin, std::byte* shared,
                                                        std::size_t bytes) noexcept {
  std::byte* const second = has_memory(shared, bytes) ? same_pages(shared, bytes) : nullptr;
  if (second == nullptr) {
    return false;
  }
  std::memcpy(shared, begin, bytes);
  return move_pages(second, begin, bytes) == pages_moved::pages;
}

/// Advice: the pages will be written by this process, so that it need not stop at each of them.
GRADUS_COLD inline void populate_pages(std::byte* begin, std::size_t bytes) noexcept {
#if defined(__linux__) && defined(MADV_POPULATE_WRITE)
  madvise(begin, bytes, MADV_POPULATE_WRITE);
#else
  static_cast<void>(begin);
  static_cast<void>(bytes);
#endif
}

/// Memory of a rank whose whole pages are shared; every rank has as much. A part of it, [first, last) in bytes from its
/// begin, is shared on all ranks: all but less than a page at either end.
class mpi_registered_memory {
 public:
  /// Called by all ranks with the same size and number. Nothing is shared, on all ranks, where the system cannot or has
  /// not enough shared memory.
  GRADUS_COLD mpi_registered_memory(MPI_Comm ranks, int rank, std::shared_ptr<mpi_shared_pool> pool,
                                    std::uint64_t number, std::byte* begin, index_t bytes)
      : number_{number}, begin_{begin}, bytes_{bytes}, pool_{std::move(pool)} {
    constexpr std::string_view what = "comm::mpi_shared.register_memory";
    int size = 1;
    MPI_Comm_size(ranks, &size);
    const auto page = static_cast<index_t>(page_bytes());
    // Memory begins anywhere in a page, on each rank elsewhere.
    const auto shift = static_cast<index_t>(reinterpret_cast<std::uintptr_t>(begin) % page_bytes());
    gradus::detail::vector<std::int64_t> shifts(static_cast<std::size_t>(size));
    check_mpi(MPI_Allgather(&shift, 1, MPI_INT64_T, shifts.data(), 1, MPI_INT64_T, ranks), what, "MPI_Allgather");
    const auto whole_pages = [&](index_t from) {
      return interval{(from + page - 1) / page * page - from, (from + bytes) / page * page - from};
    };
    interval common = whole_pages(shift);
    for (const std::int64_t each : shifts) {
      common.first = std::max(common.first, whole_pages(each).first);
      common.last = std::min(common.last, whole_pages(each).last);
    }
    if (common.first >= common.last) {
      return;
    }
    own_ = whole_pages(shift);
    try {
      memory_ = &pool_->take(ranks, static_cast<std::size_t>(bytes + page));
      shown_ = show_shared_pages(begin + own_.first, memory_->of(rank) + shift + own_.first, own_.size());
    } catch (const communication_error&) {
      // No such window: as where there is no memory for it.
    }
    int all = shown_ ? 1 : 0;
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, ranks), what, "MPI_Allreduce");
    if (all == 0) {
      end();
      return;
    }
    shared_ = common;
    populate_pages(begin + own_.first, own_.size());
    for (int other = 0; other < size; ++other) {
      const index_t from = shifts[static_cast<std::size_t>(other)];
      origins_.push_back(memory_->of(other) + from);
      if (other != rank) {
        const interval pages = whole_pages(from);
        populate_pages(origins_.back() + pages.first, pages.size());
      }
    }
  }

  mpi_registered_memory(const mpi_registered_memory&) = delete;
  mpi_registered_memory& operator=(const mpi_registered_memory&) = delete;
  GRADUS_COLD ~mpi_registered_memory() { end(); }

  /// From now on the memory is this rank's alone, with its contents.
  GRADUS_COLD void end() noexcept {
    shared_ = {};
    if (memory_ == nullptr) {
      return;
    }
    if (shown_) {
      // From the pages themselves: MPI may have been finalised, and the window with it.
      std::byte* const pages = begin_ + own_.first;
      std::byte* const own = own_pages(nullptr, own_.size());
      if (own == nullptr) {
        return;  // they stay shared, and the shared memory used
      }
      std::memcpy(own, pages, own_.size());
      if (move_pages(own, pages, own_.size()) == pages_moved::nothing) {
        return;
      }
    }
    pool_->give_back(*memory_);
    memory_ = nullptr;
  }

  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  /// Bytes of the part that all ranks share.
  [[nodiscard]] index_t first() const noexcept { return shared_.first; }
  [[nodiscard]] index_t last() const noexcept { return shared_.last; }
  /// Where the memory of a rank would begin in the shared pages.
  [[nodiscard]] std::byte* origin(int rank) const noexcept { return origins_[static_cast<std::size_t>(rank)]; }
  /// Where `data` begins in this memory, or a negative number if it is not in it or not shared.
  [[nodiscard]] index_t offset_of(const std::byte* data, index_t bytes) const noexcept {
    const auto offset =
        static_cast<index_t>(reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(begin_));
    const bool inside = offset >= 0 && offset + bytes <= bytes_;
    return inside && offset < shared_.last && offset + bytes > shared_.first ? offset : -1;
  }

 private:
  struct interval {
    index_t first = 0;
    index_t last = 0;

    [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(last - first); }
  };

  std::uint64_t number_;
  std::byte* begin_;
  index_t bytes_;
  std::shared_ptr<mpi_shared_pool> pool_;
  mpi_shared_memory* memory_ = nullptr;
  bool shown_ = false;  // in the memory of this rank
  interval own_{};      // whole pages of this rank's memory
  interval shared_{};
  gradus::detail::vector<std::byte*> origins_;
};

}  // namespace gradus::comm::detail
