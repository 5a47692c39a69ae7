// SPDX-License-Identifier: BSL-1.0
//
// Arrays of thread ranks that all of them read and write where they lie.
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

/// Where the arrays of a window lie.
class window_arrays {
 public:
  struct array {
    void* begin = nullptr;
    std::size_t size = 0;  // elements
  };

  GRADUS_COLD explicit window_arrays(int ranks) : arrays_(static_cast<std::size_t>(ranks)) {}

  /// To be called by each rank once, before any uses them.
  void open(int rank, array data) noexcept { arrays_[static_cast<std::size_t>(rank)] = data; }
  [[nodiscard]] const array& of(int rank) const noexcept { return arrays_[static_cast<std::size_t>(rank)]; }

  [[nodiscard]] std::shared_lock<std::shared_mutex> use() {
    std::shared_lock lock{mutex_};
    return closed_ ? std::shared_lock<std::shared_mutex>{} : std::move(lock);
  }

  /// Waits for those that use them.
  GRADUS_COLD void close() noexcept {
    const std::unique_lock lock{mutex_};
    closed_ = true;
  }

 private:
  dynamic_array<array> arrays_;  // of the ranks
  std::shared_mutex mutex_;      // shared by those that use the arrays
  bool closed_ = false;
};

}  // namespace detail

/// An array of each rank of a group, which all of them read and write where it lies, as in an MPI window of shared
/// memory. Made by threads::make_window. Who reads or writes when is for the ranks to agree upon, e.g. by barriers; the
/// arrays outlive the window.
template <class Element>
class thread_window {
 public:
  thread_window(std::shared_ptr<detail::window_arrays> arrays, int rank, std::span<Element> data) noexcept
      : arrays_{std::move(arrays)} {
    arrays_->open(rank, {data.data(), data.size()});
  }
  thread_window(thread_window&&) noexcept = default;
  thread_window& operator=(thread_window&&) = delete;
  GRADUS_COLD ~thread_window() {
    if (arrays_ != nullptr) {
      arrays_->close();
    }
  }

  /// While the lock lives the arrays of all ranks do: destructors of the window wait for it, on every rank. It owns
  /// nothing when a rank has destroyed its window already; then a collective says why, if that rank has failed or left.
  [[nodiscard]] std::shared_lock<std::shared_mutex> use() const { return arrays_->use(); }

  /// Arrays are reached from their begin on.
  [[nodiscard]] static constexpr index_t first() noexcept { return 0; }
  /// The array of a rank. @pre the result is used under a lock that owns
  [[nodiscard]] std::span<Element> of(int rank) const noexcept {
    const detail::window_arrays::array& data = arrays_->of(rank);
    return {static_cast<Element*>(data.begin), data.size};
  }

 private:
  std::shared_ptr<detail::window_arrays> arrays_;
};

}  // namespace gradus::comm
