// SPDX-License-Identifier: BSL-1.0
//
// Finds names in a list that grows: the layers of a network.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/random.hpp"

namespace gradus::nn::detail {

/// The positions of names in a list, which keeps the names: a hash table with linear probing.
class name_index {
 public:
  /// The position of a name; `count` if it is not there.
  /// @param count    names in the list
  /// @param name_of  the name at a position
  template <class NameOf>
  [[nodiscard]] std::size_t find(std::string_view name, std::size_t count, const NameOf& name_of) const {
    const std::uint64_t hash = gradus::detail::hash_text(name);
    for (std::size_t at = home(hash); at < slots_.size() && slots_[at].number != 0; at = next(at)) {
      if (const std::size_t position = slots_[at].number - 1; slots_[at].hash == hash && name_of(position) == name) {
        return position;
      }
    }
    return count;
  }

  /// Adds the name at the end of a list. @param position  the number of names before it, all of which have been added
  void add(std::string_view name, std::size_t position) {
    if (2 * (position + 1) > slots_.size()) {
      grow();
    }
    put({.hash = gradus::detail::hash_text(name), .number = position + 1});
  }

 private:
  struct slot {
    std::uint64_t hash = 0;
    std::size_t number = 0;  // the position + 1; 0: empty
  };

  [[nodiscard]] std::size_t home(std::uint64_t hash) const noexcept { return hash & (slots_.size() - 1); }
  [[nodiscard]] std::size_t next(std::size_t at) const noexcept { return (at + 1) & (slots_.size() - 1); }

  void put(const slot& made);

  void grow();

  dynamic_array<slot> slots_;  // a power of two of them
};

}  // namespace gradus::nn::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_INLINE void name_index::put(const slot& made) {
  std::size_t at = home(made.hash);
  while (slots_[at].number != 0) {
    at = next(at);
  }
  slots_[at] = made;
}

GRADUS_INLINE void name_index::grow() {
  const dynamic_array<slot> before = std::move(slots_);
  slots_ = dynamic_array<slot>(before.empty() ? 32 : 2 * before.size());
  for (const slot& each : before) {
    if (each.number != 0) {
      put(each);
    }
  }
}

}  // namespace gradus::nn::detail
#endif
