// SPDX-License-Identifier: BSL-1.0
//
// A communicator of some ranks of another communicator.
#pragma once

#include <algorithm>        // std::copy, std::count, std::equal, std::max
#include <bit>              // std::has_single_bit
#include <chrono>           // std::chrono::milliseconds
#include <concepts>         // std::same_as
#include <cstddef>          // std::ptrdiff_t, std::size_t
#include <cstdint>          // std::uint8_t, std::uint64_t
#include <memory>           // std::make_unique, std::unique_ptr
#include <source_location>  // std::source_location
#include <span>             // std::as_bytes, std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <type_traits>      // std::is_same_v
#include <utility>          // std::declval, std::move
#include <vector>           // std::vector

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/collectives_options.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/detail/request/checks.hpp"
#include "gradus/comm/detail/schedule/book.hpp"
#include "gradus/comm/detail/schedule/message_collectives.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/link_of.hpp"
#include "gradus/comm/reduction.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm {

namespace detail {

/// The first mistake in a list of ranks that a rank can see without the lists of the others.
enum class list_mistake : std::uint64_t { none, out_of_range, doubled, without_own_rank, uneven_pairs };

/// What ranks compare of their lists.
struct list_digest {
  std::uint64_t hash = 0;
  std::uint64_t ranks = 0;
  list_mistake mistake = list_mistake::none;

  friend bool operator==(const list_digest&, const list_digest&) = default;
};

[[nodiscard]] inline list_mistake mistake_in(std::span<const int> list, int own, int size, bool in_pairs) {
  if (list.empty()) {
    return list_mistake::none;
  }
  std::vector<bool> named(static_cast<std::size_t>(size));
  for (const int each : list) {
    if (each < 0 || each >= size) {
      return list_mistake::out_of_range;
    }
    if (named[static_cast<std::size_t>(each)]) {
      return list_mistake::doubled;
    }
    named[static_cast<std::size_t>(each)] = true;
  }
  if (!named[static_cast<std::size_t>(own)]) {
    return list_mistake::without_own_rank;
  }
  return in_pairs && !std::has_single_bit(list.size()) ? list_mistake::uneven_pairs : list_mistake::none;
}

/// "{0, 2} on rank 0"
[[nodiscard]] inline std::string describe_list(std::span<const int> list, std::size_t rank) {
  std::string text{"{"};
  for (const int each : list) {
    append_text(text, {text.size() == 1 ? "" : ", ", each});
  }
  append_text(text, {"} on rank ", rank});
  return text;
}

/// Throws the error of the first rank with a mistake. All ranks have the same lists, so all throw the same error.
inline void raise_wrong_list(std::span<const list_digest> digests, std::span<const std::span<const int>> lists,
                             const std::source_location& where) {
  constexpr std::string_view what = "comm::subset";
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    const std::string got = describe_list(lists[rank], rank);
    switch (digests[rank].mistake) {
      case list_mistake::none:
        break;
      case list_mistake::out_of_range:
        raise<configuration_error>(what, {"ranks from 0 to ", lists.size() - 1}, got, {}, where);
      case list_mistake::doubled:
        raise<configuration_error>(what, "a list with each rank once", got, {}, where);
      case list_mistake::without_own_rank:
        raise<configuration_error>(what, "a list with the rank that passes it", got,
                                   "a rank of no subset passes an empty list", where);
      case list_mistake::uneven_pairs:
        raise<configuration_error>(what, "a power of two of ranks to add in pairs", got, {}, where);
    }
  }
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    for (const int named : lists[rank]) {
      const auto other = static_cast<std::size_t>(named);
      if (!std::equal(lists[rank].begin(), lists[rank].end(), lists[other].begin(), lists[other].end())) {
        raise<configuration_error>(what, "the same list on all ranks that it names",
                                   {describe_list(lists[rank], rank), "; ", describe_list(lists[other], other)},
                                   "a rank belongs to one subset, or passes an empty list", where);
      }
    }
  }
}

/// Compares the lists of all ranks of `group`: returns on all ranks or throws on all ranks. Ranks exchange 24 bytes
/// each; the lists are sent only if one is wrong.
///
/// A list has each rank once and the rank that passes it. So the ranks with one list are among those that it names, and
/// are all of them if there are as many.
inline void require_lists(link& group, std::span<const int> list, bool in_pairs, const std::source_location& where) {
  const auto size = static_cast<std::size_t>(group.size());
  const auto own = static_cast<std::size_t>(group.rank());
  const auto characters = std::as_bytes(list);
  dynamic_array<list_digest> digests(size);
  digests[own] = {
      .hash = gradus::detail::hash_text({reinterpret_cast<const char*>(characters.data()), characters.size()}),
      .ranks = list.size(),
      .mistake = mistake_in(list, group.rank(), group.size(), in_pairs)};
  const std::span<std::uint8_t> all{reinterpret_cast<std::uint8_t*>(digests.data()), size * sizeof(list_digest)};
  group.all_gather(all.subspan(own * sizeof(list_digest), sizeof(list_digest)), all, where);
  bool right = true;
  std::size_t longest = 0;
  for (const list_digest& each : digests) {
    const auto same = std::count(digests.begin(), digests.end(), each);
    right = right && each.mistake == list_mistake::none &&
            (each.ranks == 0 || static_cast<std::uint64_t>(same) == each.ranks);
    longest = std::max<std::size_t>(longest, each.ranks);
  }
  if (right) {
    return;
  }
  dynamic_array<int> ranks(size * longest);  // (size, longest)
  std::copy(list.begin(), list.end(), ranks.begin() + static_cast<std::ptrdiff_t>(own * longest));
  const std::span<std::uint8_t> bytes{reinterpret_cast<std::uint8_t*>(ranks.data()), ranks.size() * sizeof(int)};
  group.all_gather(bytes.subspan(own * longest * sizeof(int), longest * sizeof(int)), bytes, where);
  dynamic_array<std::span<const int>> lists(size);
  for (std::size_t rank = 0; rank < size; ++rank) {
    lists[rank] = {ranks.data() + rank * longest, digests[rank].ranks};
  }
  raise_wrong_list({digests.data(), size}, {lists.data(), size}, where);
}

/// The position of `rank` in a list that has it, or 0.
[[nodiscard]] inline int position_of(int rank, std::span<const int> list) noexcept {
  int position = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    position = list[i] == rank ? static_cast<int>(i) : position;
  }
  return position;
}

/// True for the list 0, 1, ..., size - 1.
[[nodiscard]] inline bool names_all_in_order(std::span<const int> list, int size) noexcept {
  bool same = list.size() == static_cast<std::size_t>(size);
  for (std::size_t i = 0; i < list.size(); ++i) {
    same = same && list[i] == static_cast<int>(i);
  }
  return same;
}

}  // namespace detail

/// Some ranks of another communicator, in an order of your choice: for example the ranks that train replicas of one
/// stage of a pipeline. Every rank of the other communicator, the base, belongs to one subset or to none, and the
/// subsets work at the same time. Rank i of a subset is rank `ranks[i]` of the base.
///
/// All ranks of the base make their subsets together, each with the list of its own subset. A rank of no subset passes
/// an empty list. The size() of its object is 0, and it calls only duplicate(), set_time_limit() and fail().
///
/// @code
///   // Ranks 0, 2 and ranks 1, 3 of four.
///   const int first = world.rank() % 2;
///   comm::subset replicas{world.duplicate(), {first, first + 2}};
///   comm::all_reduce(replicas, gradients).wait();  // sums over the two ranks
/// @endcode
///
/// Messages are those of the base. A subset of all ranks in the order of the base has the collectives of the base. The
/// collectives of other subsets are made of messages, with the algorithms of comm::collectives; those of one rank need
/// none.
///
/// Arguments are ranks of the subset, and so are ranks in the errors about arguments and of require_agreement. Errors
/// of communication (a rank that failed, left or is late) name ranks of the base: a rank outside of the subset can be
/// the reason. If the base is a comm::recorded, its recorder receives the collectives and their messages, with ranks of
/// the base.
template <class Communicator>
class subset : public typed_operations<subset<Communicator>> {
  static_assert(explain_communicator<Communicator>());
  static_assert(!splits_itself<Communicator>,
                "gradus: comm::subset adds in the memory of the host, and this communicator is for the memory of a "
                "device: write comm::split(communicator, ranks)");

 public:
  /// The name of the communicator in messages.
  static constexpr std::string_view name = "subset";
  /// True if elements of this type can be sent and reduced.
  template <class Element>
  static constexpr bool supports = transferable<Element>&& Communicator::template supports<Element>;

  /// Called by all ranks of the base. Messages of collectives use a duplicate of the base.
  /// @param base     taken over
  /// @param ranks    the ranks of the base that form the subset of this rank, the same list on all of them; empty: this
  ///                 rank belongs to no subset
  /// @param options  the same on all ranks of the base; `node_of_rank` has a node for each rank of the base. A subset
  /// of
  ///                 all ranks in the order of the base does not use them: comm::collectives chooses its algorithms.
  ///                 The algorithm `native` is a ring
  /// @throws configuration_error on all ranks of the base, if a list is wrong on one of them: it names no rank of the
  /// base, a rank twice, or a rank with another list, or it lacks the rank that passes it; or if options are invalid or
  /// differ between ranks
  /// @throws communication_error if a rank fails or does not call it in time
  subset(Communicator base, std::vector<int> ranks, collectives_options options = {},
         std::source_location where = std::source_location::current()) {
    detail::require_open(detail::caller{base}, "comm::subset", where);
    detail::require_options(base, "comm::subset", options, where);
    {
      link_of<Communicator> group{base};
      detail::require_lists(group, ranks, options.scatter_in_pairs, where);
    }
    parts_ = std::make_unique<parts>(std::move(base), std::move(ranks), std::move(options));
  }

  /// Refuses a copy at compile time: a communicator is moved or duplicated.
  template <class Argument>
  requires std::same_as<Argument, subset&> subset(Argument&& world) : subset{std::move(world)} {
    static_assert(detail::explain_not_copied<Argument>());
  }

  /// This rank in the subset, counted from 0.
  [[nodiscard]] int rank() const noexcept { return parts_ == nullptr ? 0 : parts_->rank; }
  /// The number of ranks in the subset; 0 on a rank of no subset and after a move.
  [[nodiscard]] int size() const noexcept { return parts_ == nullptr ? 0 : static_cast<int>(parts_->ranks.size()); }

  /// The ranks of the base, in the order of the subset. @pre not moved from
  [[nodiscard]] std::span<const int> ranks() const noexcept { return parts_->ranks; }
  /// The options of the constructor. @pre not moved from
  [[nodiscard]] const collectives_options& options() const noexcept { return parts_->options; }
  /// The underlying communicator. @pre not moved from
  [[nodiscard]] Communicator& base() noexcept { return parts_->base; }
  /// The recorder of the underlying communicator, if it has one. @pre not moved from
  [[nodiscard]] auto& recorder() noexcept requires requires(Communicator& base) { base.recorder(); }
  { return parts_->base.recorder(); }

  /// See mpi::one_thread; false if the underlying communicator does not say it.
  [[nodiscard]] bool one_thread() const noexcept {
    if constexpr (requires { parts_->base.one_thread(); }) {
      return parts_ != nullptr && parts_->base.one_thread();
    } else {
      return false;
    }
  }

  /// How long a wait takes at most.
  [[nodiscard]] std::chrono::milliseconds time_limit() const noexcept {
    return parts_ == nullptr ? default_time_limit : parts_->base.time_limit();
  }
  /// Sets the time limit of later waits. @throws configuration_error unless it is above 0
  void set_time_limit(std::chrono::milliseconds limit) {
    require_parts("set_time_limit").base.set_time_limit(limit);
    if (parts_->own != nullptr) {
      parts_->own->set_time_limit(limit);
    }
  }

  /// Makes room for more messages at a time; see comm::reserve_messages.
  void reserve_messages(std::size_t count) { comm::reserve_messages(require_parts("reserve_messages").base, count); }

  /// Begins a transfer; see `transfer`.
  [[nodiscard]] request begin(const transfer& one) {
    parts& p = *parts_;
    if (one.what.kind == call_kind::send || one.what.kind == call_kind::receive) {
      transfer message = one;
      message.what.peer = p.rank_of_base(one.what.peer);
      return comm::begin(p.base, message);
    }
    if (p.own == nullptr) {
      return comm::begin(p.base, one);
    }
    return p.own->begin(one, p.options, p.base.time_limit());
  }

  /// Registers an array with the base if the subset has the collectives of the base. Otherwise does nothing, because
  /// messages are copied anyway. See comm::register_memory.
  template <transferable Element>
  [[nodiscard]] registration_of<Communicator, Element> register_memory(std::span<Element> data) {
    parts& p = require_parts("register_memory");
    if (p.own != nullptr) {
      return {};
    }
    return comm::register_memory(p.base, data);
  }

  /// A communicator of the same ranks and options with separate messages. Called by all ranks of the base together,
  /// those of other subsets and of none too.
  [[nodiscard]] subset duplicate() {
    const parts& p = require_parts("duplicate");
    subset copy;
    copy.parts_ = std::make_unique<parts>(parts_->base.duplicate(), p.ranks, p.options);
    return copy;
  }

  /// Reports to all other ranks of the base that this one has failed, and why.
  void fail(std::string_view reason) noexcept {
    if (parts_ != nullptr) {
      parts_->base.fail(reason);
    }
  }

 private:
  struct parts {
    /// Called by all ranks of the base.
    parts(Communicator all, std::vector<int> list, collectives_options chosen)
        : base{std::move(all)},
          ranks{std::move(list)},
          options{std::move(chosen)},
          rank{detail::position_of(base.rank(), ranks)} {
      if (detail::names_all_in_order(ranks, base.size())) {
        return;
      }
      dynamic_array<int> members;
      std::vector<int> nodes;
      for (const int each : ranks) {
        members.push_back(each);
        if (!options.node_of_rank.empty()) {
          nodes.push_back(options.node_of_rank[static_cast<std::size_t>(each)]);
        }
      }
      own = std::make_unique<detail::message_collectives>(own_link(base.duplicate()),
                                                          detail::schedule_book{std::move(members), rank, nodes},
                                                          options.segment_bytes, ranks.empty() ? 0 : 1 + ranks[0]);
    }

    [[nodiscard]] int rank_of_base(int peer) const noexcept { return ranks[static_cast<std::size_t>(peer)]; }

    Communicator base;
    std::vector<int> ranks;
    collectives_options options;
    int rank;
    std::unique_ptr<detail::message_collectives> own;  // null: the collectives of the base
  };

  subset() noexcept = default;

  /// @throws configuration_error after a move
  parts& require_parts(std::string_view operation) {
    if (parts_ == nullptr) {
      detail::require_open(detail::caller{*this}, operation, std::source_location::current());
    }
    return *parts_;
  }

  std::unique_ptr<parts> parts_;
};
static_assert(communicator<subset<self>>);

/// A communicator of some ranks of another, in an order of your choice, with messages of its own: a comm::subset, or
/// what communicators for the memory of a device make themselves, such as NCCL's. All ranks call it together, each with
/// the list of its own group. A rank of no group passes an empty list, and its result has a size() of 0.
/// All ranks of all groups duplicate the results together, as those of a comm::subset.
/// @param communicator  goes on working
/// @throws configuration_error, communication_error as comm::subset does
template <class Communicator>
[[nodiscard]] auto split(Communicator& communicator, std::vector<int> ranks) {
  if constexpr (std::is_same_v<Communicator, any_communicator>) {
    std::unique_ptr<link> made = communicator.link().split_itself(ranks);
    return any_communicator{made != nullptr
                                ? std::move(made)
                                : own_link(subset<any_communicator>{communicator.duplicate(), std::move(ranks)})};
  } else if constexpr (splits_itself<Communicator>) {
    return communicator.split(std::move(ranks));
  } else {
    return subset<Communicator>{communicator.duplicate(), std::move(ranks)};
  }
}

/// The type of what comm::split makes.
template <class Communicator>
using split_of = decltype(comm::split(std::declval<Communicator&>(), std::declval<std::vector<int>>()));

}  // namespace gradus::comm
