// SPDX-License-Identifier: BSL-1.0
//
// Runs of the flat buffers in equal blocks, one for each rank.
#pragma once

#include <algorithm>  // std::max, std::min
#include <cstddef>    // std::byte, std::size_t
#include <cstdint>    // std::uint8_t
#include <span>       // std::span

#include "gradus/comm/link.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/segment.hpp"

namespace gradus::parallel::detail {

/// Elements [begin, end) of the flat buffers, which begin at a line of the cache: a block for each rank, of whole
/// lines, and the few elements behind the blocks.
struct parameter_blocks {
  parameter_blocks(index_t from, index_t to, int ranks, index_t element_bytes)
      : begin{from},
        end{to},
        block{(to - from) / ranks / line_of(element_bytes) * line_of(element_bytes)},
        rest{from + block * ranks} {}

  [[nodiscard]] index_t first_of(int rank) const noexcept { return begin + rank * block; }

  index_t begin;
  index_t end;
  index_t block;  ///< elements of a block
  index_t rest;   ///< where the last block ends

 private:
  static index_t line_of(index_t element_bytes) noexcept { return std::max<index_t>(64 / element_bytes, 1); }
};

[[nodiscard]] inline std::size_t as_size(index_t count) noexcept {
  return static_cast<std::size_t>(count);
}

/// Appends what lies in [begin, end) of the segments, in pieces of at most `most` elements.
void append_pieces(dynamic_array<optim::segment>& pieces, std::span<const optim::segment> segments, index_t begin,
                   index_t end, index_t most);

/// Every rank gets the blocks of all of a buffer that has an element for each parameter, and what is behind the blocks
/// from the last rank. Called by all ranks.
void gather_blocks(comm::link& ranks, const parameter_blocks& blocks, const optim::state_buffer& buffer);

}  // namespace gradus::parallel::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::parallel::detail {

GRADUS_INLINE void append_pieces(dynamic_array<optim::segment>& pieces, std::span<const optim::segment> segments,
                                 index_t begin, index_t end, index_t most) {
  for (const optim::segment& each : segments) {
    const index_t to = std::min(end, each.offset + each.size);
    for (index_t from = std::max(begin, each.offset); from < to; from += most) {
      optim::segment& piece = pieces.emplace_back(each);
      piece.offset = from;
      piece.size = std::min(most, to - from);
    }
  }
}

GRADUS_INLINE void gather_blocks(comm::link& ranks, const parameter_blocks& blocks, const optim::state_buffer& buffer) {
  const std::size_t element_bytes = buffer.bytes.size() / as_size(buffer.elements);
  const auto elements = [&](index_t begin, index_t end) {
    const std::span<std::byte> bytes =
        buffer.bytes.subspan(as_size(begin) * element_bytes, as_size(end - begin) * element_bytes);
    return std::span{reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()};
  };
  const int rank = ranks.rank();
  ranks.all_gather(elements(blocks.first_of(rank), blocks.first_of(rank + 1)), elements(blocks.begin, blocks.rest));
  if (blocks.rest < blocks.end) {
    ranks.broadcast(std::as_writable_bytes(elements(blocks.rest, blocks.end)), ranks.size() - 1);
  }
}

}  // namespace gradus::parallel::detail
#endif
