// SPDX-License-Identifier: BSL-1.0
//
// A communicator whose type is known when the program runs.
#pragma once

#include <chrono>           // std::chrono::milliseconds
#include <concepts>         // std::derived_from
#include <cstddef>          // std::byte, std::size_t
#include <memory>           // std::make_unique, std::unique_ptr
#include <source_location>  // std::source_location
#include <span>             // std::as_writable_bytes, std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <type_traits>      // std::is_const_v, std::is_lvalue_reference_v, std::remove_cvref_t, std::remove_reference_t
#include <utility>          // std::exchange, std::move

#include "gradus/comm/call.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/detail/request/checks.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/link_of.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"

namespace gradus::comm {

/// A communicator whose type is known when the program runs: what strategies, pipelines and other parts of a training
/// are given, so that they are compiled once. A model of `communicator`; what ranks may not do, such as to reach each
/// other's memory, is asked of its link().
///
/// @code
///   comm::any_communicator ranks{world};              // refers to world, which outlives it
///   comm::any_communicator own{world.duplicate()};    // owns a communicator
/// @endcode
class any_communicator : public typed_operations<any_communicator> {
 public:
  /// The name of the type; that of the communicator is in link().properties().
  static constexpr std::string_view name = "any_communicator";
  /// True if elements of this type can be sent and reduced.
  template <class Element>
  static constexpr bool supports = transferable<Element>;

  /// Refers to a communicator with a name, and owns any other.
  template <class Communicator>
  requires(!std::is_const_v<std::remove_reference_t<Communicator>> &&
           !std::derived_from<std::remove_cvref_t<Communicator>, any_communicator> &&
           has_ranks<std::remove_cvref_t<Communicator>>)
      // NOLINTNEXTLINE(google-explicit-constructor): a communicator is what it converts from
      any_communicator(Communicator&& communicator) {
    using type = std::remove_cvref_t<Communicator>;
    if constexpr (std::derived_from<type, comm::link>) {
      static_assert(std::is_lvalue_reference_v<Communicator>, "gradus: the link is gone at the end of this statement");
      link_ = &communicator;
    } else {
      if constexpr (std::is_lvalue_reference_v<Communicator>) {
        own_ = std::make_unique<link_of<type>>(communicator);
      } else {
        own_ = std::make_unique<owned_link<type>>(std::move(communicator));
      }
      link_ = own_.get();
    }
  }
  /// Owns a link.
  explicit any_communicator(std::unique_ptr<comm::link> own) noexcept : own_{std::move(own)}, link_{own_.get()} {}
  /// Refers to the same communicator, which the other one keeps.
  // NOLINTNEXTLINE(google-explicit-constructor): as from any communicator with a name
  any_communicator(any_communicator& other) noexcept : link_{other.link_} {}
  /// Takes over the communicator; the other object has size() 0 afterwards.
  any_communicator(any_communicator&& other) noexcept
      : own_{std::move(other.own_)}, link_{std::exchange(other.link_, nullptr)} {}
  /// Ends this communicator, then takes over the other.
  any_communicator& operator=(any_communicator&& other) noexcept {
    own_ = std::move(other.own_);
    link_ = std::exchange(other.link_, nullptr);
    return *this;
  }

  /// The communicator without its type. @pre not moved from
  [[nodiscard]] comm::link& link() noexcept { return *link_; }
  /// The same.
  [[nodiscard]] const comm::link& link() const noexcept { return *link_; }
  /// Gives the link away. @pre it owns its communicator
  [[nodiscard]] std::unique_ptr<comm::link> release() noexcept {
    link_ = nullptr;
    return std::move(own_);
  }

  /// This rank, counted from 0.
  [[nodiscard]] int rank() const noexcept { return link_ == nullptr ? 0 : link_->rank(); }
  /// The number of ranks; 0 after a move.
  [[nodiscard]] int size() const noexcept { return link_ == nullptr ? 0 : link_->size(); }
  /// True if one thread makes all calls, as mpi::one_thread.
  [[nodiscard]] bool one_thread() const noexcept { return link_ != nullptr && link_->properties().one_thread; }
  /// How long a wait takes at most.
  [[nodiscard]] std::chrono::milliseconds time_limit() const noexcept {
    return link_ == nullptr ? default_time_limit : link_->time_limit();
  }
  /// Sets the time limit of later waits. @throws configuration_error unless it is above 0
  void set_time_limit(std::chrono::milliseconds limit) { open("set_time_limit").set_time_limit(limit); }
  /// Makes room for more messages at a time; see comm::reserve_messages.
  void reserve_messages(std::size_t count) { open("reserve_messages").reserve_messages(count); }
  /// Begins a transfer; see `transfer`.
  [[nodiscard]] request begin(const transfer& one) { return link_->begin(one); }
  /// A communicator of the same ranks with separate messages, which the result owns. Called by all ranks.
  [[nodiscard]] any_communicator duplicate() { return any_communicator{open("duplicate").duplicate()}; }
  /// Registers memory for transfers, as comm::register_memory.
  template <transferable Element>
  [[nodiscard]] std::unique_ptr<link_registration> register_memory(std::span<Element> data) {
    return open("register_memory").register_memory(std::as_writable_bytes(data));
  }
  /// Reports an operation that is composed of messages of this communicator; see link::begin_composed.
  template <class Begin>
  [[nodiscard]] request watch(const call_description& call, std::span<const std::byte> memory, const Begin& begin) {
    return link_->begin_composed(call, memory, begin);
  }
  /// The ranks that do not answer, as link::silent_ranks.
  [[nodiscard]] dynamic_array<int> silent_ranks(std::string_view what) {
    return open("silent_ranks").silent_ranks(what);
  }
  /// Asks the other ranks what they wait for, as link::ask_others.
  [[nodiscard]] std::string ask_others(const call_description& waiting_for) { return link_->ask_others(waiting_for); }
  /// Reports to all other ranks that this one has failed, and why.
  void fail(std::string_view reason) noexcept {
    if (link_ != nullptr) {
      link_->fail(reason);
    }
  }

 private:
  /// @throws configuration_error after a move
  [[nodiscard]] comm::link& open(std::string_view operation) {
    detail::require_open(detail::caller{*this}, operation, std::source_location::current());
    return *link_;
  }

  std::unique_ptr<comm::link> own_;
  comm::link* link_;
};
static_assert(communicator<any_communicator>);

}  // namespace gradus::comm
