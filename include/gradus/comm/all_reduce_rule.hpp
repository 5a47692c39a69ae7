// SPDX-License-Identifier: BSL-1.0
//
// Rules that choose an all-reduce algorithm by array size: written by hand, from a spec string or from measurements.
#pragma once

#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <limits>       // std::numeric_limits
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm {

/// Algorithms of all-reduce. All except `native` use send and receive.
enum class all_reduce_algorithm : unsigned char {
  native,                         ///< the communicator's own: the MPI library's, or shared memory
  ring,                           ///< 2(p-1) steps of n/p bytes; any number of ranks
  halving_doubling,               ///< 2 log2(p) steps; ranks beyond a power of two first send to a neighbor
  binary_blocks,                  ///< halving-doubling in blocks of powers of two; the same for a power of two
  recursive_doubling,             ///< log2(p) steps of n bytes: for short arrays
  tree,                           ///< to rank 0 and back along binomial trees
  hierarchical_ring,              ///< within each node, then rings between nodes, then within each node
  hierarchical_halving_doubling,  ///< the same with halving-doubling between nodes
};

/// The names of the algorithms, in the order of the enumerators.
inline constexpr std::array<std::string_view, 8> all_reduce_algorithm_names{"native",
                                                                            "ring",
                                                                            "halving_doubling",
                                                                            "binary_blocks",
                                                                            "recursive_doubling",
                                                                            "tree",
                                                                            "hierarchical_ring",
                                                                            "hierarchical_halving_doubling"};

/// The name of an algorithm, such as "ring".
[[nodiscard]] constexpr std::string_view name_of(all_reduce_algorithm algorithm) noexcept {
  return all_reduce_algorithm_names[static_cast<std::size_t>(algorithm)];
}

/// True if the algorithm reduces within nodes first, and so has to know the node of each rank.
[[nodiscard]] constexpr bool is_hierarchical(all_reduce_algorithm algorithm) noexcept {
  return algorithm >= all_reduce_algorithm::hierarchical_ring;
}

/// The algorithm for arrays up to a size. The first rule in a list that allows the size is used.
struct all_reduce_rule {
  /// The limit of a rule for all sizes.
  static constexpr index_t no_limit = std::numeric_limits<index_t>::max();

  /// The algorithm.
  all_reduce_algorithm algorithm = all_reduce_algorithm::ring;
  int rings = 1;  ///< for `ring`: number of concurrent rings, each for a part of the array, over different links
  index_t largest_bytes = no_limit;     ///< limit in bytes
  index_t largest_elements = no_limit;  ///< limit in elements

  /// True if all members are equal.
  friend bool operator==(const all_reduce_rule&, const all_reduce_rule&) = default;
};

/// The rules as text: "recursive_doubling up to 16384 bytes, ring".
[[nodiscard]] std::string describe(std::span<const all_reduce_rule> rules);

/// @throws configuration_error unless the rules are valid and cover every size
void require_all_reduce_rules(std::span<const all_reduce_rule> rules);

/// The rule for an array of this size. @pre require_all_reduce_rules(rules)
[[nodiscard]] const all_reduce_rule& choose(std::span<const all_reduce_rule> rules, index_t elements,
                                            index_t element_bytes) noexcept;

namespace detail {

/// An algorithm name of tf_cnn_benchmarks, and the algorithm here.
struct spec_word {
  std::string_view word;
  all_reduce_algorithm algorithm;
};

inline constexpr std::array<spec_word, 9> spec_words{
    {{"nccl", all_reduce_algorithm::native},
     {"nccl/xring", all_reduce_algorithm::hierarchical_ring},
     {"nccl/rechd", all_reduce_algorithm::hierarchical_halving_doubling},
     {"nccl/pscpu", all_reduce_algorithm::tree},
     {"xring", all_reduce_algorithm::ring},
     {"pscpu", all_reduce_algorithm::tree},
     {"psgpu", all_reduce_algorithm::tree},
     {"pscpu/pscpu", all_reduce_algorithm::tree},
     {"collective", all_reduce_algorithm::native}}};

/// Parses a limit: "64K" -> 65536. @throws format_error
[[nodiscard]] index_t parse_spec_limit(std::string_view spec, std::string_view word);

/// Parses an algorithm: "xring#2" -> ring, 2. @throws format_error
[[nodiscard]] all_reduce_rule parse_spec_algorithm(std::string_view spec, std::string_view word);

}  // namespace detail

/// Parses rules in the syntax of tf_cnn_benchmarks' --all_reduce_spec:
///
///   spec  ::= range | range ':' limit ':' spec
///   range ::= algorithm [ '#' shards ]
///   limit ::= number of elements, with K, M, G or T for powers of 1024
///
///   algorithm            | here
///   nccl, collective     | native
///   nccl/xring           | hierarchical_ring
///   nccl/rechd           | hierarchical_halving_doubling
///   xring                | ring; shards are concurrent rings
///   pscpu, psgpu, ...    | tree
///   or a name of all_reduce_algorithm
///
/// Example: "halving_doubling:64K:xring#2" means halving-doubling up to 65536 elements and two rings above. A limit
/// applies to the range before it.
/// @throws format_error with what was expected
[[nodiscard]] std::vector<all_reduce_rule> parse_all_reduce_spec(std::string_view spec);

}  // namespace gradus::comm

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm {

GRADUS_INLINE std::string describe(std::span<const all_reduce_rule> rules) {
  std::string text;
  for (const all_reduce_rule& each : rules) {
    append_text(text, {text.empty() ? "" : ", ", name_of(each.algorithm)});
    if (each.rings != 1) {
      append_text(text, {" x ", each.rings});
    }
    if (each.largest_bytes != all_reduce_rule::no_limit) {
      append_text(text, {" up to ", each.largest_bytes, " bytes"});
    }
    if (each.largest_elements != all_reduce_rule::no_limit) {
      append_text(text, {" up to ", each.largest_elements, " elements"});
    }
  }
  return text;
}

GRADUS_INLINE void require_all_reduce_rules(std::span<const all_reduce_rule> rules) {
  if (rules.empty() || rules.back().largest_bytes != all_reduce_rule::no_limit ||
      rules.back().largest_elements != all_reduce_rule::no_limit) {
    raise<configuration_error>("all_reduce rules", "a last rule without a limit",
                               rules.empty() ? std::string{"no rules"} : describe(rules));
  }
  for (const all_reduce_rule& each : rules) {
    if (each.rings < 1 || each.rings > 64) {
      raise<configuration_error>("all_reduce rules", "1 to 64 rings", {each.rings});
    }
    if (static_cast<std::size_t>(each.algorithm) >= all_reduce_algorithm_names.size()) {
      raise<configuration_error>("all_reduce rules", "an algorithm of the list", {static_cast<int>(each.algorithm)});
    }
  }
}

GRADUS_INLINE const all_reduce_rule& choose(std::span<const all_reduce_rule> rules, index_t elements,
                                            index_t element_bytes) noexcept {
  std::size_t i = 0;
  while (i + 1 < rules.size() &&
         (elements > rules[i].largest_elements || elements * element_bytes > rules[i].largest_bytes)) {
    ++i;
  }
  return rules[i];
}

}  // namespace gradus::comm

namespace gradus::comm::detail {

GRADUS_INLINE index_t parse_spec_limit(std::string_view spec, std::string_view word) {
  index_t value = 0;
  std::size_t i = 0;
  for (; i < word.size() && word[i] >= '0' && word[i] <= '9' && value < (index_t{1} << 40); ++i) {
    value = 10 * value + (word[i] - '0');
  }
  index_t unit = 1;
  if (i > 0 && i + 1 == word.size()) {
    constexpr std::string_view units = "kKmMgGtT";
    if (const std::size_t at = units.find(word[i]); at != std::string_view::npos) {
      unit = index_t{1} << (10 * (at / 2 + 1));
      ++i;
    }
  }
  if (i == 0 || i != word.size() || value == 0 || value > all_reduce_rule::no_limit / unit) {
    raise<format_error>({"all_reduce_spec '", spec, "'"}, "a limit such as 4096, 64K or 2M between two algorithms",
                        {"'", word, "'"});
  }
  return value * unit;
}

GRADUS_INLINE all_reduce_rule parse_spec_algorithm(std::string_view spec, std::string_view word) {
  std::string_view name = word;
  index_t shards = 1;
  if (const std::size_t sign = word.rfind('#'); sign != std::string_view::npos) {
    shards = 0;
    for (const char digit : word.substr(sign + 1)) {
      shards = digit >= '0' && digit <= '9' && shards <= 64 ? 10 * shards + (digit - '0') : 1000;
    }
    if (shards < 1 || shards > 64) {
      raise<format_error>({"all_reduce_spec '", spec, "'"}, "a number from 1 to 64 after '#'",
                          {"'", word.substr(sign), "'"});
    }
    name = word.substr(0, sign);
  }
  std::string known;
  for (const spec_word& each : spec_words) {
    if (each.word == name) {
      return {.algorithm = each.algorithm,
              .rings = each.algorithm == all_reduce_algorithm::ring ? static_cast<int>(shards) : 1};
    }
    append_text(known, {known.empty() ? "one of " : ", ", each.word});
  }
  for (std::size_t i = 0; i < all_reduce_algorithm_names.size(); ++i) {
    if (all_reduce_algorithm_names[i] == name) {
      return {.algorithm = static_cast<all_reduce_algorithm>(i), .rings = static_cast<int>(shards)};
    }
    append_text(known, {", ", all_reduce_algorithm_names[i]});
  }
  raise<format_error>({"all_reduce_spec '", spec, "'"}, known, {"'", word, "'"});
}

}  // namespace gradus::comm::detail

namespace gradus::comm {

GRADUS_INLINE std::vector<all_reduce_rule> parse_all_reduce_spec(std::string_view spec) {
  std::vector<all_reduce_rule> rules;
  bool limit_next = false;
  for (std::size_t begin = 0; begin <= spec.size();) {
    const std::size_t colon = spec.find(':', begin);
    const std::string_view word = spec.substr(begin, colon == std::string_view::npos ? colon : colon - begin);
    if (limit_next) {
      const index_t limit = detail::parse_spec_limit(spec, word);
      if (rules.size() > 1 && limit <= rules[rules.size() - 2].largest_elements) {
        raise<format_error>({"all_reduce_spec '", spec, "'"}, "limits that ascend", {"'", word, "'"});
      }
      rules.back().largest_elements = limit;
    } else {
      rules.push_back(detail::parse_spec_algorithm(spec, word));
    }
    limit_next = !limit_next;
    if (colon == std::string_view::npos) {
      break;
    }
    begin = colon + 1;
  }
  if (!limit_next) {
    raise<format_error>({"all_reduce_spec '", spec, "'"}, "an algorithm after the last limit", "nothing");
  }
  return rules;
}

}  // namespace gradus::comm
#endif
