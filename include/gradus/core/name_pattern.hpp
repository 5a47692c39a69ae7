// SPDX-License-Identifier: BSL-1.0
//
// Patterns of names with wildcards, such as "encoder.*": they choose layers and parameters of a network.
#pragma once

#include <cstddef>      // std::size_t
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
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

/// The names that fit a pattern, and for messages all that were tried.
class name_choice {
 public:
  /// The text must outlive the object.
  explicit name_choice(std::string_view pattern) noexcept : pattern_{pattern} {}

  /// True if the name fits.
  [[nodiscard]] bool takes(std::string_view name) {
    append_text(tried_, {tried_.empty() ? "" : ", ", name});
    const bool fits = matches_pattern(pattern_, name);
    any_ = any_ || fits;
    return fits;
  }

  /// @param kind  what the names are of: "layers"
  /// @throws configuration_error with all names unless one fits
  void require_any(std::string_view operation, std::string_view kind) const {
    if (!any_) {
      raise<configuration_error>(operation, {"a pattern of ", kind, ", which are ", tried_.empty() ? "none" : tried_},
                                 {"'", pattern_, "', which fits none of them"},
                                 "* stands for any characters and ? for one; add the layers before");
    }
  }

 private:
  std::string_view pattern_;
  std::string tried_;
  bool any_ = false;
};

}  // namespace gradus
