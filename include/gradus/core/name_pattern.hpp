// SPDX-License-Identifier: BSL-1.0
//
// Patterns of names with wildcards, such as "encoder.*": they choose layers and parameters of a network.
#pragma once

#include <algorithm>    // std::max, std::min, std::sort
#include <cstddef>      // std::size_t
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/compiled.hpp"
#include "gradus/core/text.hpp"

namespace gradus {

/// True if the whole name fits the pattern: `*` stands for any characters, also for none, and `?` for one character.
/// Every other character stands for itself.
[[nodiscard]] constexpr bool matches_pattern(std::string_view pattern, std::string_view name) noexcept {
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;  // the last star, and the name's position to try next behind it
  std::size_t retry = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {  // the star takes one character more
      p = star + 1;
      n = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') {
    ++p;
  }
  return p == pattern.size();
}

/// How many characters must be inserted, removed or replaced to make one name of the other (Levenshtein 1966).
[[nodiscard]] std::size_t name_distance(std::string_view one, std::string_view other);

/// Names for a message about one that is unknown: all, or of more than 16 the nearest 8, each in the order of add.
class known_names {
 public:
  /// Adds a name; it must outlive the object.
  void add(std::string_view name) { names_.push_back(name); }

  /// "conv1, conv2, scores", "conv1, conv2, ... (of 160)" or "none".
  [[nodiscard]] std::string similar(std::string_view unknown) const;

  /// The first name that fits a pattern, or an empty text.
  [[nodiscard]] std::string_view first_that_fits(std::string_view pattern) const noexcept;

  /// True if a name begins with `group` and a dot.
  [[nodiscard]] bool has_group(std::string_view group) const noexcept;

  /// The name that is so similar that it may be meant, or an empty text.
  [[nodiscard]] std::string_view meant_by(std::string_view unknown) const;

 private:
  std::vector<std::string_view> names_;
};

}  // namespace gradus

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus {

GRADUS_INLINE std::size_t name_distance(std::string_view one, std::string_view other) {
  std::vector<std::size_t> row(other.size() + 1);  // distances of a beginning of `one` from all beginnings of `other`
  for (std::size_t k = 0; k < row.size(); ++k) {
    row[k] = k;
  }
  for (std::size_t i = 0; i < one.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t k = 0; k < other.size(); ++k) {
      const std::size_t replaced = diagonal + (one[i] == other[k] ? 0 : 1);
      diagonal = row[k + 1];
      row[k + 1] = std::min({replaced, row[k] + 1, diagonal + 1});
    }
  }
  return row.back();
}

GRADUS_INLINE std::string known_names::similar(std::string_view unknown) const {
  constexpr std::size_t all = 16;
  constexpr std::size_t some = 8;
  std::vector<std::size_t> distances;
  for (const std::string_view each : names_) {
    distances.push_back(names_.size() <= all ? 0 : name_distance(unknown, each));
  }
  std::vector<std::size_t> ordered = distances;
  std::sort(ordered.begin(), ordered.end());
  std::string text;
  std::size_t shown = 0;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (names_.size() <= all || (distances[i] <= ordered[some - 1] && shown < some)) {
      append_text(text, {shown == 0 ? "" : ", ", names_[i]});
      ++shown;
    }
  }
  if (shown < names_.size()) {
    append_text(text, {", ... (", names_.size(), " in all)"});
  }
  return text.empty() ? "none" : text;
}

GRADUS_INLINE std::string_view known_names::first_that_fits(std::string_view pattern) const noexcept {
  for (const std::string_view each : names_) {
    if (matches_pattern(pattern, each)) {
      return each;
    }
  }
  return {};
}

GRADUS_INLINE bool known_names::has_group(std::string_view group) const noexcept {
  for (const std::string_view each : names_) {
    if (each.size() > group.size() && each.starts_with(group) && each[group.size()] == '.') {
      return true;
    }
  }
  return false;
}

GRADUS_INLINE std::string_view known_names::meant_by(std::string_view unknown) const {
  std::string_view nearest;
  std::size_t least = std::max(std::size_t{2}, unknown.size() / 4) + 1;
  for (const std::string_view each : names_) {
    if (const std::size_t distance = name_distance(unknown, each); distance < least) {
      least = distance;
      nearest = each;
    }
  }
  return nearest;
}

}  // namespace gradus
#endif
