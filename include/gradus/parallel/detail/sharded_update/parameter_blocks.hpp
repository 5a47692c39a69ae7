// SPDX-License-Identifier: BSL-1.0
//
// Runs of the flat buffers in equal blocks, one for each rank.
#pragma once

#include <algorithm>    // std::max, std::min
#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/comm/communicator.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"
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
GRADUS_COLD inline void append_pieces(dynamic_array<optim::segment>& pieces, std::span<const optim::segment> segments,
                                      index_t begin, index_t end, index_t most) {
  for (const optim::segment& each : segments) {
    const index_t to = std::min(end, each.offset + each.size);
    for (index_t from = std::max(begin, each.offset); from < to; from += most) {
      pieces.push_back({.name = each.name, .offset = from, .size = std::min(most, to - from), .decay = each.decay});
    }
  }
}

/// Every rank gets the blocks of all, and what is behind them from the last. Called by all ranks.
template <class Communicator, class Element>
GRADUS_COLD void gather_blocks(Communicator& communicator, const parameter_blocks& blocks, std::span<Element> data) {
  const int rank = communicator.rank();
  comm::all_gather(communicator, data.subspan(as_size(blocks.first_of(rank)), as_size(blocks.block)),
                   data.subspan(as_size(blocks.begin), as_size(blocks.rest - blocks.begin)))
      .wait();
  if (blocks.rest < blocks.end) {
    comm::broadcast(communicator, data.subspan(as_size(blocks.rest), as_size(blocks.end - blocks.rest)),
                    communicator.size() - 1)
        .wait();
  }
}

/// Those buffers of a rule's state that have an element for each parameter become whole on all ranks.
/// @param elements  of the flat buffers
template <class Communicator, class State>
GRADUS_COLD void gather_state(Communicator& communicator, std::span<const parameter_blocks> blocks, index_t elements,
                              State& state) {
  state.visit_buffers([&]<class Element>(std::string_view /*name*/, Element* data, index_t count) {
    if (count == elements) {
      for (const parameter_blocks& each : blocks) {
        gather_blocks(communicator, each, std::span{data, as_size(count)});
      }
    }
  });
}

}  // namespace gradus::parallel::detail
