// SPDX-License-Identifier: BSL-1.0
//
// Runs message schedules: collectives over the send and receive of a communicator.
#pragma once

#include <algorithm>        // std::clamp, std::max, std::min
#include <chrono>           // std::chrono::milliseconds
#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::uint8_t
#include <cstring>          // std::memcpy
#include <exception>        // std::current_exception, std::exception_ptr, std::rethrow_exception
#include <memory>           // std::shared_ptr
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <utility>          // std::exchange, std::move

#include "gradus/comm/call.hpp"
#include "gradus/comm/detail/request/operation_pool.hpp"
#include "gradus/comm/detail/request/poll.hpp"
#include "gradus/comm/detail/schedule/schedule.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/reduction.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm::detail {

/// A copy of the result after a collective is complete.
struct final_copy {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};

class schedule_run;

/// The collectives under way on one channel. They progress together, for whichever one a rank waits.
class schedule_runs {
 public:
  /// @param channel  not used for anything else
  explicit schedule_runs(link& channel) noexcept : channel_{&channel} {}
  schedule_runs(const schedule_runs&) = delete;
  schedule_runs& operator=(const schedule_runs&) = delete;

  /// Returns a collective that is not under way. Nothing is allocated if there is one.
  schedule_run& idle();

  void activate(schedule_run& begun) noexcept;

  void advance_all() noexcept;

  void retire(schedule_run& done) noexcept;

  [[nodiscard]] int next_tag() noexcept {
    tag_ = (tag_ + 1) % (largest_tag + 1);
    return tag_;
  }

  [[nodiscard]] link& channel() const noexcept { return *channel_; }

 private:
  link* channel_;
  int tag_ = -1;
  operation_pool<schedule_run> runs_;
  dynamic_array<schedule_run*> active_;  // in the order in which they began
};

/// One collective under way.
class schedule_run final : public operation {
 public:
  explicit schedule_run(schedule_runs& owner) noexcept : owner_{&owner} {}

  /// A buffer of the collective with at least `bytes` bytes.
  std::byte* staging(std::size_t bytes) {
    if (staging_.size() < bytes) {
      staging_ = dynamic_array<std::byte>(bytes);
    }
    return staging_.data();
  }

  request begin(const call_description& what, std::shared_ptr<const schedule> plan, std::byte* data,
                const element_type& element, std::chrono::milliseconds limit, const final_copy& result);

  bool test(const std::source_location&) override {
    owner_->advance_all();
    if (failure_ != nullptr) {
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
    return over_;
  }

  void wait(const std::source_location& where) override {
    constexpr int spins = 200;
    poll_until_complete(
        spins, limit_, [&, this] { return test(where) ? poll_result::complete : poll_result::nothing; },
        [](unsigned) {},
        [&, this] {
          // The rank that this one waits for may itself wait for the rank that is missing.
          const std::string others = owner_->channel().ask_others(what_);
          if (test(where)) {  // throws if another rank has reported a failure meanwhile
            return;
          }
          const std::string reason =
              gradus::join({"no progress ", missing(), " within ", seconds_text(limit_), others});
          owner_->channel().fail(gradus::join({what_.describe(), ": ", reason}));
          drop_messages();
          gradus::raise<communication_error>(what_.describe(), {}, reason, "set_time_limit allows longer waits", where);
        });
  }

  void abandon(bool unwinding) noexcept override {
    if (!unwinding) {
      try {
        wait(std::source_location::current());
      } catch (...) {
        // The communicator has failed; its next operation reports it.
      }
    }
    drop_messages();
  }

  void release() noexcept override { owner_->retire(*this); }

  /// Makes all progress that is possible without waiting.
  void advance() noexcept;

 private:
  static constexpr index_t most_scratch = 16 * 1024 * 1024;  // bytes, unless messages are long

  [[nodiscard]] index_t all_sends() const noexcept { return static_cast<index_t>(plan_->sends().size()); }
  [[nodiscard]] index_t all_receives() const noexcept { return static_cast<index_t>(plan_->receives().size()); }

  [[nodiscard]] std::span<std::uint8_t> bytes_of(const element_range& range) const noexcept {
    return {reinterpret_cast<std::uint8_t*>(data_ + range.begin * element_.bytes),
            static_cast<std::size_t>(range.size() * element_.bytes)};
  }

  /// Tests all sends and receives once. True if there was progress that may let others continue.
  bool step();

  [[nodiscard]] std::byte* scratch_of(index_t receive) noexcept { return scratch_.data() + receive % window_ * slot_; }

  void combine(const scheduled_receive& received, std::byte* scratch) const;

  /// The missing messages as text: "from rank 3 or to rank 4".
  [[nodiscard]] std::string missing() const;

  void drop_messages() noexcept;

  static constexpr std::size_t at(index_t i) noexcept { return static_cast<std::size_t>(i); }

  schedule_runs* owner_;
  call_description what_{};
  std::shared_ptr<const schedule> plan_;
  std::byte* data_ = nullptr;
  element_type element_ = bytes_to_move;
  std::chrono::milliseconds limit_{};
  final_copy result_{};
  int tag_ = 0;
  index_t begun_ = 0;     // sends begun
  index_t sent_ = 0;      // sends complete
  index_t posted_ = 0;    // receives begun
  index_t consumed_ = 0;  // receives processed
  bool over_ = false;
  std::exception_ptr failure_;
  dynamic_array<request> sends_;
  index_t window_ = 0;  // limit of receives under way
  index_t slot_ = 0;    // bytes for each receive
  dynamic_array<request> receives_;
  dynamic_array<std::byte> scratch_;
  dynamic_array<std::byte> staging_;
};

inline schedule_run& schedule_runs::idle() {
  schedule_run& each = runs_.idle(*this);
  active_.reserve(runs_.size());
  return each;
}

/// @pre `begun` is the last result of idle()
inline void schedule_runs::activate(schedule_run& begun) noexcept {
  runs_.take();
  active_.push_back(&begun);  // within its reserved capacity
}

inline void schedule_runs::advance_all() noexcept {
  for (schedule_run* const each : active_) {
    each->advance();
  }
}

}  // namespace gradus::comm::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm::detail {

GRADUS_INLINE request schedule_run::begin(const call_description& what, std::shared_ptr<const schedule> plan,
                                          std::byte* data, const element_type& element, std::chrono::milliseconds limit,
                                          const final_copy& result) {
  what_ = what;
  plan_ = std::move(plan);
  data_ = data;
  element_ = element;
  limit_ = limit;
  result_ = result;
  tag_ = owner_->next_tag();
  begun_ = 0;
  sent_ = 0;
  posted_ = 0;
  consumed_ = 0;
  over_ = false;
  failure_ = nullptr;
  owner_->activate(*this);
  request pending{*this};
  if (sends_.size() < plan_->sends().size()) {
    sends_ = dynamic_array<request>(plan_->sends().size());
  }
  // Data that arrive before the receive is posted are copied twice, so post many receives.
  slot_ = (plan_->longest_receive() * element.bytes + 63) / 64 * 64;
  window_ = std::clamp<index_t>(most_scratch / std::max<index_t>(slot_, 1), 4, 256);
  const index_t used = std::min(window_, all_receives());
  if (static_cast<index_t>(receives_.size()) < used) {
    receives_ = dynamic_array<request>(at(used));
  }
  if (static_cast<index_t>(scratch_.size()) < used * slot_) {
    scratch_ = dynamic_array<std::byte>(at(used * slot_));
  }
  advance();
  return pending;
}

GRADUS_INLINE void schedule_run::advance() noexcept {
  if (failure_ != nullptr || over_) {
    return;
  }
  try {
    while (step()) {
    }
    over_ = sent_ == all_sends() && consumed_ == all_receives();
    if (over_ && result_.bytes != 0) {
      std::memcpy(result_.to, result_.from, result_.bytes);
    }
  } catch (...) {
    failure_ = std::current_exception();
    drop_messages();
  }
}

GRADUS_INLINE bool schedule_run::step() {
  const auto sends = plan_->sends();
  const auto receives = plan_->receives();
  bool moved = false;
  for (; begun_ < all_sends() && sends[at(begun_)].after <= consumed_; ++begun_) {
    const scheduled_send& each = sends[at(begun_)];
    sends_[at(begun_)] = owner_->channel().send(each.peer, bytes_of(each.range), tag_);
  }
  for (; sent_ < begun_ && sends_[at(sent_)].test(); ++sent_) {
    moved = true;
  }
  for (; posted_ < all_receives() && posted_ < consumed_ + window_; ++posted_) {
    const scheduled_receive& each = receives[at(posted_)];
    std::span<std::uint8_t> target = bytes_of(each.range);
    if (each.what != arrival::replace) {
      target = {reinterpret_cast<std::uint8_t*>(scratch_of(posted_)), target.size()};
    } else if (each.after > sent_) {
      break;
    }
    receives_[at(posted_ % window_)] = owner_->channel().receive(each.peer, target, tag_);
  }
  for (; consumed_ < posted_; ++consumed_) {
    const scheduled_receive& each = receives[at(consumed_)];
    if (each.after > sent_ || !receives_[at(consumed_ % window_)].test()) {
      break;
    }
    combine(each, scratch_of(consumed_));
    moved = true;
  }
  return moved;
}

GRADUS_INLINE void schedule_run::combine(const scheduled_receive& received, std::byte* scratch) const {
  std::byte* const own = data_ + received.range.begin * element_.bytes;
  if (received.what == arrival::combine) {
    element_.accumulate(what_.operation, own, scratch, received.range.size());
  } else if (received.what == arrival::combine_after) {
    element_.accumulate(what_.operation, scratch, own, received.range.size());
    std::memcpy(own, scratch, static_cast<std::size_t>(received.range.size() * element_.bytes));
  }
}

GRADUS_INLINE std::string schedule_run::missing() const {
  std::string text;
  if (consumed_ < all_receives()) {
    append_text(text, {"from ", ranks_text({plan_->receives()[at(consumed_)].peer})});
  }
  if (sent_ < begun_) {
    append_text(text, {text.empty() ? "to " : " or to ", ranks_text({plan_->sends()[at(sent_)].peer})});
  }
  return text;
}

GRADUS_INLINE void schedule_run::drop_messages() noexcept {
  for (request& each : receives_) {
    each.cancel();
  }
  for (request& each : sends_) {
    each.cancel();
  }
}

GRADUS_INLINE void schedule_runs::retire(schedule_run& done) noexcept {
  std::size_t kept = 0;
  for (schedule_run* const each : active_) {
    if (each != &done) {
      active_[kept++] = each;
    }
  }
  while (active_.size() > kept) {
    active_.pop_back();
  }
  runs_.put_back(done);
}

}  // namespace gradus::comm::detail
#endif
