// SPDX-License-Identifier: BSL-1.0
//
// Messages between ranks whose communicators match messages by their order, such as those of GPUs.
#pragma once

#include <cstddef>          // std::size_t
#include <memory>           // std::make_unique, std::unique_ptr
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <utility>          // std::exchange, std::move
#include <vector>           // std::vector

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/call.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/detail/request/operation_pool.hpp"
#include "gradus/comm/detail/request/poll.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/subset.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm {

/// Lines between pairs of ranks, each for messages in one direction. The k-th message that one rank sends on a line is
/// the k-th that the other receives, and messages of different lines do not wait for each other, as little as those
/// with different tags do: for communicators without tags (comm::matches_tags).
///
/// On each line one message is under way at a time. The next one begins when this rank tests a message of the line, or
/// waits for one of any line. So a message that waits for another rank is never in front of other work in a queue of a
/// GPU, which runs as many streams at the same time as it has queues.
class ordered_channels {
  class message;
  struct line;
  using pool = detail::operation_pool<message>;

 public:
  /// Takes over a communicator; pass a duplicate.
  explicit ordered_channels(any_communicator all) : all_{std::move(all)} {}
  ordered_channels(const ordered_channels&) = delete;
  ordered_channels& operator=(const ordered_channels&) = delete;

  /// This rank of the communicator.
  [[nodiscard]] int rank() const noexcept { return all_.rank(); }

  /// Adds a line from a rank to another one. Called by all ranks together, each with the line that this rank is an end
  /// of, or with any other line: pairs of ranks may get theirs in one call.
  /// @return  the number of the line, counted from 0 on each rank
  /// @throws configuration_error, communication_error as comm::split does
  std::size_t connect(int from, int to) {
    const bool own = rank() == from || rank() == to;
    any_communicator pair = comm::split(all_, own ? std::vector<int>{from, to} : std::vector<int>{});
    lines_.push_back(std::make_unique<line>(std::vector<int>{from, to}, std::move(pair)));
    return lines_.size() - 1;
  }

  /// Begins to send on a line from this rank. `elements` are not changed until the request is complete.
  template <transferable Element>
  [[nodiscard]] request send(std::size_t on, std::span<const Element> elements) {
    return begin({.what = {.kind = call_kind::send,
                           .peer = 1,
                           .count = static_cast<index_t>(elements.size()),
                           .element = element_name<Element>},
                  .input = elements.data(),
                  .element = &element_type_of<Element>},
                 on);
  }
  /// Begins to receive on a line to this rank.
  template <transferable Element>
  [[nodiscard]] request receive(std::size_t on, std::span<Element> elements) {
    return begin({.what = {.kind = call_kind::receive,
                           .peer = 0,
                           .count = static_cast<index_t>(elements.size()),
                           .element = element_name<Element>},
                  .output = elements.data(),
                  .element = &element_type_of<Element>},
                 on);
  }

 private:
  struct line {
    line(std::vector<int> between, any_communicator own) : ranks{std::move(between)}, pair{std::move(own)} {}

    std::vector<int> ranks;        // the sender, the receiver
    any_communicator pair;         // of them; of no rank where this one is neither
    std::vector<message*> queued;  // from `next` on; the first of these is under way
    std::size_t next = 0;
    bool under_way = false;
    request pending;  // of the message under way

    void move_on(const std::source_location& where) {
      while (next < queued.size()) {
        message& first = *queued[next];
        if (!std::exchange(under_way, true)) {
          pending = pair.begin(first.what());
        }
        if (!pending.test(where)) {
          return;
        }
        under_way = false;
        first.done = true;
        ++next;
      }
      queued.clear();
      next = 0;
    }

    void withdraw() noexcept {
      pending.cancel();
      under_way = false;
      queued.clear();
      next = 0;
    }
  };

  class message final : public operation {
   public:
    message(ordered_channels& owner, pool& home) noexcept : owner_{&owner}, home_{&home} {}

    void open(line& on, const transfer& what) noexcept {
      line_ = &on;
      what_ = what;
      done = false;
    }
    /// The message among the two ranks of the line.
    [[nodiscard]] const transfer& what() const noexcept { return what_; }

    bool test(const std::source_location& where) override {
      if (!done) {
        owner_->or_withdraw([&, this] { line_->move_on(where); });
      }
      return done;
    }
    void wait(const std::source_location& where) override {
      using detail::poll_result;
      constexpr int spins = 200;
      detail::poll_until_complete(
          spins, owner_->all_.time_limit(),
          [&, this] {
            if (!done) {
              owner_->move_on(where);  // other ranks may wait for messages of other lines
            }
            return done ? poll_result::complete : poll_result::nothing;
          },
          [](unsigned /*polls*/) {}, [&, this] { owner_->raise_time_limit(*line_, what_.what, where); });
    }
    void abandon(bool unwinding) noexcept override {
      if (unwinding) {
        owner_->withdraw();
        return;
      }
      try {
        wait(std::source_location::current());
      } catch (...) {  // the next message reports it
      }
    }
    void release() noexcept override { home_->put_back(*this); }

    bool done = false;

   private:
    ordered_channels* owner_;
    pool* home_;
    line* line_ = nullptr;
    transfer what_{};
  };

  request begin(const transfer& what, std::size_t on) {
    message& made = messages_.idle(*this, messages_);
    line& own = *lines_[on];
    made.open(own, what);
    own.queued.push_back(&made);
    messages_.take();
    request result{made};
    or_withdraw([&] { own.move_on(std::source_location::current()); });
    return result;
  }

  void move_on(const std::source_location& where) {
    or_withdraw([&, this] {
      for (const auto& each : lines_) {
        each->move_on(where);
      }
    });
  }

  /// After an error no message goes on.
  template <class Body>
  void or_withdraw(const Body& body) {
    try {
      body();
    } catch (...) {
      withdraw();
      throw;
    }
  }

  void withdraw() noexcept {
    for (const auto& each : lines_) {
      each->withdraw();
    }
  }

  [[noreturn]] void raise_time_limit(const line& on, call_description what, const std::source_location& where) {
    what.peer = on.ranks[static_cast<std::size_t>(what.peer)];
    const std::string limit = seconds_text(all_.time_limit());
    const std::string call = what.describe();
    all_.fail(gradus::join({call, ": not complete within ", limit}));
    raise<communication_error>(call, {"rank ", what.peer, " within ", limit}, "no answer",
                               "check the output of the ranks", where);
  }

  any_communicator all_;
  pool messages_;
  std::vector<std::unique_ptr<line>> lines_;
};

}  // namespace gradus::comm
