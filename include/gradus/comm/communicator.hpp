// SPDX-License-Identifier: BSL-1.0
//
// The concept of a communicator, and the functions that send, receive and run collectives on any communicator.
#pragma once

#include <chrono>           // std::chrono::milliseconds
#include <concepts>         // std::convertible_to, std::movable, std::same_as
#include <cstddef>          // std::size_t
#include <iterator>         // std::data
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string_view>      // std::string_view
#include <type_traits>      // std::is_const_v, std::is_lvalue_reference_v, std::remove_pointer_t
#include <utility>          // std::declval, std::move
#include <vector>           // std::vector

#include "gradus/comm/detail/request/checks.hpp"
#include "gradus/comm/reduction.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/error.hpp"

namespace gradus::comm {

namespace detail {

/// Reports at compile time that a communicator with a name cannot be copied. Returns true if it compiles.
template <class Argument>
consteval bool explain_not_copied() {
  static_assert(
      !std::is_lvalue_reference_v<Argument>,
      "gradus: a communicator cannot be copied: pass it to a function as comm::threads& world (or auto& world); "
      "to build another object on it, write std::move(world), or world.duplicate() to continue using world");
  return true;
}

}  // namespace detail

/// A requirement of `communicator`: Communicator has `Communicator::name`, a constant string.
template <class Communicator>
concept has_communicator_name = requires {
  { Communicator::name } -> std::convertible_to<std::string_view>;
};

/// A requirement of `communicator`: Communicator has rank() and size().
template <class Communicator>
concept has_ranks = requires(const Communicator& communicator) {
  { communicator.rank() } -> std::same_as<int>;
  { communicator.size() } -> std::same_as<int>;
  requires noexcept(communicator.rank())&& noexcept(communicator.size());
};

/// A requirement of `communicator`: Communicator has `Communicator::supports<Element>`, a constant.
template <class Communicator>
concept has_supported_elements = requires {
  requires Communicator::template supports<float> || !Communicator::template supports<float>;
};

/// A requirement of `communicator`: Communicator has send and receive.
template <class Communicator>
concept has_messages = requires(Communicator& communicator, int peer, std::span<const float> out, std::span<float> in,
                                int tag) {
  { communicator.send(peer, out, tag) } -> std::same_as<request>;
  { communicator.receive(peer, in, tag) } -> std::same_as<request>;
};

/// A requirement of `communicator`: Communicator has all_reduce.
template <class Communicator>
concept has_all_reduce = requires(Communicator& communicator, std::span<float> data, reduction operation) {
  { communicator.all_reduce(data, operation) } -> std::same_as<request>;
};

/// A requirement of `communicator`: Communicator has broadcast.
template <class Communicator>
concept has_broadcast = requires(Communicator& communicator, std::span<float> data, int root) {
  { communicator.broadcast(data, root) } -> std::same_as<request>;
};

/// A requirement of `communicator`: Communicator has reduce_scatter and all_gather.
template <class Communicator>
concept has_scattering_collectives = requires(Communicator& communicator, std::span<const float> input,
                                              std::span<float> output, reduction operation) {
  { communicator.reduce_scatter(input, output, operation) } -> std::same_as<request>;
  { communicator.all_gather(input, output) } -> std::same_as<request>;
};

/// A requirement of `communicator`: Communicator has barrier().
template <class Communicator>
concept has_barrier = requires(Communicator& communicator) {
  { communicator.barrier() } -> std::same_as<request>;
};

/// A requirement of `communicator`: Communicator has duplicate().
template <class Communicator>
concept has_duplicate = requires(Communicator& communicator) {
  { communicator.duplicate() } -> std::same_as<Communicator>;
};

/// A requirement of `communicator`: Communicator has time_limit() and set_time_limit().
template <class Communicator>
concept has_time_limit = requires(Communicator& communicator, const Communicator& constant,
                                  std::chrono::milliseconds limit) {
  { constant.time_limit() } -> std::same_as<std::chrono::milliseconds>;
  communicator.set_time_limit(limit);
};

/// A requirement of `communicator`: Communicator has fail(reason).
template <class Communicator>
concept has_failure = requires(Communicator& communicator, std::string_view reason) {
  communicator.fail(reason);
  requires noexcept(communicator.fail(reason));
};

/// The ranks that train together, and the operations by which they exchange data.
///
/// A type Communicator models `communicator` if it is movable and, for a `Communicator& communicator`,
///   1. `Communicator::name` is a constant string used in messages;
///   2. `rank()` and `size()` do not throw, 0 <= rank() < size(); a moved-from communicator has size() 0;
///   3. `Communicator::supports<Element>` is a constant, true if Element can be sent and reduced;
///   4. `send(peer, std::span<const Element>, tag)` and `receive(peer, std::span<Element>, tag)` begin a message to or
///      from another rank and return a `request`. Messages between two ranks with one tag arrive in the order in which
///      they were sent; both sides give the same number and type of elements. A send may wait until the receiver has
///      begun its receive, so begin both before waiting for either;
///   5. `all_reduce(std::span<Element>, reduction)` reduces over all ranks in place and returns a `request`; afterwards
///      all ranks have the same bits, which depend only on the contributions and the number of ranks;
///   6. `broadcast(std::span<Element>, root)` copies the root's elements to all ranks and returns a `request`;
///   7. `reduce_scatter(std::span<const Element> input, std::span<Element> output, reduction)` and
///      `all_gather(std::span<const Element> input, std::span<Element> output)` return a `request`. For p ranks and n
///      elements per rank, reduce_scatter takes p*n elements and writes the reduced n elements of this rank to output;
///      all_gather takes n elements and writes those of all ranks, in the order of the ranks. The small span may be
///      this rank's part of the large one; otherwise they do not overlap;
///   8. `barrier()` returns a `request` that completes when every rank has called barrier();
///   9. `duplicate()`, called by all ranks, returns a communicator of the same ranks and the same time limit, whose
///      messages and collectives are separate from those of this one;
///   10. `time_limit()` and `set_time_limit(std::chrono::milliseconds)`: how long a later wait takes at most; 2 minutes
///      by default;
///   11. `fail(reason)` does not throw and reports to every other rank that this one has failed. Pending and later
///      waits of all ranks on this communicator and its duplicates throw communication_error with the rank and the
///      reason. An operation that can complete may complete;
///   12. when a rank destroys its communicator, other ranks that wait for its part in a collective or a message throw
///      communication_error with that rank; messages that it has sent before can still be received.
/// It may have `register_memory(std::span<Element>)` and `reserve_messages(std::size_t)`, see the functions with these
/// names, and, if ranks can access each other's memory, `make_window(std::span<Element>)`, see makes_windows. If
/// comm::subset cannot make its collectives of messages, it has `split(std::vector<int>)`, see splits_itself; and it
/// has `static constexpr bool matches_tags = false` where messages are matched in the order in which they are begun.
/// All ranks begin collectives in the same order. Any number may be under way, and they may be waited for in any order.
/// Only one thread at a time uses a communicator and its requests; other threads use duplicates.
/// A communicator that has failed remains failed. Semantics: tests/conformance/comm.
template <class Communicator>
concept communicator = std::movable<Communicator> && has_communicator_name<Communicator> && has_ranks<Communicator> &&
    has_supported_elements<Communicator> && has_messages<Communicator> && has_all_reduce<Communicator> &&
    has_broadcast<Communicator> && has_scattering_collectives<Communicator> && has_barrier<Communicator> &&
    has_duplicate<Communicator> && has_time_limit<Communicator> && has_failure<Communicator>;

/// Reports at compile time which requirement of `communicator` the type Communicator does not meet. Returns true if it
/// compiles.
template <class Communicator>
consteval bool explain_communicator() {
  static_assert(std::movable<Communicator>,
                "gradus: not a communicator: it must be movable (it is a handle; copying may be off)");
  static_assert(has_communicator_name<Communicator>,
                "gradus: not a communicator: give it a name, e.g. "
                "static constexpr std::string_view name = \"mpi\";");
  static_assert(has_ranks<Communicator>,
                "gradus: not a communicator: give it int rank() const noexcept; and int size() const noexcept;");
  static_assert(has_supported_elements<Communicator>,
                "gradus: not a communicator: declare which elements it sends: "
                "template <class Element> static constexpr bool supports = gradus::comm::transferable<Element>;");
  static_assert(
      has_messages<Communicator>,
      "gradus: not a communicator: give it messages: template <class Element> gradus::comm::request "
      "send(int peer, std::span<const Element>, int tag); and receive(int peer, std::span<Element>, int tag);");
  static_assert(has_all_reduce<Communicator>,
                "gradus: not a communicator: give it all_reduce: template <class Element> gradus::comm::request "
                "all_reduce(std::span<Element> data, gradus::comm::reduction);");
  static_assert(has_broadcast<Communicator>,
                "gradus: not a communicator: give it broadcast: template <class Element> gradus::comm::request "
                "broadcast(std::span<Element> data, int root);");
  static_assert(has_scattering_collectives<Communicator>,
                "gradus: not a communicator: give it reduce_scatter and all_gather: template <class Element> "
                "gradus::comm::request reduce_scatter(std::span<const Element> input, std::span<Element> output, "
                "gradus::comm::reduction); "
                "and all_gather(std::span<const Element> input, std::span<Element> output);");
  static_assert(has_barrier<Communicator>, "gradus: not a communicator: give it gradus::comm::request barrier();");
  static_assert(has_duplicate<Communicator>,
                "gradus: not a communicator: give it duplicate() that returns a communicator of the same type");
  static_assert(has_time_limit<Communicator>,
                "gradus: not a communicator: give it std::chrono::milliseconds time_limit() const; and "
                "void set_time_limit(std::chrono::milliseconds);");
  static_assert(has_failure<Communicator>,
                "gradus: not a communicator: give it void fail(std::string_view reason) noexcept;");
  return true;
}

namespace detail {

template <class Range>
using data_of = std::remove_pointer_t<decltype(std::data(std::declval<Range&>()))>;
template <class Range>
using span_of = decltype(std::span<data_of<Range>>{std::declval<Range>()});
template <class Range>
using element_of = typename span_of<Range>::value_type;

}  // namespace detail

/// A contiguous range that outlives the call: a span, or a vector or array that has a name.
template <class Range>
concept buffer = requires {
  typename detail::span_of<Range>;
};

/// A buffer with elements that can be overwritten.
template <class Range>
concept mutable_buffer = buffer<Range> && !std::is_const_v<typename detail::span_of<Range>::element_type>;

namespace detail {

template <class Range>
std::span<const element_of<Range>> as_input(Range&& range) noexcept {
  return std::span{range};
}

template <class Range>
std::span<element_of<Range>> as_output(Range&& range) noexcept {
  return std::span{range};
}

template <class Communicator, class Range>
consteval bool explain_transfer() {
  static_assert(explain_communicator<Communicator>());
  static_assert(Communicator::template supports<detail::element_of<Range>>,
                "gradus: this communicator cannot send this element type; see its `supports`, or send bytes");
  return true;
}

}  // namespace detail

/// The result of register_memory for communicators that do not support it.
struct no_registration {};

/// Announces that parts of `data`, the same on all ranks, will be reduced repeatedly. All ranks call it with the same
/// number of elements. Keep the handle as long as they are reduced; the array and the communicator must outlive it. See
/// mpi_shared::register_memory. Communicators without register_memory do nothing.
template <class Communicator, mutable_buffer Range>
[[nodiscard]] auto register_memory(Communicator& communicator, Range&& data,
                                   [[maybe_unused]] std::source_location where = std::source_location::current()) {
  static_assert(detail::explain_transfer<Communicator, Range>());
  if constexpr (requires { communicator.register_memory(detail::as_output(data)); }) {
    return at_call(where, [&] { return communicator.register_memory(detail::as_output(data)); });
  } else {
    return no_registration{};
  }
}

/// Announces that this rank may have `count` more sends and receives under way at a time. Calls add up. If all ranks
/// announce theirs before they begin them, messages allocate nothing, however late other ranks are. Communicators
/// without reserve_messages do nothing.
/// @throws std::bad_alloc
template <class Communicator>
void reserve_messages(Communicator& communicator, std::size_t count,
                      [[maybe_unused]] std::source_location where = std::source_location::current()) {
  if constexpr (requires { communicator.reserve_messages(count); }) {
    at_call(where, [&] { communicator.reserve_messages(count); });
  }
}

/// The type of the handle that register_memory returns for arrays of Element.
template <class Communicator, class Element>
using registration_of =
    decltype(comm::register_memory(std::declval<Communicator&>(), std::declval<std::span<Element>>()));

/// A communicator whose ranks can access each other's arrays. All ranks call `make_window(data)`. In the object that it
/// returns, `of(rank)` is the accessible part of the array of a rank, which begins at its element `first()`. `use()`
/// keeps the arrays valid for the lifetime of its result.
template <class Communicator, class Element>
concept makes_windows = requires(Communicator& communicator, std::span<Element> data) {
  { communicator.make_window(data).of(0) } -> std::same_as<std::span<Element>>;
  { communicator.make_window(data).first() } -> std::same_as<index_t>;
  static_cast<bool>(communicator.make_window(data).use());
};

/// A communicator that makes communicators of some of its ranks itself: see comm::split, which calls
/// `split(std::vector<int> ranks)`.
template <class Communicator>
concept splits_itself = requires(Communicator& communicator, std::vector<int> ranks) {
  { communicator.split(std::move(ranks)).size() } -> std::same_as<int>;
};

/// False if the messages of two ranks are matched in the order in which they are begun, whatever their tags are: those
/// of a GPU's communicator, such as comm::nccl.
template <class Communicator>
inline constexpr bool matches_tags = true;
template <class Communicator>
requires requires {
  static_cast<bool>(Communicator::matches_tags);
}
inline constexpr bool matches_tags<Communicator> = Communicator::matches_tags;

/// Begins to send `data` to rank `peer`.
/// @throws configuration_error if `peer` is not another rank or the tag is out of range
template <class Communicator, buffer Range>
[[nodiscard]] request send(Communicator& communicator, int peer, Range&& data, int tag = 0,
                           std::source_location where = std::source_location::current()) {
  static_assert(detail::explain_transfer<Communicator, Range>());
  detail::require_peer(detail::caller{communicator}, "send", peer, tag, where);
  return at_call(where, [&] { return communicator.send(peer, detail::as_input(data), tag); });
}

/// Begins to receive as many elements as `data` has from rank `peer`.
/// @throws configuration_error if `peer` is not another rank or the tag is out of range
template <class Communicator, mutable_buffer Range>
[[nodiscard]] request receive(Communicator& communicator, int peer, Range&& data, int tag = 0,
                              std::source_location where = std::source_location::current()) {
  static_assert(detail::explain_transfer<Communicator, Range>());
  detail::require_peer(detail::caller{communicator}, "receive", peer, tag, where);
  return at_call(where, [&] { return communicator.receive(peer, detail::as_output(data), tag); });
}

/// Begins to reduce `data` over all ranks, in place.
///
///   data_r[i] <- data_0[i] op data_1[i] op ... op data_{p-1}[i]      for every rank r of the p ranks
///
/// @pre   every rank calls it with the same number of elements, element type and reduction
/// @post  all ranks have the same bits; with one rank, data is unchanged
template <class Communicator, mutable_buffer Range>
[[nodiscard]] request all_reduce(Communicator& communicator, Range&& data, reduction operation = reduction::sum,
                                 std::source_location where = std::source_location::current()) {
  static_assert(detail::explain_transfer<Communicator, Range>());
  detail::require_open(detail::caller{communicator}, "all_reduce", where);
  return at_call(where, [&] { return communicator.all_reduce(detail::as_output(data), operation); });
}

/// Begins to copy the elements of rank `root` to all ranks.
/// @pre   every rank calls it with the same number of elements, element type and root
/// @throws configuration_error if `root` is not a rank
template <class Communicator, mutable_buffer Range>
[[nodiscard]] request broadcast(Communicator& communicator, Range&& data, int root = 0,
                                std::source_location where = std::source_location::current()) {
  static_assert(detail::explain_transfer<Communicator, Range>());
  detail::require_root(detail::caller{communicator}, "broadcast", root, where);
  return at_call(where, [&] { return communicator.broadcast(detail::as_output(data), root); });
}

/// Begins to reduce the contributions of all ranks; rank r gets part r of the result.
///
///   output_r[i] <- input_0[r*n + i] op ... op input_{p-1}[r*n + i]      i in [0, n), p ranks
///
///   span   | elements
///   input  | p*n
///   output | n           may be part r of input
///
/// @throws shape_error if the sizes do not fit or the spans overlap otherwise
template <class Communicator, buffer Input, mutable_buffer Output>
[[nodiscard]] request reduce_scatter(Communicator& communicator, Input&& input, Output&& output,
                                     reduction operation = reduction::sum,
                                     std::source_location where = std::source_location::current()) {
  static_assert(detail::explain_transfer<Communicator, Output>());
  static_assert(std::same_as<detail::element_of<Input>, detail::element_of<Output>>,
                "gradus::comm::reduce_scatter: input and output have different element types");
  const auto from = detail::as_input(input);
  const auto to = detail::as_output(output);
  detail::require_blocks(detail::caller{communicator}, "reduce_scatter", {"output", detail::as_input(output)},
                         {"input", from}, where);
  return at_call(where, [&] { return communicator.reduce_scatter(from, to, operation); });
}

/// Begins to gather the elements of all ranks on every rank.
///
///   output_r[q*n + i] <- input_q[i]      i in [0, n), q and r in [0, p), p ranks
///
///   span   | elements
///   input  | n           may be part r of output
///   output | p*n
///
/// @throws shape_error if the sizes do not fit or the spans overlap otherwise
template <class Communicator, buffer Input, mutable_buffer Output>
[[nodiscard]] request all_gather(Communicator& communicator, Input&& input, Output&& output,
                                 std::source_location where = std::source_location::current()) {
  static_assert(detail::explain_transfer<Communicator, Output>());
  static_assert(std::same_as<detail::element_of<Input>, detail::element_of<Output>>,
                "gradus::comm::all_gather: input and output have different element types");
  const auto from = detail::as_input(input);
  const auto to = detail::as_output(output);
  detail::require_blocks(detail::caller{communicator}, "all_gather", {"input", from},
                         {"output", detail::as_input(output)}, where);
  return at_call(where, [&] { return communicator.all_gather(from, to); });
}

/// Begins a barrier, which is complete when every rank has begun it.
template <class Communicator>
[[nodiscard]] request barrier(Communicator& communicator,
                              std::source_location where = std::source_location::current()) {
  static_assert(explain_communicator<Communicator>());
  detail::require_open(detail::caller{communicator}, "barrier", where);
  return at_call(where, [&] { return communicator.barrier(); });
}

}  // namespace gradus::comm
