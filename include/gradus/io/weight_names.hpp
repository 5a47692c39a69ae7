// SPDX-License-Identifier: BSL-1.0
//
// Which weights of a file are loaded, and under which names: patterns, and rules that rename.
#pragma once

#include <concepts>          // std::convertible_to, std::invocable, std::same_as
#include <cstddef>           // std::size_t
#include <functional>        // std::function
#include <initializer_list>  // std::initializer_list
#include <string>            // std::string
#include <string_view>       // std::string_view
#include <type_traits>       // std::invoke_result_t, std::remove_cvref_t
#include <utility>           // std::move, std::pair
#include <vector>            // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/name_pattern.hpp"

namespace gradus::io {

/// Patterns of names with wildcards: "backbone.*", or {"encoder.*", "*.bias"}. Without a pattern it fits every name.
class name_patterns {
 public:
  /// Fits every name.
  name_patterns() = default;
  /// One pattern: * stands for any characters, ? for one.
  name_patterns(const char* pattern) : patterns_{std::string{pattern}} {}
  /// One pattern.
  name_patterns(std::string pattern) : patterns_{std::move(pattern)} {}
  /// Several patterns: a name has to fit one of them.
  name_patterns(std::initializer_list<std::string> patterns) : patterns_{patterns} {}

  /// True if the whole name fits.
  [[nodiscard]] bool fits(std::string_view name) const noexcept {
    for (const std::string& each : patterns_) {
      if (matches_pattern(each, name)) {
        return true;
      }
    }
    return patterns_.empty();
  }
  /// The patterns.
  [[nodiscard]] const std::vector<std::string>& patterns() const noexcept { return patterns_; }

 private:
  std::vector<std::string> patterns_;
};

/// Gives tensors of a file the names that a network has for them.
///
///   .rename = {{"backbone.*", "encoder.*"}, {"fc.*", "scores.*"}}
///   .rename = [](std::string_view name) { return "encoder." + std::string{name}; }
class name_map {
 public:
  /// Keeps every name.
  name_map() = default;
  /// Pairs of patterns: the first pattern has at most one *, which stands for any characters, and the second gets them
  /// for its own *. The first pair whose first pattern fits the whole name counts; other names stay. An empty second
  /// pattern makes the tensor be ignored.
  /// @throws configuration_error if a pattern has more than one *, or the second has one and the first has none
  name_map(std::initializer_list<std::pair<std::string, std::string>> pairs)
      : name_map{std::vector<std::pair<std::string, std::string>>(pairs)} {}
  /// The same for a vector.
  explicit name_map(std::vector<std::pair<std::string, std::string>> pairs,
                    error_location where = error_location::current())
      : pairs_{std::move(pairs)} {
    for (const auto& [from, to] : pairs_) {
      const std::size_t star = from.find('*');
      const std::size_t new_star = to.find('*');
      constexpr std::size_t none = std::string::npos;
      if ((star != none && from.find('*', star + 1) != none) ||
          (new_star != none && (star == none || to.find('*', new_star + 1) != none))) {
        raise<configuration_error>("rename", "two patterns with one * each at most", {"'", from, "' and '", to, "'"},
                                   {}, where);
      }
    }
  }
  /// A function of the name in the file, which returns the name in the network; empty: the tensor is ignored.
  template <class Function>
  requires(std::invocable<const Function&, std::string_view> &&
           !std::same_as<std::remove_cvref_t<Function>, name_map> &&
           std::convertible_to<std::invoke_result_t<const Function&, std::string_view>, std::string>)
      name_map(Function function)
      : function_{std::move(function)} {}

  /// The name in the network.
  [[nodiscard]] std::string operator()(std::string_view name) const {
    if (function_) {
      return function_(name);
    }
    for (const auto& [from, to] : pairs_) {
      const std::size_t star = from.find('*');
      if (star == std::string::npos) {
        if (name == from) {
          return to;
        }
        continue;
      }
      const std::string_view before = std::string_view{from}.substr(0, star);
      const std::string_view behind = std::string_view{from}.substr(star + 1);
      if (name.size() >= before.size() + behind.size() && name.starts_with(before) && name.ends_with(behind)) {
        std::string result = to;
        if (const std::size_t new_star = result.find('*'); new_star != std::string::npos) {
          result.replace(new_star, 1, name.substr(star, name.size() - before.size() - behind.size()));
        }
        return result;
      }
    }
    return std::string{name};
  }

 private:
  std::vector<std::pair<std::string, std::string>> pairs_;
  std::function<std::string(std::string_view)> function_;
};

}  // namespace gradus::io
