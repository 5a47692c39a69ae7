// SPDX-License-Identifier: BSL-1.0
//
// Which rank writes which bytes of a checkpoint.
#pragma once

#include <algorithm>    // std::max, std::min, std::sort
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint32_t, std::uint64_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <tuple>        // std::tie
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/checkpoint_content.hpp"
#include "gradus/io/crc32c.hpp"
#include "gradus/io/detail/checkpoint/exchange.hpp"
#include "gradus/io/detail/checkpoint/header.hpp"

namespace gradus::io::detail {

/// Bytes of one tensor that one rank writes.
struct checkpoint_piece {
  std::size_t tensor = 0;           ///< index into the layout
  std::uint64_t begin = 0;          ///< first byte in the tensor
  std::uint64_t size = 0;           ///< bytes
  const std::byte* data = nullptr;  ///< null on other ranks
};

/// The pieces of a rank.
using checkpoint_pieces = std::vector<checkpoint_piece>;

/// The cuts between ranks are multiples of it in the file: no two ranks write one page.
inline constexpr std::uint64_t page_bytes = 4096;

/// The bytes of replicated tensors that `rank` of `ranks` writes: a range of the file, of equal size on all ranks. The
/// same on all ranks; without pointers.
[[nodiscard]] inline checkpoint_pieces replicated_pieces(const checkpoint_layout& layout, int rank, int ranks) {
  std::uint64_t total = 0;
  for (const stored_tensor& each : layout.tensors) {
    total += each.replicated ? each.bytes : 0;
  }
  checkpoint_pieces pieces;
  std::uint64_t passed = 0;  // replicated bytes of the tensors before
  for (const std::size_t i : layout.file_order) {
    const stored_tensor& each = layout.tensors[i];
    if (!each.replicated) {
      continue;
    }
    // A cut inside this tensor moves to the page before, but not out of the tensor.
    const auto cut = [&](int before) -> std::uint64_t {
      const std::uint64_t at =
          gradus::detail::part_bound(total, static_cast<std::uint64_t>(ranks), static_cast<std::uint64_t>(before));
      if (before == ranks || at >= passed + each.bytes) {
        return each.bytes;
      }
      if (at <= passed) {
        return 0;
      }
      const std::uint64_t in_file = each.offset + (at - passed);
      return std::max(in_file / page_bytes * page_bytes, each.offset) - each.offset;
    };
    const std::uint64_t begin = cut(rank);
    const std::uint64_t end = cut(rank + 1);
    if (begin < end) {
      pieces.push_back({.tensor = i, .begin = begin, .size = end - begin});
    }
    passed += each.bytes;
  }
  return pieces;
}

/// What this rank writes: its parts of sharded tensors, and a share of the replicated tensors, or all of them.
/// @param ranks  1 if one rank writes all replicated tensors
[[nodiscard]] inline checkpoint_pieces own_pieces(const checkpoint_layout& layout, const checkpoint_content& content,
                                                  int rank, int ranks) {
  checkpoint_pieces pieces = rank < ranks ? replicated_pieces(layout, rank, ranks) : checkpoint_pieces{};
  for (checkpoint_piece& each : pieces) {
    each.data = content.tensors[each.tensor].parts[0].bytes.data() + each.begin;
  }
  for (std::size_t i = 0; i < content.tensors.size(); ++i) {
    if (!content.tensors[i].replicated) {
      for (const checkpoint_part& each : content.tensors[i].parts) {
        pieces.push_back({.tensor = i, .begin = each.begin, .size = each.bytes.size(), .data = each.bytes.data()});
      }
    }
  }
  return pieces;
}

/// The pieces as a text for the other ranks.
[[nodiscard]] inline std::string pack_pieces(const checkpoint_pieces& pieces) {
  std::string packed;
  packed.reserve(pieces.size() * 24);
  for (const checkpoint_piece& each : pieces) {
    append_number(packed, each.tensor);
    append_number(packed, each.begin);
    append_number(packed, each.size);
  }
  return packed;
}

/// The inverse of pack_pieces.
[[nodiscard]] inline checkpoint_pieces unpack_pieces(std::string_view packed) {
  checkpoint_pieces pieces;
  while (packed.size() >= 24) {
    checkpoint_piece each;
    each.tensor = take_number(packed);
    each.begin = take_number(packed);
    each.size = take_number(packed);
    pieces.push_back(each);
  }
  return pieces;
}

/// A piece, who has it, and its checksum.
struct placed_piece {
  checkpoint_piece what;
  int rank = 0;
  std::uint32_t checksum = 0;
};

/// Puts pieces in the order of the tensors and of the bytes in them.
inline void sort_pieces(std::vector<placed_piece>& pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const placed_piece& a, const placed_piece& b) {
    return std::tie(a.what.tensor, a.what.begin, a.what.size, a.rank) <
           std::tie(b.what.tensor, b.what.begin, b.what.size, b.rank);
  });
}

/// The pieces of all ranks in that order.
[[nodiscard]] inline std::vector<placed_piece> in_order(const std::vector<checkpoint_pieces>& of_rank) {
  std::vector<placed_piece> all;
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
    for (const checkpoint_piece& each : of_rank[rank]) {
      all.push_back({.what = each, .rank = static_cast<int>(rank)});
    }
  }
  sort_pieces(all);
  return all;
}

/// Says what is wrong if the pieces, which are in order, do not cover each byte of each tensor once.
[[nodiscard]] inline std::string coverage_error(const checkpoint_layout& layout,
                                                const std::vector<placed_piece>& pieces) {
  std::size_t next = 0;
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    const stored_tensor& tensor = layout.tensors[i];
    std::uint64_t covered = 0;
    int last = -1;
    for (; next < pieces.size() && pieces[next].what.tensor == i; ++next) {
      const placed_piece& each = pieces[next];
      if (each.what.begin < covered) {
        return join({"rank ", last, " and rank ", each.rank, " both give byte ", each.what.begin, " of '", tensor.name,
                     "': each byte belongs to one rank, or mark the tensor as replicated"});
      }
      if (each.what.begin > covered) {
        break;
      }
      covered += each.what.size;
      last = each.rank;
    }
    if (covered != tensor.bytes || (next < pieces.size() && pieces[next].what.tensor == i)) {
      return join({"no rank gives byte ", covered, " of '", tensor.name, "', which has ", tensor.bytes, " bytes"});
    }
  }
  return {};
}

/// The checksum of each tensor from those of its pieces, which cover it in order.
[[nodiscard]] inline std::vector<std::uint32_t> tensor_checksums(std::size_t tensors,
                                                                 std::span<const placed_piece> pieces) {
  std::vector<std::uint32_t> sums(tensors, 0);
  for (const placed_piece& each : pieces) {
    sums[each.what.tensor] = crc32c_combine(sums[each.what.tensor], each.checksum, each.what.size);
  }
  return sums;
}

}  // namespace gradus::io::detail
