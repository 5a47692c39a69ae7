// SPDX-License-Identifier: BSL-1.0
//
// The communicator of a single process.
#pragma once

#include <chrono>           // std::chrono::milliseconds
#include <cstring>          // std::memcpy
#include <memory>           // std::make_shared, std::shared_ptr
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <utility>          // std::move

#include "gradus/comm/call.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#ifdef GRADUS_HAS_INSTANCES
#include "gradus/comm/link_of.hpp"
#endif

namespace gradus::comm {

/// One rank: every collective has this rank's contribution as its result and is complete at once.
class self : public typed_operations<self> {
 public:
  /// The name of the communicator in messages.
  static constexpr std::string_view name = "self";
  /// True if elements of this type can be sent and reduced.
  template <class Element>
  static constexpr bool supports = transferable<Element>;

  /// The communicator of a process that trains by itself: rank 0 of 1.
  self() : failure_{std::make_shared<std::string>()} {}

  /// This rank, counted from 0.
  [[nodiscard]] int rank() const noexcept { return 0; }
  /// The number of ranks; 0 after a move.
  [[nodiscard]] int size() const noexcept { return failure_ == nullptr ? 0 : 1; }

  /// How long a wait takes at most.
  [[nodiscard]] std::chrono::milliseconds time_limit() const noexcept { return limit_; }
  /// Sets the time limit of later waits. @throws configuration_error unless it is above 0
  void set_time_limit(std::chrono::milliseconds limit) {
    require_time_limit(name, limit);
    limit_ = limit;
  }

  /// Begins a transfer; see `transfer`. @throws configuration_error for a message: there is no other rank
  [[nodiscard]] request begin(const transfer& one);

  /// A communicator of the same ranks with separate messages. Called by all ranks.
  [[nodiscard]] self duplicate() const {
    detail::require_open(detail::caller{*this}, "duplicate", std::source_location::current());
    require_working("duplicate");
    return self{failure_, limit_};
  }

  /// Reports to all other ranks that this one has failed, and why.
  void fail(std::string_view reason) noexcept;

 private:
  self(std::shared_ptr<std::string> failure, std::chrono::milliseconds limit)
      : failure_{std::move(failure)}, limit_{limit} {}

  void require_working(std::string_view operation) const {
    if (failure_ != nullptr && !failure_->empty()) {
      gradus::raise<communication_error>(operation, {}, {"rank 0 failed: ", *failure_}, hint_of_failed);
    }
  }

  std::shared_ptr<std::string> failure_;  // shared with duplicates; empty if none has failed
  std::chrono::milliseconds limit_ = default_time_limit;
};
static_assert(communicator<self>);

}  // namespace gradus::comm

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm {

GRADUS_INLINE request self::begin(const transfer& one) {
  if (one.what.kind == call_kind::send || one.what.kind == call_kind::receive) {
    detail::require_peer(detail::caller{*this}, one.what.name(), one.what.peer, one.what.tag,
                         std::source_location::current());
  }
  require_working(one.what.name());
  if (one.input != one.output && one.what.count > 0) {
    std::memcpy(one.output, one.input, one.bytes(one.what.count));
  }
  return {};
}

GRADUS_INLINE void self::fail(std::string_view reason) noexcept {
  if (failure_ != nullptr && failure_->empty()) {
    try {
      *failure_ = reason.empty() ? "no reason given" : reason;
    } catch (...) {
      failure_->push_back('?');  // within the small string's own storage
    }
  }
}

}  // namespace gradus::comm
#endif

GRADUS_INSTANCE(class gradus::comm::link_of<::gradus::comm::self>)
GRADUS_INSTANCE(class gradus::comm::owned_link<::gradus::comm::self>)
