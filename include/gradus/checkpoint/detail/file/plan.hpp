// SPDX-License-Identifier: BSL-1.0
//
// Which rank writes which elements of a checkpoint.
#pragma once

#include <algorithm>    // std::sort
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint32_t, std::uint64_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <tuple>        // std::tie
#include <vector>       // std::vector

#include "gradus/checkpoint/content.hpp"
#include "gradus/checkpoint/crc32c.hpp"
#include "gradus/checkpoint/detail/file/exchange.hpp"
#include "gradus/checkpoint/detail/file/header.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/stored_array.hpp"

namespace gradus::io::detail {

/// Elements of an array that a rank writes.
struct written_range {
  std::size_t array = 0;  ///< index among the arrays of the content
  element_range elements = {};
  int rank = 0;
  std::uint32_t checksum = 0;  ///< of their bytes in the file
};

/// The arrays of the content with what this rank writes of them: its ranges, and its shares of replicated arrays.
/// @pre the content has been laid out
/// @param writers  the ranks that write replicated arrays: all, or the first one
[[nodiscard]] inline std::vector<stored_array> own_arrays(const checkpoint_content& content, int rank, int writers) {
  std::vector<stored_array> own = content.arrays;
  const std::vector<element_range> shares =
      rank < writers ? shares_of(own, rank, writers) : std::vector<element_range>(own.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i].replicated) {
      own[i].held = shares[i];
      const element_range covered = own[i].covered();
      own[i].memory = own[i].memory.subspan(static_cast<std::size_t>(covered.begin * own[i].element_bytes()),
                                            static_cast<std::size_t>(covered.size() * own[i].element_bytes()));
    }
  }
  return own;
}

/// The ranges of arrays that are not replicated, as a text for the other ranks.
[[nodiscard]] inline std::string pack_ranges(std::span<const stored_array> arrays) {
  std::string packed;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (!arrays[i].replicated && arrays[i].held.size() != 0) {
      append_number(packed, i);
      append_number(packed, static_cast<std::uint64_t>(arrays[i].held.begin));
      append_number(packed, static_cast<std::uint64_t>(arrays[i].held.end));
    }
  }
  return packed;
}

/// What a rank writes, in the order of the arrays: its shares of replicated arrays, and what pack_ranges of it says.
[[nodiscard]] inline std::vector<written_range> ranges_of_rank(std::span<const stored_array> arrays, int rank,
                                                               int writers, std::string_view packed) {
  std::vector<element_range> held =
      rank < writers ? shares_of(arrays, rank, writers) : std::vector<element_range>(arrays.size());
  while (packed.size() >= 24) {
    const std::size_t i = take_number(packed);
    const auto begin = static_cast<index_t>(take_number(packed));
    held[i] = {begin, static_cast<index_t>(take_number(packed))};
  }
  std::vector<written_range> ranges;
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (held[i].size() != 0) {
      ranges.push_back({.array = i, .elements = held[i], .rank = rank});
    }
  }
  return ranges;
}

/// The ranges of all ranks, in the order of the arrays and of the elements in them.
[[nodiscard]] inline std::vector<written_range> in_order(const std::vector<std::vector<written_range>>& of_rank) {
  std::vector<written_range> all;
  for (const std::vector<written_range>& each : of_rank) {
    all.insert(all.end(), each.begin(), each.end());
  }
  std::sort(all.begin(), all.end(), [](const written_range& a, const written_range& b) {
    return std::tie(a.array, a.elements.begin, a.elements.end, a.rank) <
           std::tie(b.array, b.elements.begin, b.elements.end, b.rank);
  });
  return all;
}

/// Says what is wrong if the ranges, which are in order, do not cover each element of each array once.
[[nodiscard]] inline std::string coverage_error(std::span<const stored_array> arrays,
                                                const std::vector<written_range>& ranges) {
  std::size_t next = 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    index_t covered = 0;
    int last = -1;
    for (; next < ranges.size() && ranges[next].array == i; ++next) {
      const written_range& each = ranges[next];
      if (each.elements.begin < covered) {
        return join({"rank ", last, " and rank ", each.rank, " both give element ", each.elements.begin, " of '",
                     arrays[i].name, "': each element belongs to one rank, or mark the array as replicated"});
      }
      if (each.elements.begin > covered) {
        break;
      }
      covered = each.elements.end;
      last = each.rank;
    }
    if (covered != arrays[i].elements() || (next < ranges.size() && ranges[next].array == i)) {
      return join({"no rank gives element ", covered, " of '", arrays[i].name, "', which has ", arrays[i].elements(),
                   " elements"});
    }
  }
  return {};
}

/// The checksum of each array from those of its ranges, which cover it in order.
[[nodiscard]] inline std::vector<std::uint32_t> array_checksums(std::span<const stored_array> arrays,
                                                                std::span<const written_range> ranges) {
  std::vector<std::uint32_t> sums(arrays.size(), 0);
  for (const written_range& each : ranges) {
    sums[each.array] =
        crc32c_combine(sums[each.array], each.checksum,
                       static_cast<std::uint64_t>(each.elements.size() * arrays[each.array].element_bytes()));
  }
  return sums;
}

}  // namespace gradus::io::detail
