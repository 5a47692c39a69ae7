// SPDX-License-Identifier: BSL-1.0
//
// A pool of operations for reuse.
#pragma once

#include <cstddef>  // std::size_t
#include <memory>   // std::make_unique, std::unique_ptr

#include "gradus/core/dynamic_array.hpp"

namespace gradus::comm::detail {

/// The operations of one channel. Nothing is allocated while one is idle. How many are under way at a time depends on
/// how late the other ranks are. So the pool begins with eight operations and then doubles, and ranks whose steps must
/// not allocate reserve operations.
template <class Operation>
class operation_pool {
 public:
  /// Returns an idle operation; if there is none, makes new ones from `arguments`. It stays idle until take(), so that
  /// an exception in between loses nothing.
  template <class... Arguments>
  [[nodiscard]] Operation& idle(Arguments&... arguments) {
    if (idle_.empty()) {
      reserve(all_.empty() ? 8 : all_.size(), arguments...);
    }
    return *idle_.back();
  }

  /// Makes `more` operations from `arguments`.
  template <class... Arguments>
  void reserve(std::size_t more, Arguments&... arguments) {
    all_.reserve(all_.size() + more);
    idle_.reserve(all_.size() + more);
    for (std::size_t made = 0; made < more; ++made) {
      all_.push_back(std::make_unique<Operation>(arguments...));
      idle_.push_back(all_.back().get());
    }
  }

  /// Marks the operation that idle() returned last as used.
  void take() noexcept { idle_.pop_back(); }

  void put_back(Operation& over) noexcept { idle_.push_back(&over); }  // within its reserved capacity

  /// Number of operations, idle and used.
  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }

 private:
  dynamic_array<std::unique_ptr<Operation>> all_;
  dynamic_array<Operation*> idle_;
};

}  // namespace gradus::comm::detail
