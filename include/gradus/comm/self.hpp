// SPDX-License-Identifier: BSL-1.0
//
// The communicator of one process alone.
#pragma once

#include <chrono>           // std::chrono::milliseconds
#include <cstring>          // std::memcpy
#include <memory>           // std::make_shared, std::shared_ptr
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <utility>          // std::move

#include "gradus/comm/communicator.hpp"
#include "gradus/core/error.hpp"

namespace gradus::comm {

/// One rank: every collective leaves this rank's own contribution and is complete at once.
class self {
 public:
  static constexpr std::string_view name = "self";
  template <class Element>
  static constexpr bool supports = transferable<Element>;

  self() : failure_{std::make_shared<std::string>()} {}

  [[nodiscard]] int rank() const noexcept { return 0; }
  [[nodiscard]] int size() const noexcept { return failure_ == nullptr ? 0 : 1; }

  [[nodiscard]] std::chrono::milliseconds time_limit() const noexcept { return limit_; }
  void set_time_limit(std::chrono::milliseconds limit) {
    require_time_limit(name, limit);
    limit_ = limit;
  }

  /// There is no other rank to send to.
  /// @throws configuration_error always
  template <transferable Element>
  [[nodiscard]] request send(int peer, std::span<const Element>, int tag) {
    detail::require_peer(detail::caller{*this}, "send", peer, tag, std::source_location::current());
    return {};
  }

  /// There is no other rank to receive from.
  /// @throws configuration_error always
  template <transferable Element>
  [[nodiscard]] request receive(int peer, std::span<Element>, int tag) {
    detail::require_peer(detail::caller{*this}, "receive", peer, tag, std::source_location::current());
    return {};
  }

  template <transferable Element>
  [[nodiscard]] request all_reduce(std::span<Element>, reduction) {
    require_working("all_reduce");
    return {};
  }

  template <transferable Element>
  [[nodiscard]] request broadcast(std::span<Element>, int) {
    require_working("broadcast");
    return {};
  }

  template <transferable Element>
  [[nodiscard]] request reduce_scatter(std::span<const Element> input, std::span<Element> output, reduction) {
    require_working("reduce_scatter");
    copy(input, output);
    return {};
  }

  template <transferable Element>
  [[nodiscard]] request all_gather(std::span<const Element> input, std::span<Element> output) {
    require_working("all_gather");
    copy(input, output);
    return {};
  }

  [[nodiscard]] request barrier() {
    require_working("barrier");
    return {};
  }

  [[nodiscard]] self duplicate() const {
    detail::require_open(detail::caller{*this}, "duplicate", std::source_location::current());
    require_working("duplicate");
    return self{failure_, limit_};
  }

  void fail(std::string_view reason) noexcept {
    if (failure_ != nullptr && failure_->empty()) {
      try {
        *failure_ = reason.empty() ? "no reason given" : reason;
      } catch (...) {
        failure_->push_back('?');  // within the small string's own storage
      }
    }
  }

 private:
  self(std::shared_ptr<std::string> failure, std::chrono::milliseconds limit)
      : failure_{std::move(failure)}, limit_{limit} {}

  void require_working(std::string_view operation) const {
    if (failure_ != nullptr && !failure_->empty()) {
      gradus::raise<communication_error>(operation, {}, {"rank 0 failed: ", *failure_});
    }
  }

  template <class Element>
  static void copy(std::span<const Element> input, std::span<Element> output) noexcept {
    if (!input.empty() && input.data() != output.data()) {
      std::memcpy(output.data(), input.data(), input.size_bytes());
    }
  }

  std::shared_ptr<std::string> failure_;  // shared with duplicates; empty while all is well
  std::chrono::milliseconds limit_ = default_time_limit;
};
static_assert(communicator<self>);

}  // namespace gradus::comm
