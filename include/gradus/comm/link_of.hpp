// SPDX-License-Identifier: BSL-1.0
//
// The link to the ranks of a communicator of a known type.
#pragma once

#include <chrono>       // std::chrono::milliseconds
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint8_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <span>         // std::as_writable_bytes, std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_same_v
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/comm/call.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/comm/watch.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"

namespace gradus::comm {

/// A communicator that knows its nodes, as comm::hierarchical does: local() has the ranks of this node, whole() all.
template <class Communicator>
concept has_nodes = requires(Communicator& communicator) {
  communicator.local().rank();
  communicator.whole().rank();
};

/// A communicator that names one of them.
template <class Communicator>
concept names_nodes = requires {
  &Communicator::local;
}
|| requires {
  &Communicator::whole;
};

template <class Communicator>
[[nodiscard]] std::unique_ptr<link> own_link(Communicator communicator);
template <class Communicator, bool IsPart = false>
class owned_link;

namespace detail {

/// A window of bytes of a communicator.
template <class Window>
class window_of_link final : public link_window {
 public:
  window_of_link(Window own, int ranks) : own_{std::move(own)} {
    first_ = own_.first();
    for (int rank = 0; rank < ranks; ++rank) {
      arrays_.push_back(std::as_writable_bytes(own_.of(rank)));
    }
  }

 private:
  bool use_erased(const void* body, function call) const override {
    const auto in_use = own_.use();
    if (!static_cast<bool>(in_use)) {
      return false;
    }
    call(body);
    return true;
  }

  Window own_;
};

/// A registration of a communicator.
template <class Registration>
class registration_of_link final : public link_registration {
 public:
  explicit registration_of_link(Registration own) noexcept : own_{std::move(own)} {}

 private:
  Registration own_;
};

template <class Communicator>
[[nodiscard]] link_properties properties_of([[maybe_unused]] const Communicator& communicator) noexcept {
  link_properties result{.name = Communicator::name,
                         .matches_tags = matches_tags<Communicator>,
                         .makes_windows = makes_windows<Communicator, std::uint8_t>,
                         .knows_nodes = has_nodes<Communicator>};
  if constexpr (requires { requires Communicator::sums_in_tree; }) {
    result.sums_in_tree = true;
  }
  if constexpr (requires { communicator.one_thread(); }) {
    result.one_thread = communicator.one_thread();
  }
  if constexpr (requires { &communicator.options().all_reduce; }) {
    result.all_reduce_rules = &communicator.options().all_reduce;
  }
  return result;
}

}  // namespace detail

/// The link to the ranks of a communicator, which outlives it and is used for nothing else while a collective or a
/// message of the link is under way.
/// @tparam IsPart  the communicator was made by split(ranks) of another type; it is not split again
template <class Communicator, bool IsPart = false>
class link_of : public link {
  static_assert(explain_communicator<Communicator>());
  static_assert(Communicator::template supports<std::uint8_t>, "gradus: this communicator cannot send bytes");
  static_assert(!names_nodes<Communicator> || has_nodes<Communicator>,
                "gradus: the nodes of this communicator would not be used: give it both local(), the communicator of "
                "this rank's node, and whole(), that of all ranks");

 public:
  /// Refers to `communicator`.
  explicit link_of(Communicator& communicator) noexcept
      : link{communicator.rank(), communicator.size(), detail::properties_of(communicator)},
        communicator_{&communicator} {}

  [[nodiscard]] request begin(const transfer& one) override { return comm::begin(*communicator_, one); }

  void reserve_messages(std::size_t count) override { comm::reserve_messages(*communicator_, count); }

  [[nodiscard]] std::chrono::milliseconds time_limit() const noexcept override { return communicator_->time_limit(); }
  void set_time_limit(std::chrono::milliseconds limit) override { communicator_->set_time_limit(limit); }

  [[nodiscard]] std::unique_ptr<link> duplicate() override {
    if constexpr (IsPart) {
      return std::make_unique<owned_link<Communicator, true>>(communicator_->duplicate());
    } else {
      return own_link(communicator_->duplicate());
    }
  }
  [[nodiscard]] std::unique_ptr<link> split_itself([[maybe_unused]] const std::vector<int>& ranks) override {
    if constexpr (splits_itself<Communicator> && IsPart) {
      raise<configuration_error>("comm::split", "a communicator that is not itself a part of another one",
                                 {"a part of '", Communicator::name, "'"}, "split the communicator of all ranks");
    } else if constexpr (splits_itself<Communicator>) {
      using part = decltype(communicator_->split(ranks));
      return std::make_unique<owned_link<part, !std::is_same_v<part, Communicator>>>(communicator_->split(ranks));
    } else {
      return nullptr;
    }
  }
  [[nodiscard]] std::unique_ptr<link> node() override {
    if constexpr (has_nodes<Communicator>) {
      return own_link(communicator_->local().duplicate());
    } else {
      return nullptr;
    }
  }
  [[nodiscard]] std::unique_ptr<link_window> make_window([[maybe_unused]] std::span<std::byte> data) override {
    if constexpr (makes_windows<Communicator, std::uint8_t>) {
      using window = decltype(communicator_->make_window(std::span<std::uint8_t>{}));
      return std::make_unique<detail::window_of_link<window>>(
          communicator_->make_window(std::span{reinterpret_cast<std::uint8_t*>(data.data()), data.size()}), size());
    } else {
      return nullptr;
    }
  }
  [[nodiscard]] std::unique_ptr<link_registration> register_memory(
      [[maybe_unused]] std::span<std::byte> data) override {
    using registration = registration_of<Communicator, std::uint8_t>;
    if constexpr (std::is_same_v<registration, no_registration>) {
      return nullptr;
    } else {
      return std::make_unique<detail::registration_of_link<registration>>(
          comm::register_memory(*communicator_, std::span{reinterpret_cast<std::uint8_t*>(data.data()), data.size()}));
    }
  }

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
  void copy_recorded(std::span<const std::byte> memory, const beginning& copy) override {
    [[maybe_unused]] const auto seen = comm::watch_copy(*communicator_, memory);
    static_cast<void>(copy());
  }

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
template <class Communicator, bool IsPart>
class owned_link final : private detail::communicator_of_link<Communicator>, public link_of<Communicator, IsPart> {
 public:
  /// Takes over `communicator`, such as world.duplicate().
  explicit owned_link(Communicator communicator) noexcept
      : detail::communicator_of_link<Communicator>{std::move(communicator)}, link_of<Communicator, IsPart>{this->own} {}
};

/// A link that owns a communicator.
template <class Communicator>
[[nodiscard]] std::unique_ptr<link> own_link(Communicator communicator) {
  if constexpr (requires { std::unique_ptr<link>{communicator.release()}; }) {  // an any_communicator
    return communicator.release();
  } else {
    return std::make_unique<owned_link<Communicator>>(std::move(communicator));
  }
}

}  // namespace gradus::comm
