// SPDX-License-Identifier: BSL-1.0
//
// The message schedules of collectives, as data: what comm::collectives and comm::subset send and receive.
#pragma once

#include <cstddef>  // std::size_t
#include <memory>   // std::shared_ptr
#include <span>     // std::span
#include <utility>  // std::move

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/comm/call.hpp"
#include "gradus/comm/detail/schedule/book.hpp"
#include "gradus/comm/detail/schedule/schedule.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"

namespace gradus::comm {

/// The sends and receives of one rank in one collective, in program order, with what each waits for.
using message_schedule = detail::schedule;
/// A message that a rank sends.
using scheduled_send = detail::scheduled_send;
/// A message that a rank receives.
using scheduled_receive = detail::scheduled_receive;
/// What a rank does with the elements that it receives.
using message_arrival = detail::arrival;

/// A collective of which a schedule is wanted.
struct collective_shape {
  /// all_reduce, reduce_scatter, all_gather, broadcast or barrier
  call_kind kind = call_kind::all_reduce;
  /// Of all_reduce; `native` counts as ring. Of reduce_scatter: halving_doubling adds in pairs, for a power of two of
  /// ranks; all others are rings.
  all_reduce_algorithm algorithm = all_reduce_algorithm::ring;
  int rings = 1;        ///< of ring: all_reduce_rule::rings
  int root = 0;         ///< of broadcast: a position
  index_t count = 0;    ///< elements of the whole array
  index_t segment = 1;  ///< largest number of elements of a message: collectives_options::segment_bytes
};

/// The messages that comm::collectives and comm::subset send and receive for a collective on one rank: the very
/// schedule that they run. Peers are ranks of `ranks`.
/// @param ranks         the ranks that take part, in their order
/// @param position      the index in `ranks` of the rank whose schedule is wanted
/// @param node_of_rank  the node of each of `ranks`, for the hierarchical algorithms; empty: all are on one node
/// @throws configuration_error for a position that is not among the ranks, or nodes for another number of ranks
[[nodiscard]] inline std::shared_ptr<const message_schedule> message_schedule_of(const collective_shape& what,
                                                                                 std::span<const int> ranks,
                                                                                 int position,
                                                                                 std::span<const int> node_of_rank) {
  if (position < 0 || static_cast<std::size_t>(position) >= ranks.size() ||
      (!node_of_rank.empty() && node_of_rank.size() != ranks.size())) {
    raise<configuration_error>("comm::message_schedule_of",
                               {"a position among ", ranks.size(), " ranks, and as many nodes or none"},
                               {"position ", position, " and ", node_of_rank.size(), " nodes"});
  }
  dynamic_array<int> members;
  for (const int rank : ranks) {
    members.push_back(rank);
  }
  detail::schedule_book book{std::move(members), position, node_of_rank};
  return book.find({.kind = what.kind,
                    .algorithm = what.algorithm,
                    .rings = what.rings,
                    .root = what.root,
                    .count = what.count,
                    .segment = what.segment});
}

}  // namespace gradus::comm
