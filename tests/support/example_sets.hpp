// SPDX-License-Identifier: BSL-1.0
//
// Data sets for tests of the loader, whose elements say where they come from.
#pragma once

#include <atomic>     // std::atomic
#include <cstdint>    // std::int32_t, std::uint64_t
#include <stdexcept>  // std::runtime_error

#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"

namespace example_sets {

/// One thread, for tests that compute next to nothing.
inline gradus::cpu& device() {
  static gradus::cpu one_thread{{.intra_op_threads = 1}};
  return one_thread;
}

/// Element k (in the order c, h, w) of example i is 1000 i + k. Has the required members and no more.
struct numbered_set {
  gradus::index_t examples = 0;
  gradus::image_extents shape{1, 1, 1, 1};
  int class_count = 5;

  [[nodiscard]] gradus::index_t size() const noexcept { return examples; }
  [[nodiscard]] gradus::image_extents example() const noexcept { return shape; }
  [[nodiscard]] int classes() const noexcept { return class_count; }
  [[nodiscard]] std::int32_t label(gradus::index_t i) const noexcept { return static_cast<std::int32_t>(i % 5); }
  [[nodiscard]] std::uint64_t hash() const noexcept { return static_cast<std::uint64_t>(examples); }

  template <class Element>
  void read(gradus::index_t i, Element* planes) const {
    for (gradus::index_t k = 0; k < shape.size(); ++k) {
      planes[k] = static_cast<Element>(1000 * i + k);
    }
  }
};

/// Counts how often it is read, and throws when it is to read one chosen example.
struct watched_set : numbered_set {
  mutable std::atomic<gradus::index_t> reads{0};
  std::atomic<gradus::index_t> bad_example{-1};

  explicit watched_set(gradus::index_t count) : numbered_set{.examples = count} {}

  template <class Element>
  void read(gradus::index_t i, Element* planes) const {
    if (i == bad_example) {
      throw std::runtime_error{"the disk is gone"};
    }
    numbered_set::read(i, planes);
    ++reads;
  }
};

}  // namespace example_sets
