// SPDX-License-Identifier: BSL-1.0
//
// Operations under way, used again and again.
// Module: comm. Depends on: core.
#pragma once

#include <cstddef>  // std::size_t
#include <memory>   // std::make_unique, std::unique_ptr
#include <utility>  // std::forward

#include "gradus/core/vector.hpp"  // vector

namespace gradus::comm::detail {

/// The operations of one channel. Nothing is allocated while one is idle.
template <class Operation>
class operation_pool {
 public:
  /// An idle operation, a new one made from `arguments` if there is none. It stays idle until it is taken, so that an
  /// exception on the way loses nothing.
  template <class... Arguments>
  [[nodiscard]] Operation& idle(Arguments&&... arguments) {
    if (idle_.empty()) {
      all_.push_back(std::make_unique<Operation>(std::forward<Arguments>(arguments)...));
      idle_.reserve(all_.size());
      idle_.push_back(all_.back().get());
    }
    return *idle_.back();
  }

  /// The operation that idle() returned last is in use now.
  void take() noexcept { idle_.pop_back(); }

  void put_back(Operation& over) noexcept { idle_.push_back(&over); }  // within its reserved capacity

  /// Idle and in use.
  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }

 private:
  gradus::detail::vector<std::unique_ptr<Operation>> all_;
  gradus::detail::vector<Operation*> idle_;
};

}  // namespace gradus::comm::detail
