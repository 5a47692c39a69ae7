// SPDX-License-Identifier: BSL-1.0
//
// Who uses a network: one thread at a time, sessions that read its weights, and what computes these.
#pragma once

#include <atomic>       // std::atomic
#include <memory>       // std::make_shared, std::shared_ptr
#include <string_view>  // std::string_view
#include <utility>      // std::exchange, std::move

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"

namespace gradus::nn::detail {

/// Raises configuration_error: two threads use one network or session.
[[noreturn]] inline void raise_in_use(std::string_view asked_by) {
  raise<configuration_error>(asked_by, "one thread at a time", "a call while another thread is in one",
                             "give each thread an nn::inference_session (gradus/nn/inference_session.hpp) of a network "
                             "that is compiled for inference; they share the weights");
}

/// What one thread at a time may use. A copy is not in use.
class single_use {
 public:
  single_use() = default;
  single_use(single_use&& /*other*/) noexcept {}
  single_use& operator=(single_use&& /*other*/) noexcept { return *this; }
  ~single_use() = default;

  /// Ends a use.
  class hold {
   public:
    explicit hold(std::atomic<const void*>* user) noexcept : user_{user} {}
    hold(const hold&) = delete;
    hold& operator=(const hold&) = delete;
    ~hold() {
      if (user_ != nullptr) {
        user_->store(nullptr, std::memory_order_release);
      }
    }

   private:
    std::atomic<const void*>* user_;  // null within another use by the same thread
  };

  /// Begins a use, which lasts until the result is destroyed. A thread may begin one within another.
  /// @throws configuration_error while another thread uses it
  [[nodiscard]] hold begin(std::string_view asked_by);

 private:
  std::atomic<const void*> user_{nullptr};  // an address that only this thread has
};

/// Begins uses of networks and sessions.
struct use_of {
  /// Begins a use of a model by one caller: single_use::begin of its flag.
  template <class Model>
  [[nodiscard]] static single_use::hold begin(Model& model, std::string_view asked_by) {
    return model.in_use_.begin(asked_by);
  }
};

/// Lets many threads read, or one write. A writer waits as long as there are readers.
class readers_or_writer {
 public:
  readers_or_writer() = default;
  readers_or_writer(const readers_or_writer&) = delete;
  readers_or_writer& operator=(const readers_or_writer&) = delete;
  ~readers_or_writer() = default;

  /// Reads until it is destroyed.
  class reading {
   public:
    reading() = default;
    explicit reading(readers_or_writer& of) noexcept;
    reading(reading&& other) noexcept : of_{std::exchange(other.of_, nullptr)} {}
    reading& operator=(reading&&) = delete;
    ~reading() {
      if (of_ != nullptr && of_->state_.fetch_sub(1, std::memory_order_release) == 1) {
        of_->state_.notify_all();
      }
    }

   private:
    readers_or_writer* of_ = nullptr;
  };

  /// Writes until it is destroyed.
  class writing {
   public:
    explicit writing(readers_or_writer& of) noexcept;
    writing(const writing&) = delete;
    writing& operator=(const writing&) = delete;
    ~writing() {
      of_.state_.store(0, std::memory_order_release);
      of_.state_.notify_all();
    }

   private:
    readers_or_writer& of_;
  };

 private:
  std::atomic<int> state_{0};  // readers, or -1 for a writer
};

/// What a network and its sessions share: sessions see that it is gone, and it sees that there are some.
class session_link {
 public:
  session_link() = default;
  /// The sessions of the other network have lost it.
  session_link(session_link&& other) noexcept { other.leave(); }
  /// As the move constructor; those of this network have lost it, too.
  session_link& operator=(session_link&& other) noexcept {
    leave();
    other.leave();
    return *this;
  }
  ~session_link() { leave(); }

  /// What a session keeps: false when the network has left.
  using there = std::shared_ptr<const std::atomic<bool>>;

  /// For a new session.
  [[nodiscard]] there join() const noexcept { return there_; }

  /// @throws configuration_error while there are sessions
  void require_none(std::string_view asked_by) const {
    if (const long sessions = there_ == nullptr ? 0 : there_.use_count() - 1; sessions > 0) {
      raise<configuration_error>(asked_by, "a network without sessions", {sessions, " that would lose their weights"},
                                 "destroy each nn::inference_session of the network before, and make it anew behind");
    }
  }

  /// @throws configuration_error when the network of a session has left
  static void require_there(std::string_view asked_by, const there& network) {
    if (!network->load(std::memory_order_acquire)) {
      raise<configuration_error>(asked_by, "the network of the session", "one that was moved or destroyed",
                                 "keep the network where it is, and longer than its sessions");
    }
  }

  /// Makes what sessions join, once.
  void open() {
    if (there_ == nullptr) {
      there_ = std::make_shared<std::atomic<bool>>(true);
    }
  }

 private:
  void leave() noexcept {
    if (there_ != nullptr) {
      there_->store(false, std::memory_order_release);
      there_.reset();
    }
  }

  std::shared_ptr<std::atomic<bool>> there_;  // null before the network is compiled for inference
};

}  // namespace gradus::nn::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_INLINE single_use::hold single_use::begin(std::string_view asked_by) {
  static thread_local char self = 0;
  const void* user = nullptr;
  if (user_.compare_exchange_strong(user, &self, std::memory_order_acquire)) {
    return hold{&user_};
  }
  if (user != &self) {
    raise_in_use(asked_by);
  }
  return hold{nullptr};
}

GRADUS_INLINE_CONSTRUCTOR readers_or_writer::reading::reading(readers_or_writer& of) noexcept : of_{&of} {
  int readers = of.state_.load(std::memory_order_relaxed);
  while (readers < 0 || !of.state_.compare_exchange_weak(readers, readers + 1, std::memory_order_acquire)) {
    if (readers < 0) {
      of.state_.wait(readers, std::memory_order_relaxed);
      readers = of.state_.load(std::memory_order_relaxed);
    }
  }
}

GRADUS_INLINE_CONSTRUCTOR readers_or_writer::writing::writing(readers_or_writer& of) noexcept : of_{of} {
  int users = 0;
  while (!of_.state_.compare_exchange_weak(users, -1, std::memory_order_acquire)) {
    if (users != 0) {
      of_.state_.wait(users, std::memory_order_relaxed);
      users = 0;
    }
  }
}

}  // namespace gradus::nn::detail
#endif
