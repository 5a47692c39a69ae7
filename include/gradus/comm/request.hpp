// SPDX-License-Identifier: BSL-1.0
//
// The handle of a communication under way.
#pragma once

#include <exception>        // std::uncaught_exceptions
#include <source_location>  // std::source_location
#include <utility>          // std::exchange

#include "gradus/core/config.hpp"

namespace gradus::comm {

/// What a communicator keeps of one communication under way. Only those who write a communicator or a collective
/// algorithm need it: derive from it, keep the objects in a pool so that a training step allocates nothing, and hand
/// out `request{operation}`.
///
/// The request calls `test`, `wait` or `abandon` until one of them says that the communication is over, then `release`
/// once, and nothing after that.
class operation {
 public:
  /// Moves the communication forward. True when it is complete.
  /// @throws communication_error when it cannot complete any more; then its buffers are no longer in use
  virtual bool test(const std::source_location& where) = 0;

  /// Returns when the communication is complete.
  /// @throws communication_error when it cannot complete any more or the time limit is over; then its buffers are no
  ///         longer in use
  virtual void wait(const std::source_location& where) = 0;

  /// Nobody waits for the communication any more; on return its buffers are no longer in use.
  /// @param unwinding  an exception is on its way on this rank: do not wait for other ranks
  virtual void abandon(bool unwinding) noexcept = 0;

  /// The last call: the object may be used again.
  virtual void release() noexcept = 0;

 protected:
  operation() = default;
  operation(const operation&) = default;
  operation& operator=(const operation&) = default;
  ~operation() = default;
};

/// A communication under way. Its buffers must stay alive and untouched until it is complete.
///
/// Move-only. A request that is destroyed unfinished waits as `wait()` does, but does not throw; what went wrong is
/// then thrown by the next operation of the communicator. If it is destroyed because an exception unwinds the stack, it
/// takes the communication back without waiting for other ranks, and these raise communication_error. Either way its
/// buffers are no longer in use afterwards. A request must not outlive its communicator.
class [[nodiscard]] request {
 public:
  /// A communication that is complete.
  request() noexcept = default;

  explicit request(operation& pending) noexcept : pending_{&pending} {}

  request(request&& other) noexcept : pending_{std::exchange(other.pending_, nullptr)} {}

  /// Finishes the communication that this request stood for as the destructor does.
  request& operator=(request&& other) noexcept {
    if (this != &other) {
      drop();
      pending_ = std::exchange(other.pending_, nullptr);
    }
    return *this;
  }

  ~request() { drop(); }

  /// Moves the communication forward. True when it is complete; then the buffers may be used.
  /// @throws communication_error when it cannot complete any more; later calls return true
  bool test(std::source_location where = std::source_location::current()) {
    if (pending_ == nullptr) {
      return true;
    }
    release_on_exit guard{*this, false};
    guard.over = true;  // also if test throws
    guard.over = pending_->test(where);
    return guard.over;
  }

  /// Returns when the communication is complete; then the buffers may be used.
  /// @throws communication_error when a rank has failed, the ranks disagree about the call, or the communicator's time
  ///         limit is over
  GRADUS_NEVER_INLINE void wait(std::source_location where = std::source_location::current()) {
    if (pending_ != nullptr) {
      const release_on_exit guard{*this, true};
      pending_->wait(where);
    }
  }

  /// Takes the communication back without waiting for other ranks, as the destructor does when an exception unwinds the
  /// stack. For code that is about to call the communicator's fail(): other ranks that take part in the communication
  /// raise communication_error.
  void cancel() noexcept { abandon(true); }

 private:
  struct release_on_exit {
    request& owner;
    bool over;
    ~release_on_exit() {
      if (over) {
        std::exchange(owner.pending_, nullptr)->release();
      }
    }
  };

  GRADUS_NEVER_INLINE void drop() noexcept { abandon(std::uncaught_exceptions() > 0); }

  void abandon(bool unwinding) noexcept {
    if (pending_ != nullptr) {
      pending_->abandon(unwinding);
      std::exchange(pending_, nullptr)->release();
    }
  }

  operation* pending_ = nullptr;
};

}  // namespace gradus::comm
