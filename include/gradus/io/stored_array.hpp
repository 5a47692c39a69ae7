// SPDX-License-Identifier: BSL-1.0
//
// An array of a checkpoint in the memory of one rank, and how ranks share the arrays that all of them have.
#pragma once

#include <algorithm>  // std::min
#include <array>      // std::array
#include <cstddef>    // std::byte, std::size_t
#include <cstdint>    // std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t
#include <cstring>    // std::memcpy
#include <span>       // std::span
#include <string>     // std::string
#include <vector>     // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/io/element_type.hpp"

namespace gradus::io {

/// Elements [begin, end) of an array, in its logical order.
struct element_range {
  index_t begin = 0;  ///< the first element
  index_t end = 0;    ///< behind the last one

  /// The number of elements.
  [[nodiscard]] index_t size() const noexcept { return end - begin; }
  /// True if all members are equal.
  friend bool operator==(const element_range&, const element_range&) noexcept = default;
};

/// An array of a checkpoint: what it is, which part of it this rank has, and where that is in memory. (What a file says
/// of an array is a safetensors_entry.) All members but `held` and `memory` are the same on all ranks.
struct stored_array {
  std::string name = {};                  ///< UTF-8, unique in the checkpoint: "conv1.weight"
  element_type type = element_type::f32;  ///< of the elements
  std::vector<index_t> shape = {};        ///< logical extents, the last one is the fastest; none for a single number
  /// All ranks have all of it, with the same bits: a save divides it among them, by shares_of. The ranges of the ranks
  /// of any other array are the array, each element once.
  bool replicated = false;
  element_range held = {};  ///< what this rank has; of a replicated array that a save divides it may stay empty
  /// Of `held`, in host memory; of all elements if the array is replicated. With strides it has whole rows of the first
  /// axis: `covered()`.
  std::span<const std::byte> memory = {};
  extents<4> axes{1, 1, 1, 1};  ///< with strides: the extents in the logical order; as many elements as `shape` has
  /// How the memory of the whole array is ordered, in elements of each axis; zeros: as the elements.
  std::array<index_t, 4> strides{};

  /// The number of elements.
  [[nodiscard]] index_t elements() const noexcept {
    index_t product = 1;
    for (const index_t each : shape) {
      product *= each;
    }
    return product;
  }
  /// Bytes of an element.
  [[nodiscard]] index_t element_bytes() const noexcept { return static_cast<index_t>(size_of(type)); }
  /// True if the memory is in the logical order.
  [[nodiscard]] bool in_order() const noexcept { return strides == std::array<index_t, 4>{}; }

  /// The elements from the first to the last one of the memory that has a range: the same in the logical order, else
  /// whole rows of the first axis, or all where that axis is not the slowest one in memory.
  [[nodiscard]] element_range covered(const element_range& range) const noexcept {
    if (range.size() == 0 || in_order()) {
      return range;
    }
    const index_t all = axes.size();
    const index_t row = strides[0] == all / axes[0] ? strides[0] : all;
    return {range.begin / row * row, (range.end + row - 1) / row * row};
  }
  /// The same of what this rank has.
  [[nodiscard]] element_range covered() const noexcept { return covered(held); }

  /// Copies elements in their logical order, from element `first` on, as many as there is room for.
  /// @pre this rank has them
  void read(index_t first, std::span<std::byte> to) const noexcept {
    if (to.empty()) {
      return;
    }
    if (in_order()) {
      std::memcpy(to.data(), memory.data() + (first - held.begin) * element_bytes(), to.size());
    } else {
      copy(first, static_cast<index_t>(to.size()) / element_bytes(), to.data(), const_cast<std::byte*>(memory.data()),
           covered().begin, false);
    }
  }
  /// Elements in their logical order: the memory itself if that is ordered so, else a copy.
  /// @param buffer  memory for the copy
  /// @pre this rank has them
  [[nodiscard]] std::span<const std::byte> view(const element_range& range, std::vector<std::byte>& buffer) const {
    const auto bytes = static_cast<std::size_t>(range.size() * element_bytes());
    if (in_order()) {
      return memory.subspan(static_cast<std::size_t>((range.begin - held.begin) * element_bytes()), bytes);
    }
    buffer.resize(bytes);
    read(range.begin, buffer);
    return buffer;
  }
  /// Brings all elements from the logical order into the order of the memory, at another place.
  /// @param logical  elements() of them
  void write_in_memory_order(std::span<const std::byte> logical, std::byte* to) const noexcept {
    if (logical.empty()) {
      return;
    }
    if (in_order()) {
      std::memcpy(to, logical.data(), logical.size());
    } else {
      copy(0, elements(), const_cast<std::byte*>(logical.data()), to, 0, true);
    }
  }

 private:
  void copy(index_t first, index_t count, std::byte* logical, std::byte* in_memory, index_t base,
            bool back) const noexcept {
    switch (size_of(type)) {
      case 8:
        return copy_words<std::uint64_t>(first, count, logical, in_memory, base, back);
      case 4:
        return copy_words<std::uint32_t>(first, count, logical, in_memory, base, back);
      case 2:
        return copy_words<std::uint16_t>(first, count, logical, in_memory, base, back);
      default:
        return copy_words<std::uint8_t>(first, count, logical, in_memory, base, back);
    }
  }

  /// @param base  the offset of in_memory in the memory of the whole array
  /// @param back  the memory is written
  template <class Word>
  void copy_words(index_t first, index_t count, std::byte* logical, std::byte* in_memory, index_t base,
                  bool back) const noexcept {
    std::array<index_t, 4> at{};
    for (int axis = 3; axis >= 0; --axis) {
      at[static_cast<std::size_t>(axis)] = axis == 0 ? first : first % axes[axis];
      first /= axes[axis];
    }
    for (index_t done = 0; done < count; ++at[2], at[3] = 0) {
      for (int axis = 2; axis > 0 && at[static_cast<std::size_t>(axis)] == axes[axis]; --axis) {
        at[static_cast<std::size_t>(axis)] = 0;
        ++at[static_cast<std::size_t>(axis) - 1];
      }
      index_t k = at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2] + at[3] * strides[3] - base;
      for (const index_t end = std::min(count, done + axes[3] - at[3]); done < end; ++done, k += strides[3]) {
        std::byte* const there = in_memory + k * static_cast<index_t>(sizeof(Word));
        std::byte* const here = logical + done * static_cast<index_t>(sizeof(Word));
        std::memcpy(back ? there : here, back ? here : there, sizeof(Word));
      }
    }
  }
};

/// What a rank answers for of each replicated array: nearly equal shares of their bytes in the order of the list. Empty
/// for the other arrays. The same on all ranks, which need no message for it.
/// @param arrays  with extents of at least 0
/// @pre 0 <= rank < ranks
[[nodiscard]] inline std::vector<element_range> shares_of(std::span<const stored_array> arrays, int rank, int ranks) {
  index_t total = 0;
  for (const stored_array& each : arrays) {
    total += each.replicated ? each.elements() * each.element_bytes() : 0;
  }
  const index_t first = gradus::detail::part_bound<index_t>(total, ranks, rank);
  const index_t last = gradus::detail::part_bound<index_t>(total, ranks, rank + 1);
  std::vector<element_range> shares(arrays.size());
  index_t passed = 0;  // bytes of the arrays before
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (!arrays[i].replicated) {
      continue;
    }
    const index_t elements = arrays[i].elements();
    const index_t size = arrays[i].element_bytes();
    const auto cut = [&](index_t at) {  // before the first element that begins there or later
      return at <= passed ? index_t{0} : std::min((at - passed + size - 1) / size, elements);
    };
    shares[i] = {cut(first), cut(last)};
    passed += elements * size;
  }
  return shares;
}

}  // namespace gradus::io
