// SPDX-License-Identifier: BSL-1.0
//
// The description of a call of a communicator, for comparison between ranks and for messages.
#pragma once

#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/comm/reduction.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm {

/// Message tags are in [0, largest_tag], a range that every MPI library supports.
inline constexpr int largest_tag = 32767;
/// What to do when a communicator is used after a rank has failed.
inline constexpr std::string_view hint_of_failed =
    "a communicator does not work after that: correct this first error, and start the ranks again or give them a new "
    "communicator";
/// The operations of a communicator.
enum class call_kind : unsigned char {
  send,            ///< a message to one rank
  receive,         ///< a message from one rank
  all_reduce,      ///< all ranks get the reduction of all arrays
  broadcast,       ///< all ranks get the array of the root
  reduce_scatter,  ///< each rank gets its part of the reduction of all arrays
  all_gather,      ///< all ranks get the arrays of all ranks
  barrier,         ///< ends when all ranks have entered
  duplicate,       ///< makes a communicator of the same ranks
  register_memory  ///< prepares memory for transfers
};

/// The name of an operation, such as "all_reduce".
[[nodiscard]] constexpr std::string_view name_of(call_kind kind) noexcept {
  switch (kind) {
    case call_kind::send:
      return "send";
    case call_kind::receive:
      return "receive";
    case call_kind::all_reduce:
      return "all_reduce";
    case call_kind::broadcast:
      return "broadcast";
    case call_kind::reduce_scatter:
      return "reduce_scatter";
    case call_kind::all_gather:
      return "all_gather";
    case call_kind::barrier:
      return "barrier";
    case call_kind::duplicate:
      return "duplicate";
    case call_kind::register_memory:
      return "register_memory";
  }
  return "unknown call";
}

/// The description of a call. `count` is in elements: the whole array for all_reduce and broadcast, the elements per
/// rank for reduce_scatter and all_gather. `peer` is the other rank of a message or the root of a broadcast.
struct call_description {
  call_kind kind = call_kind::barrier;   ///< the operation
  reduction operation = reduction::sum;  ///< for all_reduce and reduce_scatter
  int peer = 0;                          ///< the other rank or the root
  int tag = 0;                           ///< tag of a message
  index_t count = 0;                     ///< in elements
  std::string_view element{};            ///< name of the element type

  /// True if all members are equal.
  friend bool operator==(const call_description&, const call_description&) = default;

  /// The name of the operation.
  [[nodiscard]] std::string_view name() const noexcept { return name_of(kind); }

  /// The call as text: "all_reduce(sum) of 1000 float32", "send to rank 1 (tag 3) of 7 float64".
  [[nodiscard]] std::string describe() const;
};

}  // namespace gradus::comm

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm {

GRADUS_COLD GRADUS_INLINE std::string call_description::describe() const {
  std::string text{name()};
  switch (kind) {
    case call_kind::send:
    case call_kind::receive:
      append_text(text, {kind == call_kind::send ? " to rank " : " from rank ", peer, " (tag ", tag, ")"});
      break;
    case call_kind::all_reduce:
    case call_kind::reduce_scatter:
      append_text(text, {"(", comm::name_of(operation), ")"});
      break;
    case call_kind::broadcast:
      append_text(text, {" from rank ", peer});
      break;
    case call_kind::all_gather:
    case call_kind::barrier:
    case call_kind::duplicate:
    case call_kind::register_memory:
      break;
  }
  if (kind != call_kind::barrier && kind != call_kind::duplicate) {
    append_text(text, {" of ", count, " ", element});
  }
  return text;
}

}  // namespace gradus::comm
#endif
