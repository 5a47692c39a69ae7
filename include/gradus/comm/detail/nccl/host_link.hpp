// SPDX-License-Identifier: BSL-1.0
//
// The hosts' side of a communicator of devices: the first message, and notices of failed ranks.
#pragma once

#include <chrono>           // std::chrono::milliseconds
#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::uint8_t
#include <memory>           // std::unique_ptr
#include <mutex>            // std::mutex, std::scoped_lock
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <utility>          // std::move

#include "gradus/comm/link.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm::detail {

/// The hosts of the ranks: a receive to which no rank sends fails when any of them fails, with that rank and the
/// reason.
class host_ranks {
 public:
  /// @param own  used only here
  explicit host_ranks(std::unique_ptr<link> own) : own_{std::move(own)} {
    own_->set_time_limit(std::chrono::hours{24 * 365});
    if (own_->size() > 1) {
      news_ = own_->receive((own_->rank() + 1) % own_->size(), {&never_, 1}, 0);
    }
  }
  host_ranks(const host_ranks&) = delete;
  host_ranks& operator=(const host_ranks&) = delete;
  ~host_ranks() { news_.cancel(); }

  void broadcast(std::span<std::byte> bytes) { own_->broadcast(bytes, 0); }
  /// Polls for failures. @throws communication_error if a rank has failed
  void look() { static_cast<void>(news_.test()); }
  void fail(std::string_view reason) noexcept { own_->fail(reason); }

 private:
  std::unique_ptr<link> own_;
  std::uint8_t never_ = 0;
  request news_;
};

/// The first failure of a group, as known to one of its ranks; shared by a communicator and its duplicates.
class host_link {
 public:
  /// @param hosts  null if the hosts cannot communicate: then only this rank learns of its failure
  host_link(int rank, std::unique_ptr<host_ranks> hosts) noexcept : rank_{rank}, hosts_{std::move(hosts)} {}

  [[nodiscard]] bool failed() {
    const std::scoped_lock lock{mutex_};
    return !failure_.empty();
  }

  /// This rank has failed: notifies the others, once.
  void fail(std::string_view reason) noexcept {
    const std::scoped_lock lock{mutex_};
    if (!failure_.empty()) {
      return;
    }
    try {
      failure_ = gradus::join({"rank ", rank_, " failed: ", reason.empty() ? "no reason given" : reason});
    } catch (...) {
      failure_.push_back('?');  // within the small string's own storage
    }
    if (hosts_ != nullptr) {
      hosts_->fail(reason);
    }
  }

  /// Polls for notices of the other ranks, at most once a millisecond. True if any rank has failed.
  [[nodiscard]] bool look() {
    const std::scoped_lock lock{mutex_};
    const clock::time_point now = clock::now();
    if (failure_.empty() && hosts_ != nullptr && now >= next_look_) {
      next_look_ = now + std::chrono::milliseconds{1};
      try {
        hosts_->look();
      } catch (const error& news) {
        failure_ = news.message();
      }
    }
    return !failure_.empty();
  }

  /// @pre failed()
  [[noreturn]] void raise(std::string_view operation, const std::source_location& where) {
    const std::scoped_lock lock{mutex_};
    gradus::raise<communication_error>(operation, {}, failure_, {}, where);
  }

  /// Broadcasts the first message from rank 0.
  void broadcast(std::span<std::byte> bytes) { hosts_->broadcast(bytes); }

 private:
  std::mutex mutex_;
  int rank_;
  std::unique_ptr<host_ranks> hosts_;
  std::string failure_;  // empty if none has failed
  clock::time_point next_look_{};
};

}  // namespace gradus::comm::detail
