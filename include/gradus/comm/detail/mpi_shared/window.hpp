// SPDX-License-Identifier: BSL-1.0
//
// The shared memory of the ranks of a node, and the flags that they write there about a collective.
#pragma once

#include <mpi.h>

#include <algorithm>    // std::min
#include <array>        // std::array
#include <atomic>       // std::atomic
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::int32_t, std::uint64_t
#include <cstring>      // std::memset
#include <memory>       // std::shared_ptr
#include <new>          // placement new
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/comm/call.hpp"
#include "gradus/comm/detail/mpi/blocking_calls.hpp"
#include "gradus/comm/detail/mpi/check.hpp"
#include "gradus/comm/detail/mpi_shared/memory.hpp"
#include "gradus/comm/reduction.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm::detail {

/// A call in three words, for comparison between ranks.
struct packed_call {
  std::uint64_t head = 0;  // kind, reduction, element type, root
  std::uint64_t count = 0;
  std::uint64_t location = 0;  // of its data in registered memory: the number of the memory, and the offset of the data

  static constexpr unsigned offset_bits = 44;  // 16 TiB

  friend bool operator==(const packed_call&, const packed_call&) = default;

  /// The names of all transferable types, and an empty name for a call without elements.
  static constexpr std::array<std::string_view, 8> elements{"",
                                                            element_name<bfloat16>,
                                                            "float16",
                                                            element_name<float>,
                                                            element_name<double>,
                                                            element_name<std::int32_t>,
                                                            element_name<std::int64_t>,
                                                            element_name<std::uint8_t>};

  explicit packed_call(const call_description& what, std::uint64_t in_memory = 0) noexcept
      : count{static_cast<std::uint64_t>(what.count)}, location{in_memory} {
    std::uint64_t element = 0;
    while (element + 1 < elements.size() && elements[element] != what.element) {
      ++element;
    }
    head = static_cast<std::uint64_t>(what.kind) | static_cast<std::uint64_t>(what.operation) << 8U | element << 16U |
           static_cast<std::uint64_t>(what.peer) << 32U;
  }
  packed_call(std::uint64_t first, std::uint64_t second, std::uint64_t third) noexcept
      : head{first}, count{second}, location{third} {}

  [[nodiscard]] std::string describe() const {
    const call_description what{.kind = static_cast<call_kind>(head & 0xffU),
                                .operation = static_cast<reduction>(head >> 8U & 0xffU),
                                .peer = static_cast<int>(head >> 32U),
                                .count = static_cast<index_t>(count),
                                .element = elements[std::min<std::size_t>(head >> 16U & 0xffU, elements.size() - 1)]};
    std::string text = what.describe();
    if (location != 0) {
      append_text(text, {" at byte ", location & ((std::uint64_t{1} << offset_bits) - 1), " of registered memory ",
                         location >> offset_bits});
    }
    return text;
  }
};

/// The shared memory of the ranks of a node. It has four kinds of flags of each rank, on separate cache lines, and
/// slots for data.
///
/// A collective runs in steps. All ranks number the steps alike, consecutively over all collectives. In step s a rank
/// fills its slot s % slots and sets the flag in the slot's head; the others then read the slot. The rank fills a slot
/// again when all other ranks are done with the step that used it before.
class mpi_shared_window {
 public:
  static constexpr int slots = 4;
  static constexpr std::size_t line = 128;  // processors fetch pairs of 64-byte lines

  using word = std::atomic<std::uint64_t>;
  static_assert(word::is_always_lock_free && sizeof(word) == sizeof(std::uint64_t),
                "gradus::comm::mpi_shared: processes cannot share atomic words of 64 bits on this machine");

  /// The first lines of a slot, and before the slots of a rank the lines for the progress of the rank.
  struct alignas(line) slot_head {
    word filled{0};  // number of the step after the one whose data are in the slot
    std::uint64_t call_head = 0;
    std::uint64_t call_count = 0;
    std::uint64_t call_location = 0;
  };
  struct alignas(line) rank_state {
    word reduced{0};              // steps in which the rank has reduced its part
    alignas(line) word done{0};   // steps in which the rank no longer reads the slots of others
    alignas(line) word taken{0};  // chunks of the rank's part that have been taken, in memory that all ranks can access
  };

  /// Called by all ranks of the communicator. Pieces of all ranks have the same size, a multiple of 64 bytes.
  mpi_shared_window(MPI_Comm ranks, int rank, std::size_t segment_bytes, std::shared_ptr<mpi_shared_pool> pool,
                    const mpi_blocking_calls& call)
      : segment_{segment_bytes}, pool_{std::move(pool)}, memory_{call([ranks, bytes = rank_bytes(), pool = pool_] {
          return &pool->take(ranks, bytes);
        })} {
    std::memset(memory_->of(rank), 0, rank_bytes());
    ::new (memory_->of(rank)) rank_state{};
    for (int slot = 0; slot < slots; ++slot) {
      ::new (&head(rank, static_cast<std::uint64_t>(slot))) slot_head{};
    }
    call([ranks] { check_mpi(MPI_Barrier(ranks), "comm::mpi_shared", "MPI_Barrier"); });
  }

  mpi_shared_window(const mpi_shared_window&) = delete;
  mpi_shared_window& operator=(const mpi_shared_window&) = delete;
  ~mpi_shared_window() { pool_->give_back(*memory_); }

  [[nodiscard]] const std::shared_ptr<mpi_shared_pool>& pool() const noexcept { return pool_; }
  [[nodiscard]] std::size_t segment_bytes() const noexcept { return segment_; }
  [[nodiscard]] rank_state& state(int rank) const noexcept { return *reinterpret_cast<rank_state*>(memory_->of(rank)); }
  [[nodiscard]] slot_head& head(int rank, std::uint64_t step) const noexcept {
    return *reinterpret_cast<slot_head*>(memory_->of(rank) + sizeof(rank_state) + step % slots * slot_bytes());
  }
  [[nodiscard]] std::byte* data(int rank, std::uint64_t step) const noexcept {
    return reinterpret_cast<std::byte*>(&head(rank, step)) + sizeof(slot_head);
  }

 private:
  [[nodiscard]] std::size_t slot_bytes() const noexcept {
    return sizeof(slot_head) + (segment_ + line - 1) / line * line;
  }

  [[nodiscard]] std::size_t rank_bytes() const noexcept { return sizeof(rank_state) + slots * slot_bytes(); }

  std::size_t segment_;
  std::shared_ptr<mpi_shared_pool> pool_;
  mpi_shared_memory* memory_;
};

}  // namespace gradus::comm::detail
