// SPDX-License-Identifier: BSL-1.0
//
// The members that a communicator built on another one forwards to it.
#pragma once

#include <chrono>           // std::chrono::milliseconds
#include <cstddef>          // std::size_t
#include <source_location>  // std::source_location
#include <string_view>      // std::string_view

#include "gradus/comm/communicator.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/core/dynamic_array.hpp"

namespace gradus::comm {

/// A base of communicators that wrap another one. Every member calls the same member of the wrapped communicator. The
/// derived class `Wrapper` declares again what it does differently, and has `name`, `supports` and `duplicate()`.
///
/// Wrapper has members `inner()` that return the wrapped communicator, one for a constant Wrapper and one for any
/// other. They may be private if `forwarding<Wrapper>` is a friend. The base stores nothing: Wrapper decides where the
/// communicator is stored and when it is destroyed.
template <class Wrapper>
class forwarding : public typed_operations<Wrapper> {
 public:
  /// This rank, counted from 0.
  [[nodiscard]] int rank() const noexcept { return wrapper().inner().rank(); }
  /// The number of ranks; 0 after a move.
  [[nodiscard]] int size() const noexcept { return wrapper().inner().size(); }
  /// How long a wait takes at most.
  [[nodiscard]] std::chrono::milliseconds time_limit() const noexcept { return wrapper().inner().time_limit(); }
  /// Sets the time limit of later waits. @throws configuration_error unless it is above 0
  void set_time_limit(std::chrono::milliseconds limit) { wrapper().inner().set_time_limit(limit); }

  /// See mpi::one_thread; false if the wrapped communicator does not say it.
  [[nodiscard]] bool one_thread() const noexcept {
    if constexpr (requires { wrapper().inner().one_thread(); }) {
      return wrapper().inner().one_thread();
    } else {
      return false;
    }
  }

  /// Makes room for more messages at a time; see comm::reserve_messages.
  void reserve_messages(std::size_t count) { comm::reserve_messages(wrapper().inner(), count); }

  /// Begins a transfer; see `transfer`.
  [[nodiscard]] request begin(const transfer& one) { return comm::begin(wrapper().inner(), one); }

  /// See mpi::silent_ranks. Only if the wrapped communicator can ask other ranks.
  [[nodiscard]] dynamic_array<int> silent_ranks(
      std::string_view waiting_for, const std::source_location& where = std::source_location::current()) requires
      requires(Wrapper& each) {
    each.inner().silent_ranks(waiting_for, where);
  }
  { return wrapper().inner().silent_ranks(waiting_for, where); }

  /// Reports to all other ranks that this one has failed, and why.
  void fail(std::string_view reason) noexcept { wrapper().inner().fail(reason); }

 private:
  friend Wrapper;
  forwarding() noexcept = default;

  [[nodiscard]] Wrapper& wrapper() noexcept { return static_cast<Wrapper&>(*this); }
  [[nodiscard]] const Wrapper& wrapper() const noexcept { return static_cast<const Wrapper&>(*this); }
};

}  // namespace gradus::comm
