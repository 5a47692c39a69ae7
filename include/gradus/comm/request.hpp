// SPDX-License-Identifier: BSL-1.0
//
// The handle of a communication that is under way.
#pragma once

#include <exception>        // std::uncaught_exceptions
#include <source_location>  // std::source_location
#include <utility>          // std::exchange

#include "gradus/core/compiled.hpp"

namespace gradus::comm {

/// The communicator's side of a communication that is under way. Only authors of communicators or collective algorithms
/// need it: derive from it, keep the objects in a pool so that a training step allocates nothing, and return
/// `request{operation}`.
///
/// The request calls `test`, `wait` or `abandon` until one of them reports that the communication is over. Then it
/// calls `release` once, and nothing after that.
class operation {
 public:
  /// Makes progress. Returns true if the communication is complete.
  /// @throws communication_error if it can no longer complete; then its buffers are no longer in use
  virtual bool test(const std::source_location& where) = 0;

  /// Returns when the communication is complete.
  /// @throws communication_error if it can no longer complete or the time limit is over; then its buffers are no longer
  /// in use
  virtual void wait(const std::source_location& where) = 0;

  /// Called when no caller waits for the communication any longer; on return its buffers are no longer in use.
  /// @param unwinding  true if an exception unwinds the stack of this rank: do not wait for other ranks
  virtual void abandon(bool unwinding) noexcept = 0;

  /// The last call; after it the object may be reused.
  virtual void release() noexcept = 0;

 protected:
  operation() = default;
  /// Only derived classes can be copied.
  operation(const operation&) = default;
  /// Only derived classes can be copied.
  operation& operator=(const operation&) = default;
  ~operation() = default;
};

/// A communication that is under way. Its buffers must stay valid and unchanged until it is complete.
///
/// Move-only. The destructor of an unfinished request waits as `wait()` does, but does not throw; the next operation of
/// the communicator throws the error. If an exception unwinds the stack, the destructor withdraws the communication
/// without waiting for other ranks, which raise communication_error. In both cases its buffers are no longer in use
/// afterwards. A request must not outlive its communicator.
class [[nodiscard]] request {
 public:
  /// A request that is complete.
  request() noexcept = default;

  /// A request for an operation that is under way.
  explicit request(operation& pending) noexcept : pending_{&pending} {}

  /// Takes over the communication; `other` becomes complete.
  request(request&& other) noexcept : pending_{std::exchange(other.pending_, nullptr)} {}

  /// Finishes the communication of this request as the destructor does, then takes over the other.
  request& operator=(request&& other) noexcept;

  ~request() { drop(); }

  /// Makes progress. Returns true if the communication is complete; then the buffers may be used.
  /// @throws communication_error if it can no longer complete; later calls return true
  bool test(std::source_location where = std::source_location::current());

  /// Returns when the communication is complete; then the buffers may be used.
  /// @throws communication_error if a rank has failed, the ranks' calls differ, or the communicator's time limit is
  /// over
  GRADUS_NEVER_INLINE void wait(std::source_location where = std::source_location::current()) {
    if (pending_ != nullptr) {
      const release_on_exit guard{*this, true};
      pending_->wait(where);
    }
  }

  /// Withdraws the communication without waiting for other ranks, as the destructor does while an exception unwinds the
  /// stack. Use it before the communicator's fail(). Other ranks that take part in the communication raise
  /// communication_error.
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

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm {

GRADUS_INLINE request& request::operator=(request&& other) noexcept {
  if (this != &other) {
    drop();
    pending_ = std::exchange(other.pending_, nullptr);
  }
  return *this;
}

GRADUS_INLINE bool request::test(std::source_location where) {
  if (pending_ == nullptr) {
    return true;
  }
  release_on_exit guard{*this, false};
  guard.over = true;  // also if test throws
  guard.over = pending_->test(where);
  return guard.over;
}

}  // namespace gradus::comm
#endif
