// SPDX-License-Identifier: BSL-1.0
//
// A communicator that reports its operations to a recorder.
#pragma once

#include <concepts>         // std::same_as
#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::uint8_t
#include <exception>        // std::exception
#include <memory>           // std::make_shared, std::make_unique, std::shared_ptr, std::unique_ptr
#include <source_location>  // std::source_location
#include <span>             // std::as_bytes, std::span
#include <string_view>      // std::string_view
#include <utility>          // std::move
#include <vector>           // std::vector

#include "gradus/comm/call.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/detail/request/checks.hpp"
#include "gradus/comm/detail/request/operation_pool.hpp"
#include "gradus/comm/forwarding.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"

namespace gradus::comm {

class flight_recorder;

namespace detail {

/// An operation of another communicator that is reported to a recorder.
template <class Recorder>
class recorded_operation final : public operation {
 public:
  using entry = typename Recorder::entry;
  using pool = operation_pool<recorded_operation>;

  recorded_operation(Recorder& recorder, pool& home) noexcept : recorder_{&recorder}, home_{&home} {}

  request begin(const entry& what, request&& inner) noexcept {
    what_ = what;
    inner_ = std::move(inner);
    return request{*this};
  }

  bool test(const std::source_location& where) override {
    return watched([&, this] { return inner_.test(where); });
  }
  void wait(const std::source_location& where) override {
    watched([&, this] {
      if constexpr (requires { recorder_->wait_begins(what_); }) {
        recorder_->wait_begins(what_);
      }
      inner_.wait(where);
      return true;
    });
  }
  void abandon(bool unwinding) noexcept override {
    if (unwinding) {
      inner_.cancel();
      recorder_->fail(what_, "taken back because of an exception");
    } else {
      inner_ = {};
      recorder_->end(what_);
    }
  }
  void release() noexcept override { home_->put_back(*this); }

 private:
  template <class Function>
  bool watched(const Function& function) {
    try {
      const bool over = function();
      if (over) {
        recorder_->end(what_);
      }
      return over;
    } catch (const std::exception& failure) {
      recorder_->fail(what_, failure.what());
      throw;
    }
  }

  Recorder* recorder_;
  pool* home_;
  entry what_{};
  request inner_;
};

}  // namespace detail

/// A communicator that reports its operations, and those of its duplicates, to a recorder: a flight_recorder, which
/// keeps the last ones in case of a failure, or trace::transfers.
///
/// @code
///   auto recorder = std::make_shared<comm::flight_recorder>("flight_" + std::to_string(rank) + ".tsv");
///   comm::recorded world{comm::mpi{environment}, recorder};
/// @endcode
///
/// A recorder has
///   1. a type `channel`, its state for one communicator, made from the number of the duplicate;
///   2. a type `entry`, its state for an operation, and `entry begin(channel&, const call_description&,
///      std::span<const std::byte> memory)`, where `memory` is the larger buffer of the operation;
///   3. `end(entry&)` and `fail(entry&, std::string_view reason)`, which do not throw; one of them is called once;
///   4. optionally `wait_begins(entry&)`: from now on a thread waits until the operation ends;
///   5. optionally `copying(memory)` and `watch_rule()`, see comm/watch.hpp, and the constant `watches_training`, with
///      which a trainer records its steps.
template <class Communicator, class Recorder = flight_recorder>
class recorded : public forwarding<recorded<Communicator, Recorder>> {
  static_assert(explain_communicator<Communicator>());

 public:
  /// The recorder.
  using recorder_type = Recorder;
  /// The name of the communicator in messages.
  static constexpr std::string_view name = Communicator::name;
  /// True if elements of this type can be sent and reduced.
  template <class Element>
  static constexpr bool supports = Communicator::template supports<Element>;
  /// As those of the underlying communicator.
  static constexpr bool matches_tags = comm::matches_tags<Communicator>;

  /// Takes over a communicator and reports to `recorder`.
  explicit recorded(Communicator base, std::shared_ptr<Recorder> recorder = std::make_shared<Recorder>())
      : recorded{std::move(base), std::move(recorder), std::make_shared<int>(0)} {}

  /// Refuses a copy at compile time: a communicator is moved or duplicated.
  template <class Argument>
  requires std::same_as<Argument, recorded&> recorded(Argument&& world) : recorded{std::move(world)} {
    static_assert(detail::explain_not_copied<Argument>());
  }

  /// The recorder to which operations are reported.
  [[nodiscard]] Recorder& recorder() noexcept { return *recorder_; }

  /// Begins a transfer; see `transfer`.
  [[nodiscard]] request begin(const transfer& one) {
    return watch(one.what, one.memory(base_.size()), [&, this] { return comm::begin(base_, one); });
  }
  /// Registers an array with the communicator; see comm::register_memory.
  template <transferable Element>
  [[nodiscard]] auto register_memory(std::span<Element> data) {
    return comm::register_memory(base_, data);
  }
  /// Makes a window if the communicator supports it.
  template <transferable Element>
  [[nodiscard]] auto make_window(std::span<Element> data) requires makes_windows<Communicator, Element> {
    return base_.make_window(data);
  }
  /// Makes room for more messages at a time; see comm::reserve_messages.
  void reserve_messages(std::size_t count) {
    comm::reserve_messages(base_, count);
    operations_->reserve(count, *recorder_, *operations_);
  }
  /// A communicator of the same ranks with separate messages. Called by all ranks.
  [[nodiscard]] recorded duplicate() {
    detail::require_open(detail::caller{*this}, "duplicate", std::source_location::current());
    return make(names_, [this] { return base_.duplicate(); });
  }
  /// A communicator of some ranks, where the underlying one makes it itself; see comm::split. The recorder receives its
  /// operations with ranks of this communicator. Called by all ranks.
  [[nodiscard]] auto split(std::vector<int> ranks) requires splits_itself<Communicator> {
    detail::require_open(detail::caller{*this}, "split", std::source_location::current());
    std::vector<int> names = ranks;
    for (int& each : names) {
      each = name_of(each);
    }
    return make(std::move(names), [&, this] { return base_.split(std::move(ranks)); });
  }
  /// Reports an operation that is composed of messages of this communicator, such as those of comm::collectives. The
  /// messages are reported too.
  /// @param call    with the name of the element type
  /// @param memory  the larger buffer of the operation
  /// @param begin   begins the operation and returns its request
  template <class Begin>
  [[nodiscard]] request watch(call_description call, std::span<const std::byte> memory, const Begin& begin) {
    if (!names_.empty()) {
      const bool message = call.kind == call_kind::send || call.kind == call_kind::receive;
      call.peer = message || call.kind == call_kind::broadcast ? name_of(call.peer) : call.peer;
      call.tag = message ? call.tag : 1 + names_.front();
    }
    entry what = recorder_->begin(channel_, call, memory);
    try {
      request inner = begin();
      // Not earlier: begin() may have begun messages, which take operations too.
      detail::recorded_operation<Recorder>& under_way = operations_->idle(*recorder_, *operations_);
      operations_->take();
      return under_way.begin(what, std::move(inner));
    } catch (const std::exception& failure) {
      recorder_->fail(what, failure.what());
      throw;
    }
  }

 private:
  friend class forwarding<recorded>;
  template <class, class>
  friend class recorded;

  /// Reports that a communicator is made of this one, and records its operations too.
  template <class Make>
  [[nodiscard]] auto make(std::vector<int> names, const Make& base) {
    entry what = recorder_->begin(channel_, {.kind = call_kind::duplicate}, {});
    try {
      recorded<decltype(base()), Recorder> made{base(), recorder_, channels_};
      made.names_ = std::move(names);
      recorder_->end(what);
      return made;
    } catch (const std::exception& failure) {
      recorder_->fail(what, failure.what());
      throw;
    }
  }

  /// What a recorder calls a rank. An invalid one keeps its number for the error that follows.
  [[nodiscard]] int name_of(int rank) const noexcept {
    const auto index = static_cast<std::size_t>(rank);
    return index < names_.size() ? names_[index] : rank;
  }

  [[nodiscard]] Communicator& inner() noexcept { return base_; }
  [[nodiscard]] const Communicator& inner() const noexcept { return base_; }

  using entry = typename Recorder::entry;
  using pool = typename detail::recorded_operation<Recorder>::pool;

  recorded(Communicator base, std::shared_ptr<Recorder> recorder, std::shared_ptr<int> channels)
      : base_{std::move(base)},
        recorder_{std::move(recorder)},
        channels_{std::move(channels)},
        channel_{(*channels_)++},
        operations_{std::make_unique<pool>()} {}

  Communicator base_;
  std::shared_ptr<Recorder> recorder_;
  std::shared_ptr<int> channels_;  // number of channels made so far
  typename Recorder::channel channel_;
  std::unique_ptr<pool> operations_;
  std::vector<int> names_;  // of the ranks of a part for the recorder; empty: their numbers
};

}  // namespace gradus::comm
