// SPDX-License-Identifier: BSL-1.0
//
// A communicator without its type, for code that is compiled once for all communicators.
#pragma once

#include <chrono>           // std::chrono::milliseconds
#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::uint8_t
#include <memory>           // std::unique_ptr
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <vector>           // std::vector

#include "gradus/comm/call.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"

namespace gradus::comm {

struct all_reduce_rule;

/// What a link is, apart from what it does.
struct link_properties {
  std::string_view name;       ///< of the communicator, in messages
  bool matches_tags = true;    ///< see comm::matches_tags
  bool makes_windows = false;  ///< ranks reach each other's memory, see link::make_window
  bool knows_nodes = false;    ///< see link::node
  bool one_thread = false;     ///< only threads of the program may use it, within its own calls: see mpi::one_thread
  bool sums_in_tree = false;   ///< its sums are in the order of comm::pairwise_sums
  const std::vector<all_reduce_rule>* all_reduce_rules = nullptr;  ///< of a comm::collectives
};

/// The arrays of all ranks, which each of them reads and writes in place. The ranks must agree when each does, e.g. by
/// barriers. See makes_windows.
class link_window {
 public:
  link_window() = default;
  link_window(const link_window&) = delete;
  link_window& operator=(const link_window&) = delete;
  virtual ~link_window() = default;

  /// The first byte of the arrays that is accessible.
  [[nodiscard]] index_t first() const noexcept { return first_; }
  /// The accessible part of a rank's array, which begins at its byte first().
  [[nodiscard]] std::span<std::byte> of(int rank) const noexcept { return arrays_[static_cast<std::size_t>(rank)]; }

  /// Calls body() while no rank can take its array back. Returns false, without a call, where one has done so.
  template <class Body>
  bool use(const Body& body) const {
    return use_erased(&body, [](const void* erased) { (*static_cast<const Body*>(erased))(); });
  }

 protected:
  /// A function of a caller, without its type.
  using function = void (*)(const void* erased);
  /// What `use` calls.
  virtual bool use_erased(const void* body, function call) const = 0;

  index_t first_ = 0;                           ///< set by derived classes
  dynamic_array<std::span<std::byte>> arrays_;  ///< one per rank, set by derived classes
};

/// A registration of memory, which ends with the object. See comm::register_memory.
class link_registration {
 public:
  link_registration() = default;
  link_registration(const link_registration&) = delete;
  link_registration& operator=(const link_registration&) = delete;
  virtual ~link_registration() = default;
};

/// The ranks of a communicator, for code that is compiled once for all communicators. What is behind it is a
/// communicator (link_of), or some ranks of another link. One thread at a time uses it.
class link {
 public:
  /// For derived classes: this rank, and the number of ranks.
  link(int rank, int size, const link_properties& properties) noexcept
      : rank_{rank}, size_{size}, properties_{properties} {}
  link(const link&) = delete;
  link& operator=(const link&) = delete;
  virtual ~link() = default;

  /// This rank, counted from 0.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// The number of ranks.
  [[nodiscard]] int size() const noexcept { return size_; }
  /// What it is.
  [[nodiscard]] const link_properties& properties() const noexcept { return properties_; }

  /// Begins a message or a collective of elements. @pre the arguments are right, as those that comm::send and its
  /// neighbors pass on
  [[nodiscard]] virtual request begin(const transfer& one) = 0;

  // Collectives of memory of the host, which block.

  /// As comm::all_gather. @throws communication_error if a rank fails or does not call it in time
  virtual void all_gather(std::span<const std::uint8_t> input, std::span<std::uint8_t> output,
                          std::source_location where = std::source_location::current()) {
    begin_moving({.kind = call_kind::all_gather}, input.size(), input.data(), output.data()).wait(where);
  }
  /// Copies the bytes of rank `root` to all ranks. @throws communication_error if a rank fails or does not call it in
  /// time
  virtual void broadcast(std::span<std::byte> bytes, int root,
                         std::source_location where = std::source_location::current()) {
    begin_moving({.kind = call_kind::broadcast, .peer = root}, bytes.size(), bytes.data(), bytes.data()).wait(where);
  }
  /// Sums over the ranks; every rank gets the sums. @throws communication_error if a rank fails or does not call it in
  /// time
  virtual void sum(std::span<double> values, std::source_location where = std::source_location::current()) {
    const call_description what{
        .kind = call_kind::all_reduce, .count = static_cast<index_t>(values.size()), .element = element_name<double>};
    begin({.what = what, .input = values.data(), .output = values.data(), .element = &doubles_to_add}).wait(where);
  }

  // Messages.

  /// Allocates for messages under way, as comm::reserve_messages.
  virtual void reserve_messages(std::size_t count) = 0;
  /// As comm::send. @pre `peer` is another rank, the tag is in range
  [[nodiscard]] virtual request send(int peer, std::span<const std::uint8_t> bytes, int tag) {
    return begin_moving({.kind = call_kind::send, .peer = peer, .tag = tag}, bytes.size(), bytes.data(), nullptr);
  }
  /// As comm::receive. @pre `peer` is another rank, the tag is in range
  [[nodiscard]] virtual request receive(int peer, std::span<std::uint8_t> bytes, int tag) {
    return begin_moving({.kind = call_kind::receive, .peer = peer, .tag = tag}, bytes.size(), nullptr, bytes.data());
  }

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

  // Other communicators, and memory. Called by all ranks.

  /// A link of the same ranks with separate messages, which owns its communicator.
  [[nodiscard]] virtual std::unique_ptr<link> duplicate() = 0;
  /// A communicator of some ranks that this one makes itself, see splits_itself; null: comm::split makes a subset.
  [[nodiscard]] virtual std::unique_ptr<link> split_itself(const std::vector<int>& ranks) = 0;
  /// The ranks of this node; null if the communicator does not know its nodes.
  [[nodiscard]] virtual std::unique_ptr<link> node() = 0;
  /// A window of an array of this rank, of a size of its own; null if ranks do not reach each other's memory. The array
  /// outlives it.
  [[nodiscard]] virtual std::unique_ptr<link_window> make_window(std::span<std::byte> data) = 0;
  /// See comm::register_memory; null where there is nothing to do.
  [[nodiscard]] virtual std::unique_ptr<link_registration> register_memory(std::span<std::byte> data) = 0;

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
  /// Calls copy(), which copies this memory, and lets the recorder of the communicator record it. See comm::watch_copy.
  template <class Copy>
  void watch_copy(std::span<const std::byte> memory, const Copy& copy) {
    copy_recorded(memory, {&copy, [](const void* erased) {
                             (*static_cast<const Copy*>(erased))();
                             return request{};
                           }});
  }

 protected:
  /// What watch_copy calls.
  virtual void copy_recorded(std::span<const std::byte> memory, const beginning& copy) = 0;

 private:
  friend class forwarding_link;

  [[nodiscard]] request begin_moving(call_description what, std::size_t bytes, const void* input, void* output) {
    what.count = static_cast<index_t>(bytes);
    what.element = bytes_to_move.name;
    return begin({.what = what, .input = input, .output = output});
  }

  int rank_;
  int size_;
  link_properties properties_;
};

/// A base of links that work over another one: every function calls that of the other link. A derived class overrides
/// what it does differently.
class forwarding_link : public link {
 public:
  [[nodiscard]] request begin(const transfer& one) override { return inner_->begin(one); }
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
  [[nodiscard]] std::unique_ptr<link> duplicate() override { return inner_->duplicate(); }
  [[nodiscard]] std::unique_ptr<link> split_itself(const std::vector<int>& ranks) override {
    return inner_->split_itself(ranks);
  }
  [[nodiscard]] std::unique_ptr<link> node() override { return inner_->node(); }
  [[nodiscard]] std::unique_ptr<link_window> make_window(std::span<std::byte> data) override {
    return inner_->make_window(data);
  }
  [[nodiscard]] std::unique_ptr<link_registration> register_memory(std::span<std::byte> data) override {
    return inner_->register_memory(data);
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
  void copy_recorded(std::span<const std::byte> memory, const beginning& copy) override {
    inner_->copy_recorded(memory, copy);
  }
  /// @param inner  outlives this object
  explicit forwarding_link(link& inner) noexcept : forwarding_link{inner, inner.properties()} {}
  /// For a link of all ranks with other properties.
  forwarding_link(link& inner, const link_properties& properties) noexcept
      : link{inner.rank(), inner.size(), properties}, inner_{&inner} {}
  /// For a link of some ranks of the other one: this rank among them, and their number.
  forwarding_link(link& inner, int rank, int size) noexcept : link{rank, size, inner.properties()}, inner_{&inner} {}

  /// The other link.
  [[nodiscard]] link& inner() const noexcept { return *inner_; }

 private:
  link* inner_;
};

}  // namespace gradus::comm
