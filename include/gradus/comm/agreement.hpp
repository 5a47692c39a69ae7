// SPDX-License-Identifier: BSL-1.0
//
// Compares named properties between all ranks; on disagreement every rank throws an error that shows the difference.
#pragma once

#include <algorithm>         // std::max
#include <cstddef>           // std::size_t
#include <cstdint>           // std::uint64_t, std::uint8_t
#include <cstring>           // std::memcmp, std::memcpy
#include <initializer_list>  // std::initializer_list
#include <source_location>   // std::source_location
#include <span>              // std::span
#include <string>            // std::string
#include <string_view>       // std::string_view
#include <utility>           // std::move
#include <vector>            // std::vector

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/text.hpp"
#include "gradus/core/version.hpp"

namespace gradus::comm {

/// A property that must be the same on all ranks, e.g. {"batch size", "64"}.
struct property {
  std::string name;   ///< name for the message
  std::string value;  ///< compared between ranks
};

namespace detail {

/// Packs properties as texts with their lengths in front, so that any text can be packed and packed lists can be
/// joined.
std::string pack(std::span<const property> properties);

dynamic_array<property> unpack(std::string_view packed);

/// Keeps only the first different line of texts that have several lines.
void keep_first_difference(std::span<property> of_rank);

/// Throws if the properties differ. All ranks have the same `properties_of_rank`, so all throw the same error.
void require_same_properties(std::string_view what, std::span<const dynamic_array<property>> properties_of_rank,
                             const std::source_location& where);

}  // namespace detail

/// Compares properties between all ranks: returns on all ranks or throws on all ranks.
///
/// All ranks call it, before the first step and after each change of something that must be the same everywhere. It
/// also compares the version of the library. Ranks that agree exchange 16 bytes each; the texts are sent only on
/// disagreement.
///
/// @param what   what the properties describe, for the message: "training plan"
/// @param properties  in the same order on all ranks
/// @throws configuration_error with the first property that differs, and each value with its ranks
/// @throws communication_error if a rank fails or does not call it in time
void require_agreement(link& group, std::string_view what, std::span<const property> properties,
                       std::source_location where = std::source_location::current());

/// The same for any communicator.
inline void require_agreement(any_communicator communicator, std::string_view what,
                              std::span<const property> properties,
                              std::source_location where = std::source_location::current()) {
  detail::require_open(detail::caller{communicator}, "require_agreement", where);
  require_agreement(communicator.link(), what, properties, where);
}

/// The same for properties in braces: require_agreement(world, "options", {{"seed", "1"}}).
inline void require_agreement(any_communicator communicator, std::string_view what,
                              std::initializer_list<property> properties,
                              std::source_location where = std::source_location::current()) {
  require_agreement(std::move(communicator), what, std::span{properties.begin(), properties.size()}, where);
}

}  // namespace gradus::comm

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm::detail {

GRADUS_INLINE std::string pack(std::span<const property> properties) {
  std::string packed;
  for (const property& each : properties) {
    for (const std::string* text : {&each.name, &each.value}) {
      append_text(packed, {text->size(), ":", *text});
    }
  }
  return packed;
}

GRADUS_INLINE dynamic_array<property> unpack(std::string_view packed) {
  dynamic_array<property> properties;
  const auto next = [&packed] {
    std::size_t size = 0;
    while (packed.front() != ':') {
      size = size * 10 + static_cast<std::size_t>(packed.front() - '0');
      packed.remove_prefix(1);
    }
    std::string text{packed.substr(1, size)};
    packed.remove_prefix(1 + size);
    return text;
  };
  while (!packed.empty()) {
    std::string name = next();
    properties.push_back({.name = std::move(name), .value = next()});
  }
  return properties;
}

GRADUS_COLD GRADUS_INLINE void keep_first_difference(std::span<property> of_rank) {
  for (;;) {
    bool same = true;
    bool ends = true;
    const std::string first = of_rank[0].value.substr(0, of_rank[0].value.find('\n'));
    for (const property& each : of_rank) {
      const std::size_t end = each.value.find('\n');
      same = same && std::string_view{each.value}.substr(0, end) == first;
      ends = ends && end == std::string::npos;
    }
    for (property& each : of_rank) {
      const std::size_t end = each.value.find('\n');
      if (same && !ends) {
        each.value = end == std::string::npos ? "nothing more" : each.value.substr(end + 1);
      } else if (end != std::string::npos) {
        each.value.resize(end);
      }
    }
    if (!same || ends) {
      return;
    }
  }
}

GRADUS_COLD GRADUS_INLINE void require_same_properties(std::string_view what,
                                                       std::span<const dynamic_array<property>> properties_of_rank,
                                                       const std::source_location& where) {
  std::size_t most = 0;
  for (const auto& properties : properties_of_rank) {
    most = std::max(most, properties.size());
  }
  for (std::size_t i = 0; i < most; ++i) {
    std::string_view name;  // the name on rank 0, or on the first rank that has this many properties
    for (const auto& properties : properties_of_rank) {
      if (i < properties.size()) {
        name = properties[i].name;
        break;
      }
    }
    dynamic_array<property> of_rank;  // the property at this position on each rank
    of_rank.reserve(properties_of_rank.size());
    for (const auto& properties : properties_of_rank) {
      of_rank.push_back(
          {.name = {},
           .value = i >= properties.size() ? "nothing"
                    : properties[i].name == name
                        ? properties[i].value
                        : gradus::join({"'", properties[i].name, "' (", properties[i].value, ") in its place"})});
    }
    keep_first_difference({of_rank.data(), of_rank.size()});
    std::string values;  // each value with its ranks, ordered by the first rank
    dynamic_array<int> ranks;
    std::size_t different = 0;
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
      const std::string& value = of_rank[rank].value;
      ranks.clear();
      for (std::size_t other = 0; other < of_rank.size(); ++other) {
        if (of_rank[other].value == value) {
          ranks.push_back(static_cast<int>(other));
        }
      }
      if (ranks.front() == static_cast<int>(rank)) {
        append_text(values,
                    {different == 0 ? "" : "; ", value.empty() ? "an empty text" : value, " on ", ranks_text(ranks)});
        ++different;
      }
    }
    if (different > 1) {
      raise<configuration_error>(what, {"the same ", name, " on all ranks"}, values,
                                 "start all ranks with the same program, options and data", where);
    }
  }
}

}  // namespace gradus::comm::detail

namespace gradus::comm {

GRADUS_COLD GRADUS_INLINE void require_agreement(link& group, std::string_view what,
                                                 std::span<const property> properties, std::source_location where) {
  // Compare the version first: the other properties may have a different meaning in another version.
  const property library{.name = "version of gradus", .value = std::string{version}};
  const std::string packed = detail::pack({&library, 1}) + detail::pack(properties);
  const auto ranks = static_cast<std::size_t>(group.size());
  const auto own = static_cast<std::size_t>(group.rank());
  constexpr std::size_t digest_bytes = 16;  // hash and size; all ranks have the same byte order

  std::vector<std::uint8_t> digests(digest_bytes * ranks);
  const std::span mine = std::span{digests}.subspan(own * digest_bytes, digest_bytes);
  const std::uint64_t digest[] = {gradus::detail::hash_text(packed), packed.size()};
  std::memcpy(mine.data(), digest, digest_bytes);
  group.all_gather(mine, digests, where);
  const auto size_of = [&](std::size_t rank) -> std::size_t {
    std::uint64_t size = 0;
    std::memcpy(&size, digests.data() + digest_bytes * rank + sizeof(size), sizeof(size));
    return size;
  };
  bool same = true;
  std::size_t longest = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    same = same && std::memcmp(digests.data() + digest_bytes * rank, digests.data(), digest_bytes) == 0;
    longest = std::max(longest, size_of(rank));
  }
  if (same) {
    return;
  }

  std::vector<std::uint8_t> texts(longest * ranks);  // (ranks, longest)
  const std::span my_text = std::span{texts}.subspan(own * longest, longest);
  std::memcpy(my_text.data(), packed.data(), packed.size());
  group.all_gather(my_text, texts, where);
  dynamic_array<dynamic_array<property>> properties_of_rank(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    properties_of_rank[rank] =
        detail::unpack({reinterpret_cast<const char*>(texts.data() + rank * longest), size_of(rank)});
  }
  detail::require_same_properties(what, properties_of_rank, where);
}

}  // namespace gradus::comm
#endif
