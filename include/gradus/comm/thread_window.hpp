// SPDX-License-Identifier: BSL-1.0
//
// Arrays of thread ranks that all ranks read and write in place.
#pragma once

#include <cstddef>       // std::size_t
#include <memory>        // std::shared_ptr
#include <mutex>         // std::unique_lock
#include <shared_mutex>  // std::shared_lock, std::shared_mutex
#include <span>          // std::span
#include <utility>       // std::move

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"

namespace gradus::comm {

namespace detail {

/// The addresses of the arrays of a window.
class window_arrays {
 public:
  struct array {
    void* begin = nullptr;
    std::size_t size = 0;  // elements
  };

  explicit window_arrays(int ranks) : arrays_(static_cast<std::size_t>(ranks)) {}

  /// Called by each rank once, before any rank uses them.
  void open(int rank, array data) noexcept { arrays_[static_cast<std::size_t>(rank)] = data; }
  [[nodiscard]] const array& of(int rank) const noexcept { return arrays_[static_cast<std::size_t>(rank)]; }

  [[nodiscard]] std::shared_lock<std::shared_mutex> use() {
    std::shared_lock lock{mutex_};
    return closed_ ? std::shared_lock<std::shared_mutex>{} : std::move(lock);
  }

  /// Waits until no rank uses them.
  void close() noexcept {
    const std::unique_lock lock{mutex_};
    closed_ = true;
  }

 private:
  dynamic_array<array> arrays_;  // one per rank
  std::shared_mutex mutex_;      // shared by ranks that use the arrays
  bool closed_ = false;
};

}  // namespace detail

/// One array for each rank of a group, which all ranks read and write in place, as in an MPI shared-memory window. Made
/// by threads::make_window. The ranks must agree when each reads or writes, e.g. by barriers. The arrays outlive the
/// window.
template <class Element>
class thread_window {
 public:
  /// For threads::make_window.
  thread_window(std::shared_ptr<detail::window_arrays> arrays, int rank, std::span<Element> data) noexcept
      : arrays_{std::move(arrays)} {
    arrays_->open(rank, {data.data(), data.size()});
  }
  /// Takes over the window.
  thread_window(thread_window&&) noexcept = default;
  thread_window& operator=(thread_window&&) = delete;
  GRADUS_COLD ~thread_window() {
    if (arrays_ != nullptr) {
      arrays_->close();
    }
  }

  /// Locks the arrays of all ranks: while the lock exists, destructors of the window wait for it, on every rank. The
  /// lock owns nothing if a rank has already destroyed its window; a collective then reports the reason if that rank
  /// has failed or left.
  [[nodiscard]] std::shared_lock<std::shared_mutex> use() const { return arrays_->use(); }

  /// The accessible part of an array begins at its first element.
  [[nodiscard]] static constexpr index_t first() noexcept { return 0; }
  /// The array of a rank. @pre the result is used while a lock owns
  [[nodiscard]] std::span<Element> of(int rank) const noexcept {
    const detail::window_arrays::array& data = arrays_->of(rank);
    return {static_cast<Element*>(data.begin), data.size};
  }

 private:
  std::shared_ptr<detail::window_arrays> arrays_;
};

}  // namespace gradus::comm
