// SPDX-License-Identifier: BSL-1.0
//
// The collectives of some ranks of a communicator, over its send and receive.
#pragma once

#include <algorithm>  // std::max
#include <chrono>     // std::chrono::milliseconds
#include <cstddef>    // std::byte, std::size_t
#include <cstdint>    // std::uint8_t
#include <cstring>    // std::memcpy
#include <memory>     // std::unique_ptr
#include <span>       // std::span
#include <utility>    // std::move

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/comm/call.hpp"
#include "gradus/comm/collectives_options.hpp"
#include "gradus/comm/detail/schedule/book.hpp"
#include "gradus/comm/detail/schedule/run.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/index.hpp"

namespace gradus::comm::detail {

/// Runs the collectives of some ranks of a communicator as schedules of messages. Roots and parts of arrays count the
/// positions of these ranks; messages, errors and the recorder of the communicator name its own ranks. Each function
/// takes the time limit of the wait.
class message_collectives {
 public:
  /// @param own            not used for anything else
  /// @param segment_bytes  largest size of a message
  /// @param group          index of these ranks among the groups of `own`, for its recorder; 0: all ranks of `own`
  message_collectives(std::unique_ptr<link> own, schedule_book book, index_t segment_bytes, int group = 0)
      : messages_{std::move(own)}, book_{std::move(book)}, segment_bytes_{segment_bytes}, group_{group} {}
  message_collectives(const message_collectives&) = delete;
  message_collectives& operator=(const message_collectives&) = delete;

  /// Sets the time limit of the communicator of the messages.
  void set_time_limit(std::chrono::milliseconds limit) { messages_->set_time_limit(limit); }

  /// Begins a collective of all positions.
  /// @pre  with options.scatter_in_pairs the number of ranks is a power of two
  [[nodiscard]] request begin(const transfer& one, const collectives_options& options, std::chrono::milliseconds limit);

  /// Reduces to the root, `what.peer`. @pre `output` has the size of `input` on the root
  [[nodiscard]] request reduce(const transfer& one, std::chrono::milliseconds limit);

 private:
  [[nodiscard]] request reduce_scatter(const transfer& one, schedule_run& run, bool in_pairs,
                                       std::chrono::milliseconds limit);

  [[nodiscard]] request begin(const transfer& one, schedule_book::key key, void* data, schedule_run& run,
                              std::chrono::milliseconds limit, const final_copy& result = {});

  static void copy(void* to, const void* from, std::size_t bytes) noexcept {
    if (bytes != 0 && to != from) {
      std::memcpy(to, from, bytes);
    }
  }

  std::unique_ptr<link> messages_;
  schedule_runs runs_{*messages_};
  schedule_book book_;
  index_t segment_bytes_;
  int group_;
};

}  // namespace gradus::comm::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm::detail {

GRADUS_INLINE request message_collectives::begin(const transfer& one, const collectives_options& options,
                                                 std::chrono::milliseconds limit) {
  const call_description& what = one.what;
  schedule_run& run = runs_.idle();
  schedule_book::key key{.kind = what.kind, .count = one.output_count(book_.size())};
  switch (what.kind) {
    case call_kind::all_reduce: {
      const all_reduce_rule& rule = choose(options.all_reduce, what.count, one.element->bytes);
      key.algorithm = rule.algorithm;
      key.rings = rule.rings;
      break;
    }
    case call_kind::broadcast:
      key.root = what.peer;
      break;
    case call_kind::reduce_scatter:
      return reduce_scatter(one, run, options.scatter_in_pairs, limit);
    case call_kind::all_gather:
      copy(static_cast<std::byte*>(one.output) + one.bytes(book_.self() * what.count), one.input,
           one.bytes(what.count));
      break;
    default:
      key = {};  // a barrier
  }
  return begin(one, key, one.output, run, limit);
}

GRADUS_INLINE request message_collectives::reduce(const transfer& one, std::chrono::milliseconds limit) {
  schedule_run& run = runs_.idle();
  const std::size_t bytes = one.bytes(one.what.count);
  void* const target = book_.self() == one.what.peer ? one.output : run.staging(bytes);
  copy(target, one.input, bytes);
  return begin(one, {.kind = call_kind::broadcast, .root = one.what.peer, .count = one.what.count, .to_root = true},
               target, run, limit);
}

GRADUS_INLINE request message_collectives::reduce_scatter(const transfer& one, schedule_run& run, bool in_pairs,
                                                          std::chrono::milliseconds limit) {
  const index_t all = one.input_count(book_.size());
  std::byte* const work = run.staging(one.bytes(all));
  copy(work, one.input, one.bytes(all));
  return begin(
      one,
      {.kind = call_kind::reduce_scatter,
       .algorithm = in_pairs ? all_reduce_algorithm::halving_doubling : all_reduce_algorithm::native,
       .count = all},
      work, run, limit,
      {.to = one.output, .from = work + one.bytes(book_.self() * one.what.count), .bytes = one.bytes(one.what.count)});
}

GRADUS_INLINE request message_collectives::begin(const transfer& one, schedule_book::key key, void* data,
                                                 schedule_run& run, std::chrono::milliseconds limit,
                                                 const final_copy& result) {
  call_description what = one.what;
  what.peer = what.kind == call_kind::broadcast ? book_.rank(what.peer) : what.peer;
  what.tag = group_;
  key.segment = std::max<index_t>(segment_bytes_ / one.element->bytes, 1);
  auto* const bytes = static_cast<std::byte*>(data);
  return messages_->begin_composed(what, {bytes, one.bytes(key.count)}, [&, this] {
    return run.begin(what, book_.find(key), bytes, *one.element, limit, result);
  });
}

}  // namespace gradus::comm::detail
#endif
