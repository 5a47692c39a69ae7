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
#include "gradus/comm/detail/schedule/book.hpp"
#include "gradus/comm/detail/schedule/run.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/reduction.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/core/element.hpp"
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

  template <class Element>
  request all_reduce(std::span<Element> data, reduction operation, const all_reduce_rule& rule,
                     std::chrono::milliseconds limit) {
    const auto count = static_cast<index_t>(data.size());
    return begin<Element>(
        {.kind = call_kind::all_reduce, .operation = operation, .count = count},
        {.kind = call_kind::all_reduce, .algorithm = rule.algorithm, .rings = rule.rings, .count = count}, data.data(),
        runs_.idle(), limit);
  }

  template <class Element>
  request broadcast(std::span<Element> data, int root, std::chrono::milliseconds limit) {
    const auto count = static_cast<index_t>(data.size());
    return begin<Element>({.kind = call_kind::broadcast, .peer = book_.rank(root), .count = count},
                          {.kind = call_kind::broadcast, .root = root, .count = count}, data.data(), runs_.idle(),
                          limit);
  }

  /// Reduces to `root`. @pre `output` has the size of `input` on the root
  template <class Element>
  request reduce(std::span<const Element> input, std::span<Element> output, int root, reduction operation,
                 std::chrono::milliseconds limit) {
    const auto count = static_cast<index_t>(input.size());
    schedule_run& run = runs_.idle();
    Element* const target =
        book_.self() == root ? output.data() : reinterpret_cast<Element*>(run.staging(input.size_bytes()));
    copy(target, input);
    return begin<Element>(
        {.kind = call_kind::broadcast, .operation = operation, .peer = book_.rank(root), .count = count},
        {.kind = call_kind::broadcast, .root = root, .count = count, .to_root = true}, target, run, limit);
  }

  /// @param in_pairs  adds in pairs of neighbors in place of a ring. @pre then the number of ranks is a power of two
  template <class Element>
  request reduce_scatter(std::span<const Element> input, std::span<Element> output, reduction operation, bool in_pairs,
                         std::chrono::milliseconds limit) {
    schedule_run& run = runs_.idle();
    auto* const work = reinterpret_cast<Element*>(run.staging(input.size_bytes()));
    copy(work, input);
    return begin<Element>(
        {.kind = call_kind::reduce_scatter, .operation = operation, .count = static_cast<index_t>(output.size())},
        {.kind = call_kind::reduce_scatter,
         .algorithm = in_pairs ? all_reduce_algorithm::halving_doubling : all_reduce_algorithm::native,
         .count = static_cast<index_t>(input.size())},
        work, run, limit,
        {.to = output.data(),
         .from = work + static_cast<std::size_t>(book_.self()) * output.size(),
         .bytes = output.size_bytes()});
  }

  template <class Element>
  request all_gather(std::span<const Element> input, std::span<Element> output, std::chrono::milliseconds limit) {
    copy(output.data() + static_cast<std::size_t>(book_.self()) * input.size(), input);
    return begin<Element>({.kind = call_kind::all_gather, .count = static_cast<index_t>(input.size())},
                          {.kind = call_kind::all_gather, .count = static_cast<index_t>(output.size())}, output.data(),
                          runs_.idle(), limit);
  }

  request barrier(std::chrono::milliseconds limit) {
    return begin<std::uint8_t>({.kind = call_kind::barrier}, {}, static_cast<std::uint8_t*>(nullptr), runs_.idle(),
                               limit);
  }

 private:
  template <class Element>
  request begin(call_description what, schedule_book::key key, Element* data, schedule_run& run,
                std::chrono::milliseconds limit, const final_copy& result = {}) {
    what.element = element_name<Element>;
    what.tag = group_;
    key.segment = std::max<index_t>(segment_bytes_ / static_cast<index_t>(sizeof(Element)), 1);
    auto* const bytes = reinterpret_cast<std::byte*>(data);
    const std::span<const std::byte> memory{bytes, static_cast<std::size_t>(key.count) * sizeof(Element)};
    return messages_->begin_composed(what, memory, [&, this] {
      return run.begin(what, book_.find(key), bytes, arithmetic_of<Element>(), limit, result);
    });
  }

  template <class Element>
  static void copy(Element* to, std::span<const Element> from) noexcept {
    if (!from.empty() && to != from.data()) {
      std::memcpy(to, from.data(), from.size_bytes());
    }
  }

  std::unique_ptr<link> messages_;
  schedule_runs runs_{*messages_};
  schedule_book book_;
  index_t segment_bytes_;
  int group_;
};

}  // namespace gradus::comm::detail
