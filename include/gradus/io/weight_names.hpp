// SPDX-License-Identifier: BSL-1.0
//
// Which weights of a file are loaded, and under which names: patterns, and rules that rename.
#pragma once

#include <concepts>          // std::convertible_to, std::invocable, std::same_as
#include <cstddef>           // std::size_t
#include <functional>        // std::function
#include <initializer_list>  // std::initializer_list
#include <optional>          // std::nullopt, std::optional
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

/// Gives tensors of a file the names that a network has for them. A map of pairs also gives the names in the file.
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
      if (auto result = replaced(name, from, to)) {
        return *std::move(result);
      }
    }
    return std::string{name};
  }

  /// The name in the file of a weight of the network: that of the first pair whose second pattern fits, or the same.
  /// @throws configuration_error if the map is a function, or gives the name in the file another name in the network
  [[nodiscard]] std::string name_in_file(std::string_view name,
                                         error_location where = error_location::current()) const {
    if (function_) {
      raise<configuration_error>("rename", {"the name in the file of '", name, "'"}, "a function of names in the file",
                                 "give pairs of patterns", where);
    }
    std::string result{name};
    for (const auto& [from, to] : pairs_) {
      // A second pattern without * stands for several names if the first has one.
      const bool is_invertible = (from.find('*') == std::string::npos) == (to.find('*') == std::string::npos);
      if (auto inverse = replaced(name, to, from); inverse && is_invertible && !to.empty()) {
        result = *std::move(inverse);
        break;
      }
    }
    if (const std::string back = (*this)(result); back != name) {
      raise<configuration_error>("rename", {"pairs that give '", name, "' one name in the file"},
                                 {"'", result, "', which is '", back, "' in the network"},
                                 "the first pair that fits counts, in both directions", where);
    }
    return result;
  }

 private:
  /// The second pattern with the characters for which * stands in the first; nothing if the first does not fit.
  [[nodiscard]] static std::optional<std::string> replaced(std::string_view name, const std::string& from,
                                                           const std::string& to) {
    const std::size_t star = from.find('*');
    if (star == std::string::npos) {
      return name == from ? std::optional{to} : std::nullopt;
    }
    const std::string_view before = std::string_view{from}.substr(0, star);
    const std::string_view behind = std::string_view{from}.substr(star + 1);
    if (name.size() < before.size() + behind.size() || !name.starts_with(before) || !name.ends_with(behind)) {
      return std::nullopt;
    }
    std::string result = to;
    if (const std::size_t new_star = result.find('*'); new_star != std::string::npos) {
      result.replace(new_star, 1, name.substr(star, name.size() - before.size() - behind.size()));
    }
    return result;
  }

  std::vector<std::pair<std::string, std::string>> pairs_;
  std::function<std::string(std::string_view)> function_;
};

}  // namespace gradus::io
