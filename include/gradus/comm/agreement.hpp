// SPDX-License-Identifier: BSL-1.0
//
// Do all ranks mean the same? Compares named facts and says on every rank what differs and where.
// Module: comm. Depends on: core.
#pragma once

#include <algorithm>         // std::copy, std::max, std::sort
#include <cstddef>           // std::size_t
#include <cstdint>           // std::int64_t, std::uint64_t, std::uint8_t
#include <initializer_list>  // std::initializer_list
#include <map>               // std::map
#include <source_location>   // std::source_location
#include <span>              // std::span
#include <string>            // std::string, std::to_string
#include <string_view>       // std::string_view
#include <utility>           // std::move, std::pair
#include <vector>            // std::vector

#include "gradus/comm/communicator.hpp"  // all_gather, communicator
#include "gradus/core/error.hpp"         // configuration_error

namespace gradus::comm {

/// Something that must be the same on all ranks, e.g. {"batch size", "64"}.
struct fact {
  std::string name;
  std::string value;
};

namespace detail {

/// Lengths in front of texts: any text can be packed.
inline std::string pack(std::span<const fact> facts) {
  std::string packed;
  for (const fact& each : facts) {
    for (const std::string* text : {&each.name, &each.value}) {
      packed.append(std::to_string(text->size())).append(":").append(*text);
    }
  }
  return packed;
}

inline std::vector<fact> unpack(std::string_view packed) {
  std::vector<fact> facts;
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
    facts.push_back({.name = std::move(name), .value = next()});
  }
  return facts;
}

/// FNV-1a, 64 bits.
inline std::uint64_t hash_of(std::string_view text) noexcept {
  std::uint64_t hash = 14695981039346656037U;
  for (const char character : text) {
    hash = (hash ^ static_cast<unsigned char>(character)) * 1099511628211U;
  }
  return hash;
}

/// Throws if the ranks' facts differ; all ranks have the same `facts_of_rank` and so throw the same.
inline void require_same_facts(std::string_view what, const std::vector<std::vector<fact>>& facts_of_rank,
                               const std::source_location& where) {
  std::size_t most = 0;
  for (const auto& facts : facts_of_rank) {
    most = std::max(most, facts.size());
  }
  for (std::size_t i = 0; i < most; ++i) {
    std::string name;  // as rank 0 has it, or the first rank that has so many facts
    for (const auto& facts : facts_of_rank) {
      if (i < facts.size()) {
        name = facts[i].name;
        break;
      }
    }
    std::map<std::string, std::vector<int>> ranks_of_value;
    for (std::size_t rank = 0; rank < facts_of_rank.size(); ++rank) {
      const auto& facts = facts_of_rank[rank];
      std::string value = i >= facts.size()       ? "nothing"
                          : facts[i].name == name ? facts[i].value
                                                  : "'" + facts[i].name + "' (" + facts[i].value + ") in its place";
      ranks_of_value[std::move(value)].push_back(static_cast<int>(rank));
    }
    if (ranks_of_value.size() > 1) {
      std::vector<std::pair<std::vector<int>, std::string>> by_rank;
      for (const auto& [value, ranks] : ranks_of_value) {
        by_rank.emplace_back(ranks, value);
      }
      std::sort(by_rank.begin(), by_rank.end());
      std::string values;
      for (const auto& [ranks, value] : by_rank) {
        values.append(values.empty() ? "" : "; ").append(value).append(" on ").append(ranks_text(ranks));
      }
      throw configuration_error{what, "the same " + name + " on all ranks", values,
                                "start all ranks with the same program, options and data", where};
    }
  }
}

}  // namespace detail

/// Compares facts between all ranks: returns on all of them, or throws on all of them.
///
/// To be called by all ranks, before the first step and whenever something changed that must be the same everywhere.
/// Ranks that agree exchange 16 bytes each; only if they do not, the texts.
///
/// @param what   what the facts describe, for the message: "training plan"
/// @param facts  in the same order on all ranks
/// @throws configuration_error that names the first fact that differs and the values with the ranks that hold them
/// @throws communication_error if a rank fails or does not come
template <class Communicator>
void require_agreement(Communicator& communicator, std::string_view what, std::span<const fact> facts,
                       std::source_location where = std::source_location::current()) {
  static_assert(explain_communicator<Communicator>());
  detail::require_open(communicator, "require_agreement", where);
  const std::string packed = detail::pack(facts);
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto own = static_cast<std::size_t>(communicator.rank());

  std::vector<std::int64_t> digests(2 * ranks);  // (ranks, 2): hash, bytes
  const std::int64_t digest[] = {static_cast<std::int64_t>(detail::hash_of(packed)),
                                 static_cast<std::int64_t>(packed.size())};
  all_gather(communicator, digest, digests, where).wait(where);
  bool same = true;
  std::size_t longest = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    same = same && digests[2 * rank] == digests[0] && digests[2 * rank + 1] == digests[1];
    longest = std::max(longest, static_cast<std::size_t>(digests[2 * rank + 1]));
  }
  if (same) {
    return;
  }

  std::vector<std::uint8_t> texts(longest * ranks);  // (ranks, longest)
  const auto mine = std::span{texts}.subspan(own * longest, longest);
  std::copy(packed.begin(), packed.end(), mine.begin());
  all_gather(communicator, mine, texts, where).wait(where);
  std::vector<std::vector<fact>> facts_of_rank(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto bytes = static_cast<std::size_t>(digests[2 * rank + 1]);
    facts_of_rank[rank] = detail::unpack({reinterpret_cast<const char*>(texts.data() + rank * longest), bytes});
  }
  detail::require_same_facts(what, facts_of_rank, where);
}

/// The same for facts written in the call: require_agreement(world, "options", {{"seed", "1"}}).
template <class Communicator>
void require_agreement(Communicator& communicator, std::string_view what, std::initializer_list<fact> facts,
                       std::source_location where = std::source_location::current()) {
  require_agreement(communicator, what, std::span{facts.begin(), facts.size()}, where);
}

}  // namespace gradus::comm
