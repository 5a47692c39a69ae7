// SPDX-License-Identifier: BSL-1.0
//
// Synchronous data parallelism by all-reduce of the gradients, behind backward.
#pragma once

#include <algorithm>    // std::max
#include <cstddef>      // std::byte, std::size_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <span>         // std::as_bytes, std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/parallel/bucket.hpp"
#include "gradus/parallel/detail/all_reduce/bucket_exchange.hpp"
#include "gradus/parallel/strategy.hpp"

namespace gradus::parallel {

namespace detail {

template <class Element>
class gradients_on;
template <class Element, class Channel>
class all_reduce_state;

}  // namespace detail

/// The gradients of all ranks are summed bucket by bucket while backward goes on; then every rank makes the same update
/// of the same parameters, each bucket's as soon as its sums are there. How a bucket is summed is up to the
/// communicator: comm::mpi asks the MPI library, comm::threads adds in shared memory, comm::collectives<...> follows
/// the algorithm of your choice.
///
/// The plan is made once, from the parameters only, and is the same on all ranks: the other ranks wait for a rank whose
/// next bucket is not complete, and a step needs no negotiation.
struct all_reduce {
  /// The name of the strategy in messages.
  static constexpr std::string_view name = "all_reduce";
  /// Gradients come together by sums of the communicator only: parallel::reproducible takes it.
  static constexpr bool sums_by_communicator = true;

  /// The size at which a bucket is closed, in bytes. 0: all gradients travel at once.
  index_t bucket_bytes = 25 * 1024 * 1024;
  /// The same for the bucket that is complete first.
  index_t first_bucket_bytes = 1024 * 1024;
  /// A thread moves the communication forward during backward. Without it buckets travel after backward. Where only
  /// threads of the program may use the communicator (comm::mpi::one_thread), the program's does it between the layers.
  bool overlap = true;
  /// Longer buckets travel in parts of at most this many bytes, which more urgent parts overtake. 0: a bucket is
  /// one part.
  index_t partition_bytes = 0;
  /// A part begins to travel if at most this many bytes of gradients are then under way, or only its own: little
  /// credit lets `order` decide more, much keeps the network busy.
  index_t credit_bytes = 64 * 1024 * 1024;
  /// The next forward pass waits for a layer's parameters when it comes to the layer, not for all of them: transfers go
  /// on behind forward too, unless an update needs all gradients (optim::update). Between steps the values are then not
  /// those of one step. The trainer completes them before it evaluates, and at the end of every epoch and of fit.
  bool overlap_forward = false;
  /// The order in which parts begin to travel, each once, counted bucket by bucket; empty: as backward completes them.
  /// See parallel/transfer_order/bucket_order.hpp.
  std::vector<std::size_t> order{};

  /// The object of one rank that brings its gradients together; see gradient_strategy.
  template <class Element>
  using state = detail::all_reduce_state<Element, detail::gradients_on<Element>>;
};

namespace detail {

/// @throws configuration_error when options make no sense
void check(const all_reduce& options);

/// @throws configuration_error when options make no sense
[[nodiscard]] inline bucket_list buckets_of(const all_reduce& options, std::span<const optim::segment> segments,
                                            index_t elements, index_t element_bytes) {
  check(options);
  const auto limit = [&](index_t bytes) { return options.bucket_bytes == 0 ? elements : bytes / element_bytes; };
  return make_buckets(segments, elements, limit(options.first_bucket_bytes), limit(options.bucket_bytes));
}

/// The parts of the buckets.
[[nodiscard]] inline part_list parts_of(const all_reduce& options, std::span<const bucket> buckets,
                                        index_t element_bytes) {
  const index_t least = options.partition_bytes > 0 ? 1 : 0;
  return make_parts(buckets, std::max(options.partition_bytes / element_bytes, least));
}

/// The parts in the order in which they travel. @throws configuration_error unless `order` has every part once
[[nodiscard]] part_list in_order(part_list parts, std::span<const std::size_t> order);

/// Of one rank of several. @param one_thread  see comm::mpi::one_thread
/// @throws configuration_error when options make no sense
[[nodiscard]] std::unique_ptr<bucket_exchange> make_exchange(const all_reduce& options, gradient_channel& channel,
                                                             std::span<const optim::segment> segments, index_t elements,
                                                             index_t element_bytes, bool flush_denormals,
                                                             bool one_thread);

/// The plan, one line for each part in the order in which they travel.
[[nodiscard]] std::string describe_plan(std::string_view name, std::string_view communicator,
                                        const bucket_exchange* exchange, std::span<const optim::segment> segments);

template <class Element>
class gradients_on final : public gradient_channel {
 public:
  gradients_on(comm::any_communicator channel, std::span<Element> gradients)
      : channel_{std::move(channel)},
        gradients_{gradients},
        registration_{comm::register_memory(channel_, gradients_)} {}

  comm::request reduce(index_t begin, index_t end) override {
    return comm::all_reduce(channel_,
                            gradients_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
  }

  /// The memory of such a part that travels.
  [[nodiscard]] std::span<const std::byte> memory(index_t begin, index_t end) const noexcept {
    return std::as_bytes(gradients_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
  }

  /// Called when an all-reduce is complete, before its sums are used.
  void arrived(index_t /*begin*/, index_t /*end*/) noexcept {}

  [[nodiscard]] std::string name() const { return std::string{channel_.link().properties().name}; }
  [[nodiscard]] comm::any_communicator& communicator() noexcept { return channel_; }

 private:
  comm::any_communicator channel_;
  std::span<Element> gradients_;
  std::unique_ptr<comm::link_registration> registration_;
};

/// What a rank does with its gradients. `Channel` carries a part of them.
template <class Element, class Channel>
class all_reduce_state : public strategy<Element> {
 public:
  /// Called by all ranks: gradients travel on a duplicate of the communicator.
  /// @throws configuration_error when options make no sense
  all_reduce_state(const all_reduce& options, comm::any_communicator communicator,
                   const flat_parameters<Element>& parameters)
      : channel_{communicator.duplicate(), parameters.gradients}, parameters_{parameters} {
    if (channel_.communicator().size() > 1) {
      exchange_ =
          make_exchange(options, channel_, parameters.segments, static_cast<index_t>(parameters.gradients.size()),
                        sizeof(Element), parameters.flush_denormals, communicator.one_thread());
    }
  }

  GRADUS_COLD ~all_reduce_state() override = default;

  /// Makes the values those of rank 0.
  void start() override { comm::broadcast(channel_.communicator(), parameters_.values, 0).wait(); }

  /// The buckets that are complete begin to travel.
  void gradients_ready(std::size_t /*first*/, std::size_t count) override {
    if (exchange_ != nullptr) {
      exchange_->segments_ready(count);
    }
  }

  /// Calls update(segments) for each bucket as its sums over the ranks arrive.
  void finish(const update_call& update) override { finish_until(0, parameters_.segments.size(), update); }

  [[nodiscard]] bool has_deferred_update() const noexcept override {
    return exchange_ != nullptr && exchange_->options().late;
  }

  /// Calls update(segments) for buckets in the order in which they travel, until those of [first, first + count) have
  /// been updated in this step. Returns whether all have been.
  bool finish_until(std::size_t first, std::size_t count, const update_call& update) override {
    if (exchange_ == nullptr) {
      update(parameters_.segments);
      return true;
    }
    while (exchange_->waits_for(first, count)) {
      const bucket& next = exchange_->wait_next();
      channel_.arrived(next.begin, next.end);
      update(parameters_.segments.subspan(next.first_segment, next.segments));
    }
    return exchange_->all_taken();
  }

  [[nodiscard]] const Channel& channel() const noexcept { return channel_; }
  [[nodiscard]] const flat_parameters<Element>& parameters() const noexcept { return parameters_; }

  /// The parts, by the numbers of their buckets.
  [[nodiscard]] dynamic_array<transfer_buffer> transfer_buffers() const override {
    dynamic_array<transfer_buffer> result;
    for (std::size_t i = 0; exchange_ != nullptr && i < exchange_->parts().size(); ++i) {
      const part& one = exchange_->parts()[i];
      result.push_back(
          {.name = gradus::join({"gradients ", one.bucket}), .bytes = channel_.memory(one.begin, one.end)});
    }
    return result;
  }

  /// The plan: the parts of the buckets in the order in which they travel.
  [[nodiscard]] std::string describe() const override {
    return describe_plan(all_reduce::name, channel_.name(), exchange_.get(), parameters_.segments);
  }

 protected:
  /// The duplicate on which gradients travel.
  [[nodiscard]] comm::any_communicator& communicator() noexcept { return channel_.communicator(); }
  /// What carries them.
  [[nodiscard]] Channel& own_channel() noexcept { return channel_; }

 private:
  Channel channel_;
  flat_parameters<Element> parameters_;
  std::unique_ptr<bucket_exchange> exchange_;
};

}  // namespace detail

static_assert(gradient_strategy<all_reduce>);

}  // namespace gradus::parallel

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::parallel::detail {

GRADUS_INLINE void check(const all_reduce& options) {
  if (options.bucket_bytes < 0 || options.first_bucket_bytes < 0 || options.partition_bytes < 0 ||
      options.credit_bytes < 0) {
    raise<configuration_error>("parallel::all_reduce",
                               "bucket_bytes, first_bucket_bytes, partition_bytes and credit_bytes of at least 0",
                               {options.bucket_bytes, ", ", options.first_bucket_bytes, ", ", options.partition_bytes,
                                " and ", options.credit_bytes});
  }
}

GRADUS_INLINE part_list in_order(part_list parts, std::span<const std::size_t> order) {
  if (order.empty()) {
    return parts;
  }
  part_list result;
  dynamic_array<int> seen(parts.size());
  for (const std::size_t next : order) {
    if (next < parts.size() && seen[next]++ == 0) {
      result.push_back(parts[next]);
    }
  }
  if (result.size() != parts.size() || order.size() != parts.size()) {
    raise<configuration_error>("parallel::all_reduce", {"an order with each of ", parts.size(), " parts once"},
                               {order.size(), " numbers, among them ", result.size(), " of these"});
  }
  return result;
}

GRADUS_INLINE std::unique_ptr<bucket_exchange> make_exchange(const all_reduce& options, gradient_channel& channel,
                                                             std::span<const optim::segment> segments, index_t elements,
                                                             index_t element_bytes, bool flush_denormals,
                                                             bool one_thread) {
  bucket_list buckets = buckets_of(options, segments, elements, element_bytes);
  part_list parts = in_order(parts_of(options, {buckets.data(), buckets.size()}, element_bytes), options.order);
  return std::make_unique<bucket_exchange>(channel, segments, std::move(buckets), std::move(parts),
                                           bucket_exchange::settings{.overlap = options.overlap,
                                                                     .thread = !one_thread,
                                                                     .late = options.overlap_forward,
                                                                     .credit_bytes = options.credit_bytes,
                                                                     .element_bytes = element_bytes,
                                                                     .flush_denormals = flush_denormals});
}

GRADUS_INLINE std::string describe_plan(std::string_view name, std::string_view communicator,
                                        const bucket_exchange* exchange, std::span<const optim::segment> segments) {
  std::string text = gradus::join({name, " by ", communicator});
  if (exchange == nullptr) {
    return text;
  }
  append_text(text, {", bytes under way: ", exchange->options().credit_bytes, ", ",
                     !exchange->options().overlap ? "after backward"
                     : exchange->options().thread ? "behind backward"
                                                  : "between the layers of backward",
                     exchange->options().late ? " and behind forward" : ""});
  for (const part& each : exchange->parts()) {
    text += '\n';
    text += describe(exchange->buckets(), each.bucket, segments);
    if (const bucket& whole = exchange->buckets()[each.bucket]; each.size() != whole.size()) {
      append_text(text, {", of these ", each.begin - whole.begin, " to ", each.end - whole.begin});
    }
  }
  return text;
}

}  // namespace gradus::parallel::detail
#endif

GRADUS_COMPILED_STRATEGY(::gradus::parallel::all_reduce)
