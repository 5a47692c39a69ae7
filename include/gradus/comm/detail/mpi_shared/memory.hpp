// SPDX-License-Identifier: BSL-1.0
//
// Memory that the MPI ranks of a node share.
#pragma once

#include <mpi.h>
#if defined(__linux__)
#include <fcntl.h>        // open
#include <sys/mman.h>     // madvise
#include <sys/statvfs.h>  // statvfs
#include <unistd.h>       // close, read, sysconf
#endif

#include <algorithm>    // std::min
#include <bit>          // std::countr_zero
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint64_t, std::uintptr_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <mutex>        // std::mutex, std::scoped_lock
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/comm/detail/mpi/check.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm::detail {

/// Bytes of a page of memory; a power of two.
[[nodiscard]] inline std::size_t page_bytes() noexcept {
#if defined(__linux__)
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
#else
  return 4096;
#endif
}

/// A size as text: "12.5 MiB".
[[nodiscard]] inline std::string mebibytes_text(double bytes) {
  char text[64];
  format_text(text, sizeof(text), "%.1f MiB", bytes / 1048576.0);
  return text;
}

/// Allocates zeroed storage for new shared pages. False if there is not enough; then no page has storage. The mount
/// limits the storage (64 MB in most containers), but MPI makes a window of any size, and touching a page that has no
/// storage raises SIGBUS. A system call that writes there only fails.
[[nodiscard]] inline bool take_storage(std::byte* shared, std::size_t bytes) noexcept {
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
  return true;
#endif
}

/// Frees the storage that take_storage has allocated.
inline void give_storage_back([[maybe_unused]] std::byte* shared, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__)
  madvise(shared, bytes, MADV_REMOVE);
#endif
}

/// The free space for shared memory of MPI libraries, as text: "64.0 MiB in /dev/shm"; empty if it is unknown.
[[nodiscard]] inline std::string free_shared_memory() {
#if defined(__linux__)
  struct statvfs found {};
  if (statvfs("/dev/shm", &found) == 0) {
    return gradus::join(
        {mebibytes_text(static_cast<double>(found.f_bavail) * static_cast<double>(found.f_frsize)), " in /dev/shm"});
  }
#endif
  return {};
}

/// Memory for each rank of a communicator, on separate pages, that all ranks can access (an MPI-3 shared window). It is
/// zero at first.
class mpi_shared_memory {
 public:
  /// Called by all ranks with the same size.
  /// @throws communication_error on all ranks, with the size, if there is not enough shared memory
  mpi_shared_memory(MPI_Comm ranks, std::size_t bytes) : bytes_{bytes} {
    constexpr std::string_view what = "comm::mpi_shared";
    const std::size_t page = page_bytes();
    int rank = 0;
    int size = 1;
    MPI_Comm_rank(ranks, &rank);
    MPI_Comm_size(ranks, &size);
    const std::string free = free_shared_memory();  // before any rank takes some
    MPI_Info apart = MPI_INFO_NULL;                 // each rank's memory on its own pages, near its processor
    MPI_Info_create(&apart);
    MPI_Info_set(apart, "alloc_shared_noncontig", "true");
    void* memory = nullptr;
    MPI_Win window = MPI_WIN_NULL;
    const int code = MPI_Win_allocate_shared(static_cast<MPI_Aint>(bytes + page), 1, apart, ranks, &memory, &window);
    MPI_Info_free(&apart);
    check_mpi(code, what, "MPI_Win_allocate_shared");
    free_at_end(window);
    // Processes see the memory at different addresses, so the others have to know the offset that aligns it here.
    const std::uint64_t own = (page - reinterpret_cast<std::uintptr_t>(memory) % page) % page;
    dynamic_array<std::uint64_t> shifts(static_cast<std::size_t>(size));
    check_mpi(MPI_Allgather(&own, 1, MPI_UINT64_T, shifts.data(), 1, MPI_UINT64_T, ranks), what, "MPI_Allgather");
    bases_ = dynamic_array<std::byte*>(static_cast<std::size_t>(size));
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
      gradus::raise<communication_error>(what, "shared memory that begins at a page in all processes",
                                         "memory that begins elsewhere in a page");
    }
    int all_have = take_storage(of(rank), bytes) ? 1 : 0;
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &all_have, 1, MPI_INT, MPI_MIN, ranks), what, "MPI_Allreduce");
    if (all_have == 0) {
      give_storage_back(of(rank), bytes);  // the window itself stays
      gradus::raise<communication_error>(
          what,
          {mebibytes_text(static_cast<double>(bytes) * size), " of shared memory for ", size, " ranks of this machine"},
          {free.empty() ? "less" : free},
          "let the container have more (docker run --shm-size), take smaller segments (mpi_shared_options), or ranks "
          "that send messages (comm::mpi)");
    }
  }

  /// Bytes of each rank: at least the requested size.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// The memory of a rank.
  [[nodiscard]] std::byte* of(int rank) const noexcept { return bases_[static_cast<std::size_t>(rank)]; }

 private:
  /// Keeps a window until MPI_Finalize. MPI frees a window on all its ranks together, but handles are destroyed at
  /// different times and in different orders. MPI_Finalize first deletes the attributes of MPI_COMM_SELF, the newest
  /// first.
  static void free_at_end(MPI_Win window) {
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
  dynamic_array<std::byte*> bases_;
};

/// Reuses shared memory, which exists until MPI_Finalize. Shared by all duplicates of a communicator.
class mpi_shared_pool {
 public:
  /// Called by all ranks with the same size. Returns memory that no rank uses any longer, or allocates new memory.
  /// @throws communication_error if there is not enough shared memory
  [[nodiscard]] mpi_shared_memory& take(MPI_Comm ranks, std::size_t bytes) {
    // Reserve what this rank does not use, so that other threads do not take it until the ranks have agreed.
    const std::uint64_t idle = reserve(bytes);
    std::uint64_t everywhere = idle;
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &everywhere, 1, MPI_UINT64_T, MPI_BAND, ranks), "comm::mpi_shared",
              "MPI_Allreduce");
    const std::uint64_t chosen = everywhere & (~everywhere + 1);
    {
      const std::scoped_lock lock{mutex_};
      mpi_shared_memory* found = nullptr;
      for_each_bit(idle, [&, this](std::size_t i) {
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

  /// This rank no longer uses the memory.
  void give_back(const mpi_shared_memory& memory) noexcept {
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

  /// Marks idle memory that is large enough as used, and returns it as a bit mask.
  [[nodiscard]] std::uint64_t reserve(std::size_t bytes) {
    constexpr std::size_t known = 64;  // later ones are not reused
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
  dynamic_array<piece> pieces_;
};

}  // namespace gradus::comm::detail
