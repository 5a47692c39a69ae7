// SPDX-License-Identifier: BSL-1.0
//
// What callbacks remember from epoch to epoch, for checkpoints.
#pragma once

#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/compiled.hpp"
#include "gradus/core/text.hpp"

namespace gradus::train {

/// Lists of numbers that callbacks remember. A callback with a state has the members
///
///   void save_state(train::callback_state& state) const { state.put("my_callback", {{best_, bad_epochs_}}); }
///   void load_state(train::callback_state& state) {
///     if (const auto numbers = state.take("my_callback"); numbers.size() == 2) { ... }
///   }
///
/// The numbers must be the same on all ranks. Several callbacks of a name get their lists in the order in which they
/// are given to fit.
class callback_state {
 public:
  /// A name and its numbers.
  struct entry {
    std::string name;             ///< differs from those of all other entries
    std::vector<double> numbers;  ///< of the callback's choice
    bool taken = false;           ///< take has returned it
  };

  /// Appends a list. A second one of a name is stored as "name#2".
  void put(std::string_view name, std::span<const double> numbers);

  /// The first list of a name that has not been taken; empty if there is none. It is valid until put or clear.
  [[nodiscard]] std::span<const double> take(std::string_view name);

  /// All lists, in the order of put.
  [[nodiscard]] std::span<const entry> entries() const noexcept { return entries_; }
  /// Appends an entry under the very name that it has.
  void append(entry one) { entries_.push_back(std::move(one)); }
  /// Removes all lists.
  void clear() noexcept { entries_.clear(); }

 private:
  [[nodiscard]] static std::string_view base_of(std::string_view name) noexcept {
    return name.substr(0, name.find('#'));
  }

  std::vector<entry> entries_;
};

}  // namespace gradus::train

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::train {

GRADUS_INLINE void callback_state::put(std::string_view name, std::span<const double> numbers) {
  std::size_t same = 1;
  for (const entry& each : entries_) {
    same += base_of(each.name) == name ? 1U : 0U;
  }
  std::string own{name};
  if (same > 1) {
    append_text(own, {"#", same});
  }
  entries_.push_back({.name = std::move(own), .numbers = {numbers.begin(), numbers.end()}});
}

GRADUS_INLINE std::span<const double> callback_state::take(std::string_view name) {
  for (entry& each : entries_) {
    if (!each.taken && base_of(each.name) == name) {
      each.taken = true;
      return each.numbers;
    }
  }
  return {};
}

}  // namespace gradus::train
#endif
