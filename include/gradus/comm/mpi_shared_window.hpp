// SPDX-License-Identifier: BSL-1.0
//
// The memory that the ranks of a node share, and what they write there about a collective.
// Module: comm. Depends on: core, MPI. For mpi_shared.hpp; not for use by itself.
#pragma once

#include <mpi.h>

#include <algorithm>    // std::min
#include <array>        // std::array
#include <atomic>       // std::atomic
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::int32_t, std::uint64_t, std::uintptr_t
#include <cstring>      // std::memset
#include <new>          // placement new
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/comm/detail/call.hpp"  // call, call_kind
#include "gradus/comm/mpi_process.hpp"  // check_mpi
#include "gradus/comm/reduction.hpp"    // reduction
#include "gradus/core/bfloat16.hpp"     // bfloat16
#include "gradus/core/config.hpp"       // GRADUS_COLD
#include "gradus/core/element.hpp"      // element_name
#include "gradus/core/error.hpp"        // communication_error
#include "gradus/core/index.hpp"        // index_t
#include "gradus/core/vector.hpp"       // vector

namespace gradus::comm::detail {

/// A call in two words, to be compared between ranks.
struct packed_call {
  std::uint64_t head = 0;  // kind, reduction, element type, root
  std::uint64_t count = 0;

  friend bool operator==(const packed_call&, const packed_call&) = default;

  /// All that is transferable, and nothing for a call without elements.
  static constexpr std::array<std::string_view, 8> elements{"",
                                                            element_name<bfloat16>,
                                                            "float16",
                                                            element_name<float>,
                                                            element_name<double>,
                                                            element_name<std::int32_t>,
                                                            element_name<std::int64_t>,
                                                            element_name<std::uint8_t>};

  explicit packed_call(const call& what) noexcept : count{static_cast<std::uint64_t>(what.count)} {
    std::uint64_t element = 0;
    while (element + 1 < elements.size() && elements[element] != what.element) {
      ++element;
    }
    head = static_cast<std::uint64_t>(what.kind) | static_cast<std::uint64_t>(what.operation) << 8U | element << 16U |
           static_cast<std::uint64_t>(what.peer) << 32U;
  }
  packed_call(std::uint64_t first, std::uint64_t second) noexcept : head{first}, count{second} {}

  [[nodiscard]] GRADUS_COLD std::string describe() const {
    const call what{.kind = static_cast<call_kind>(head & 0xffU),
                    .operation = static_cast<reduction>(head >> 8U & 0xffU),
                    .peer = static_cast<int>(head >> 32U),
                    .count = static_cast<index_t>(count),
                    .element = elements[std::min<std::size_t>(head >> 16U & 0xffU, elements.size() - 1)]};
    return what.describe();
  }
};

/// Memory that the ranks of a node share: of each rank three kinds of words on lines of their own, and slots for data.
///
/// A collective is done in steps, which all ranks number alike, one after another over all collectives. In step s a
/// rank fills its slot s % slots and says so in the slot's head; the others read it. A slot is filled again when all
/// other ranks are done with the step that had it before.
class mpi_shared_window {
 public:
  static constexpr int slots = 4;
  static constexpr std::size_t line = 128;  // processors fetch pairs of lines of 64 bytes

  using word = std::atomic<std::uint64_t>;
  static_assert(word::is_always_lock_free && sizeof(word) == sizeof(std::uint64_t),
                "gradus::comm::mpi_shared: processes cannot share atomic words of 64 bits on this machine");

  /// The first lines of a slot, and before the slots of a rank: what it has done.
  struct alignas(line) slot_head {
    word filled{0};  // the number of the step after the one whose data lie in the slot
    std::uint64_t call_head = 0;
    std::uint64_t call_count = 0;
  };
  struct alignas(line) rank_state {
    word reduced{0};             // steps of which the rank has reduced its part
    alignas(line) word done{0};  // steps after which the rank reads no slot of another any more
  };

  /// Called by all ranks of the communicator. Segments of all ranks have the same size, a multiple of 64 bytes.
  GRADUS_COLD mpi_shared_window(MPI_Comm ranks, std::size_t segment_bytes) : segment_{segment_bytes} {
    constexpr std::string_view what = "comm::mpi_shared";
    int rank = 0;
    int size = 1;
    MPI_Comm_rank(ranks, &rank);
    MPI_Comm_size(ranks, &size);
    const std::size_t bytes = sizeof(rank_state) + slots * slot_bytes();
    MPI_Info apart = MPI_INFO_NULL;  // each rank's memory on its own pages, near its processor
    MPI_Info_create(&apart);
    MPI_Info_set(apart, "alloc_shared_noncontig", "true");
    void* memory = nullptr;
    MPI_Win window = MPI_WIN_NULL;
    const int code = MPI_Win_allocate_shared(static_cast<MPI_Aint>(bytes + line), 1, apart, ranks, &memory, &window);
    MPI_Info_free(&apart);
    check_mpi(code, what, "MPI_Win_allocate_shared");
    free_at_end(window);
    // Processes see the memory at different addresses: what aligns it here has to be known to the others.
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    const auto own = static_cast<std::uint64_t>((line - address % line) % line);
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
      aligned = aligned && reinterpret_cast<std::uintptr_t>(bases_[i]) % line == 0;
    }
    std::memset(bases_[static_cast<std::size_t>(rank)], 0, bytes);
    ::new (bases_[static_cast<std::size_t>(rank)]) rank_state{};
    for (int slot = 0; slot < slots; ++slot) {
      ::new (&head(rank, static_cast<std::uint64_t>(slot))) slot_head{};
    }
    check_mpi(MPI_Barrier(ranks), what, "MPI_Barrier");
    if (!aligned) {
      gradus::raise<communication_error>(what, "shared memory on pages in all processes", "memory that lies otherwise");
    }
  }

  [[nodiscard]] std::size_t segment_bytes() const noexcept { return segment_; }
  [[nodiscard]] rank_state& state(int rank) const noexcept { return *reinterpret_cast<rank_state*>(base(rank)); }
  [[nodiscard]] slot_head& head(int rank, std::uint64_t step) const noexcept {
    return *reinterpret_cast<slot_head*>(base(rank) + sizeof(rank_state) + step % slots * slot_bytes());
  }
  [[nodiscard]] std::byte* data(int rank, std::uint64_t step) const noexcept {
    return reinterpret_cast<std::byte*>(&head(rank, step)) + sizeof(slot_head);
  }

 private:
  [[nodiscard]] std::byte* base(int rank) const noexcept { return bases_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::size_t slot_bytes() const noexcept {
    return sizeof(slot_head) + (segment_ + line - 1) / line * line;
  }

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

  std::size_t segment_;
  gradus::detail::vector<std::byte*> bases_;
};

}  // namespace gradus::comm::detail
