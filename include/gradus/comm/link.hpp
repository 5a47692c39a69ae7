// SPDX-License-Identifier: BSL-1.0
//
// A communicator without its type, for code that is compiled once for all communicators.
#pragma once

#include <chrono>           // std::chrono::milliseconds
#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::uint8_t
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <utility>          // std::move

#include "gradus/comm/call.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"

namespace gradus::comm {

/// The ranks of a communicator, for checks, for sums of a few numbers and for messages of bytes. What is behind it is a
/// communicator (link_of), or some ranks of another link. One thread at a time uses it.
class link {
 public:
  /// For derived classes: this rank, and the number of ranks.
  link(int rank, int size) noexcept : rank_{rank}, size_{size} {}
  link(const link&) = delete;
  link& operator=(const link&) = delete;
  virtual ~link() = default;

  /// This rank, counted from 0.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// The number of ranks.
  [[nodiscard]] int size() const noexcept { return size_; }

  // Collectives, which block.

  /// As comm::all_gather. @throws communication_error if a rank fails or does not call it in time
  virtual void all_gather(std::span<const std::uint8_t> input, std::span<std::uint8_t> output,
                          std::source_location where = std::source_location::current()) = 0;
  /// Copies the bytes of rank `root` to all ranks. @throws communication_error if a rank fails or does not call it in
  /// time
  virtual void broadcast(std::span<std::byte> bytes, int root,
                         std::source_location where = std::source_location::current()) = 0;
  /// Sums over the ranks; every rank gets the sums. @throws communication_error if a rank fails or does not call it in
  /// time
  virtual void sum(std::span<double> values, std::source_location where = std::source_location::current()) = 0;

  // Messages.

  /// See comm::reserve_messages.
  virtual void reserve_messages(std::size_t count) = 0;
  /// As comm::send. @pre `peer` is another rank, the tag is in range
  [[nodiscard]] virtual request send(int peer, std::span<const std::uint8_t> bytes, int tag) = 0;
  /// As comm::receive. @pre `peer` is another rank, the tag is in range
  [[nodiscard]] virtual request receive(int peer, std::span<std::uint8_t> bytes, int tag) = 0;

  /// Begins an operation that is composed of messages of this link, by begin(), which returns its request. Where a
  /// recorder records the communicator, it receives the operation besides its messages.
  /// @param memory  the larger buffer of the operation
  template <class Begin>
  [[nodiscard]] request begin_composed(const call_description& call, std::span<const std::byte> memory,
                                       const Begin& begin) {
    return begin_recorded(call, memory,
                          {&begin, [](const void* erased) { return (*static_cast<const Begin*>(erased))(); }});
  }

  /// How long a wait takes at most.
  [[nodiscard]] virtual std::chrono::milliseconds time_limit() const noexcept = 0;
  /// Sets the time limit of later waits. @throws configuration_error unless it is above 0
  virtual void set_time_limit(std::chrono::milliseconds limit) = 0;

  // Ranks that fail or do not answer.

  /// The ranks that do not answer a question; empty if the communicator cannot ask. Takes up to half a second.
  /// @param what  the activity of this rank
  /// @throws communication_error if another rank has failed
  [[nodiscard]] virtual dynamic_array<int> silent_ranks(std::string_view what) = 0;
  /// What the other ranks wait for and which do not answer, behind the text of a time limit; empty if the communicator
  /// cannot ask.
  [[nodiscard]] virtual std::string ask_others(const call_description& waiting_for) = 0;
  /// Reports to the other ranks that this one has failed; without other ranks it may do nothing.
  virtual void fail(std::string_view reason) noexcept = 0;

  /// Begins an operation: a function that the caller has.
  struct beginning {
    /// The function of a caller, without its type.
    using function = request (*)(const void* erased);

    const void* erased;  ///< the object that `call` gets
    function call;       ///< begins the operation
    /// Begins the operation.
    [[nodiscard]] request operator()() const { return call(erased); }
  };
  /// What begin_composed calls: begins the operation, and lets the recorder of the communicator record it.
  [[nodiscard]] virtual request begin_recorded(const call_description& call, std::span<const std::byte> memory,
                                               const beginning& begin) = 0;

 private:
  int rank_;
  int size_;
};

/// A base of links that work over another one: every function calls that of the other link. A derived class overrides
/// what it does differently.
class forwarding_link : public link {
 public:
  void all_gather(std::span<const std::uint8_t> input, std::span<std::uint8_t> output,
                  std::source_location where = std::source_location::current()) override {
    inner_->all_gather(input, output, where);
  }
  void broadcast(std::span<std::byte> bytes, int root,
                 std::source_location where = std::source_location::current()) override {
    inner_->broadcast(bytes, root, where);
  }
  void sum(std::span<double> values, std::source_location where = std::source_location::current()) override {
    inner_->sum(values, where);
  }
  void reserve_messages(std::size_t count) override { inner_->reserve_messages(count); }
  [[nodiscard]] request send(int peer, std::span<const std::uint8_t> bytes, int tag) override {
    return inner_->send(peer, bytes, tag);
  }
  [[nodiscard]] request receive(int peer, std::span<std::uint8_t> bytes, int tag) override {
    return inner_->receive(peer, bytes, tag);
  }
  [[nodiscard]] std::chrono::milliseconds time_limit() const noexcept override { return inner_->time_limit(); }
  void set_time_limit(std::chrono::milliseconds limit) override { inner_->set_time_limit(limit); }
  [[nodiscard]] dynamic_array<int> silent_ranks(std::string_view what) override { return inner_->silent_ranks(what); }
  [[nodiscard]] std::string ask_others(const call_description& waiting_for) override {
    return inner_->ask_others(waiting_for);
  }
  void fail(std::string_view reason) noexcept override { inner_->fail(reason); }
  [[nodiscard]] request begin_recorded(const call_description& call, std::span<const std::byte> memory,
                                       const beginning& begin) override {
    return inner_->begin_recorded(call, memory, begin);
  }

 protected:
  /// @param inner  outlives this object
  explicit forwarding_link(link& inner) noexcept : forwarding_link{inner, inner.rank(), inner.size()} {}
  /// For a link of some ranks of the other one: this rank among them, and their number.
  forwarding_link(link& inner, int rank, int size) noexcept : link{rank, size}, inner_{&inner} {}

  /// The other link.
  [[nodiscard]] link& inner() const noexcept { return *inner_; }

 private:
  link* inner_;
};

/// The link to the ranks of a communicator, which outlives it and is used for nothing else while a collective or a
/// message of the link is under way.
template <class Communicator>
class link_of : public link {
  static_assert(explain_communicator<Communicator>());
  static_assert(Communicator::template supports<std::uint8_t>, "gradus: this communicator cannot send bytes");

 public:
  /// Refers to `communicator`.
  explicit link_of(Communicator& communicator) noexcept
      : link{communicator.rank(), communicator.size()}, communicator_{&communicator} {}

  void all_gather(std::span<const std::uint8_t> input, std::span<std::uint8_t> output,
                  std::source_location where = std::source_location::current()) override {
    comm::all_gather(*communicator_, input, output, where).wait(where);
  }
  void broadcast(std::span<std::byte> bytes, int root,
                 std::source_location where = std::source_location::current()) override {
    const std::span data{reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()};
    comm::broadcast(*communicator_, data, root, where).wait(where);
  }
  void sum(std::span<double> values, std::source_location where = std::source_location::current()) override {
    comm::all_reduce(*communicator_, values, reduction::sum, where).wait(where);
  }

  void reserve_messages(std::size_t count) override { comm::reserve_messages(*communicator_, count); }
  [[nodiscard]] request send(int peer, std::span<const std::uint8_t> bytes, int tag) override {
    return communicator_->send(peer, bytes, tag);
  }
  [[nodiscard]] request receive(int peer, std::span<std::uint8_t> bytes, int tag) override {
    return communicator_->receive(peer, bytes, tag);
  }

  [[nodiscard]] std::chrono::milliseconds time_limit() const noexcept override { return communicator_->time_limit(); }
  void set_time_limit(std::chrono::milliseconds limit) override { communicator_->set_time_limit(limit); }

  [[nodiscard]] dynamic_array<int> silent_ranks([[maybe_unused]] std::string_view what) override {
    if constexpr (requires { communicator_->silent_ranks(what); }) {
      return communicator_->silent_ranks(what);
    } else {
      return {};
    }
  }
  [[nodiscard]] std::string ask_others([[maybe_unused]] const call_description& waiting_for) override {
    if constexpr (requires { communicator_->ask_others(waiting_for); }) {
      return communicator_->ask_others(waiting_for);
    } else {
      return {};
    }
  }
  /// With one rank nothing waits, and the communicator goes on working: a corrected call succeeds.
  void fail(std::string_view reason) noexcept override {
    if (size() > 1) {
      communicator_->fail(reason);
    }
  }

  [[nodiscard]] request begin_recorded(const call_description& call, std::span<const std::byte> memory,
                                       const beginning& begin) override {
    if constexpr (requires { communicator_->watch(call, memory, begin); }) {
      return communicator_->watch(call, memory, begin);
    } else {
      return begin();
    }
  }

 private:
  Communicator* communicator_;
};

namespace detail {

/// What a link owns, made before the link.
template <class Communicator>
struct communicator_of_link {
  Communicator own;
};

}  // namespace detail

/// A link that owns its communicator.
template <class Communicator>
class owned_link final : private detail::communicator_of_link<Communicator>, public link_of<Communicator> {
 public:
  /// Takes over `communicator`, such as world.duplicate().
  explicit owned_link(Communicator communicator) noexcept
      : detail::communicator_of_link<Communicator>{std::move(communicator)}, link_of<Communicator>{this->own} {}
};

}  // namespace gradus::comm
