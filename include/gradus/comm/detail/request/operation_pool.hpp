// SPDX-License-Identifier: BSL-1.0
//
// Operations under way, used again and again.
#pragma once

#include <cstddef>  // std::size_t
#include <memory>   // std::make_unique, std::unique_ptr

#include "gradus/core/dynamic_array.hpp"

namespace gradus::comm::detail {

/// The operations of one channel. Nothing is allocated while one is idle. How many are under way at a time depends on
/// how late the other ranks are, so there are eight at once, and then twice as many: a late rank in the thousandth step
/// is no reason to allocate.
template <class Operation>
class operation_pool {
 public:
  /// An idle operation; new ones are made from `arguments` if there is none. It stays idle until it is taken, so that
  /// an exception on the way loses nothing.
  template <class... Arguments>
  [[nodiscard]] Operation& idle(Arguments&... arguments) {
    if (idle_.empty()) {
      const std::size_t more = all_.empty() ? 8 : all_.size();
      all_.reserve(all_.size() + more);
      idle_.reserve(all_.size() + more);
      for (std::size_t made = 0; made < more; ++made) {
        all_.push_back(std::make_unique<Operation>(arguments...));
        idle_.push_back(all_.back().get());
      }
    }
    return *idle_.back();
  }

  /// The operation that idle() returned last is in use now.
  void take() noexcept { idle_.pop_back(); }

  void put_back(Operation& over) noexcept { idle_.push_back(&over); }  // within its reserved capacity

  /// Idle and in use.
  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }

 private:
  dynamic_array<std::unique_ptr<Operation>> all_;
  dynamic_array<Operation*> idle_;
};

}  // namespace gradus::comm::detail
