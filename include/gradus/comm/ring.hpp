// SPDX-License-Identifier: BSL-1.0
//
// All-reduce around a ring of ranks, over the messages of any communicator.
// Module: comm. Depends on: core.
#pragma once

#include <algorithm>        // std::max, std::min
#include <chrono>           // std::chrono::milliseconds
#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::uint8_t
#include <exception>        // std::current_exception, std::exception_ptr, std::rethrow_exception
#include <memory>           // std::make_unique, std::unique_ptr
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <utility>          // std::exchange, std::move
#include <vector>           // std::vector

#include "gradus/comm/communicator.hpp"  // communicator, reduction, request
#include "gradus/comm/detail/call.hpp"   // call
#include "gradus/comm/detail/wait.hpp"   // backoff, clock, seconds_text
#include "gradus/comm/self.hpp"          // self
#include "gradus/core/error.hpp"         // communication_error, configuration_error
#include "gradus/core/index.hpp"         // index_t
#include "gradus/core/text.hpp"          // text

namespace gradus::comm {

struct ring_options {
  /// Chunks travel in segments of at most so many bytes, so that receiving and adding overlap.
  index_t segment_bytes = 256 * 1024;
};

namespace detail {

/// The bounds of part i of `parts` nearly equal parts of `count` elements: part i is [bound(i), bound(i+1)).
constexpr index_t part_bound(index_t count, index_t parts, index_t i) noexcept {
  return count / parts * i + count % parts * i / parts;
}

/// One all-reduce around the ring. Of p ranks, rank r in step s of 2(p-1) sends a chunk to rank r+1 and receives
/// another from rank r-1: in the first p-1 steps it adds what it receives, afterwards each chunk is complete somewhere
/// and goes around once more. A chunk travels in segments; an item is one segment in one step, and items are numbered
/// in the order in which they are received.
template <class Communicator>
class ring_all_reduce final : public operation {
 public:
  /// target[i] = target[i] op source[i] for count elements
  using combiner = void (*)(reduction operation, std::byte* target, const std::byte* source, index_t count);

  /// All operations of a ring move forward together, whichever is waited for.
  class group {
   public:
    group(Communicator own, ring_options options) : channel{std::move(own)}, options_{options} {
      if (options.segment_bytes < 1) {
        throw configuration_error{"comm::ring", "segment_bytes of at least 1", {options.segment_bytes}};
      }
    }

    request begin(const call& what, std::byte* data, index_t element_bytes, combiner combine,
                  std::chrono::milliseconds limit) {
      ring_all_reduce* fresh = nullptr;
      if (idle_.empty()) {
        all_.push_back(std::make_unique<ring_all_reduce>(*this));
        idle_.reserve(all_.size());
        active_.reserve(all_.size());
        fresh = all_.back().get();
      } else {
        fresh = idle_.back();
        idle_.pop_back();
      }
      active_.push_back(fresh);
      request pending{*fresh};
      tag_ = (tag_ + 1) % (largest_tag + 1);
      fresh->start(what, data, element_bytes, combine, limit, tag_, options_.segment_bytes);
      return pending;
    }

    void advance_all() noexcept {
      for (ring_all_reduce* const each : active_) {
        each->advance();
      }
    }

    void retire(ring_all_reduce& done) noexcept {
      std::erase(active_, &done);
      idle_.push_back(&done);  // within its reserved capacity
    }

    Communicator channel;

   private:
    ring_options options_;
    int tag_ = -1;
    std::vector<std::unique_ptr<ring_all_reduce>> all_;
    std::vector<ring_all_reduce*> idle_;
    std::vector<ring_all_reduce*> active_;  // in the order in which they began
  };

  explicit ring_all_reduce(group& owner) noexcept : owner_{&owner} {}

  bool test(const std::source_location&) override {
    owner_->advance_all();
    if (failure_ != nullptr) {
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
    return complete();
  }

  void wait(const std::source_location& where) override {
    backoff rest{200};
    const clock::time_point deadline = clock::now() + limit_;
    while (!test(where)) {
      if (clock::now() > deadline) {
        const std::string reason = gradus::detail::text({"no progress with ", ranks_text({previous_}), " or to ",
                                                         ranks_text({next_}), " within ", seconds_text(limit_)});
        owner_->channel.fail(gradus::detail::text({what_.describe(), ": ", reason}));
        drop_messages();
        throw communication_error{what_.describe(), {}, reason, "set_time_limit allows longer waits", where};
      }
      rest.pause();
    }
  }

  void abandon(bool unwinding) noexcept override {
    if (!unwinding) {
      try {
        wait(std::source_location::current());
      } catch (...) {
        // The communicator has failed; its next operation says so.
      }
    }
    drop_messages();
  }

  void release() noexcept override { owner_->retire(*this); }

 private:
  static constexpr index_t window = 2;  // receives under way

  void start(const call& what, std::byte* data, index_t element_bytes, combiner combine,
             std::chrono::milliseconds limit, int tag, index_t segment_bytes) {
    what_ = what;
    data_ = data;
    element_bytes_ = element_bytes;
    combine_ = combine;
    limit_ = limit;
    tag_ = tag;
    ranks_ = owner_->channel.size();
    rank_ = owner_->channel.rank();
    previous_ = static_cast<int>((rank_ + ranks_ - 1) % ranks_);
    next_ = static_cast<int>((rank_ + 1) % ranks_);
    const index_t largest_chunk = (what.count + ranks_ - 1) / ranks_ * element_bytes;
    segments_ = std::max<index_t>((largest_chunk + segment_bytes - 1) / segment_bytes, 1);
    items_ = 2 * (ranks_ - 1) * segments_;
    posted_ = 0;
    consumed_ = 0;
    sends_done_ = 0;
    failure_ = nullptr;
    sends_.resize(static_cast<std::size_t>(items_));
    const auto slot = static_cast<std::size_t>((largest_chunk / segments_ / element_bytes + 2) * element_bytes);
    for (std::vector<std::byte>& each : scratch_) {
      if (each.size() < slot) {
        each.resize(slot);
      }
    }
    for (index_t segment = 0; segment < segments_; ++segment) {
      begin_send(segment);
    }
    advance();
  }

  [[nodiscard]] bool complete() const noexcept { return consumed_ == items_ && sends_done_ == items_; }

  /// The bytes of segment `segment` of chunk `chunk`, any integer that counts around the ring.
  [[nodiscard]] std::span<std::byte> segment_of(index_t chunk, index_t segment) const noexcept {
    chunk = ((chunk % ranks_) + ranks_) % ranks_;
    const index_t chunk_begin = part_bound(what_.count, ranks_, chunk);
    const index_t chunk_count = part_bound(what_.count, ranks_, chunk + 1) - chunk_begin;
    const index_t begin = chunk_begin + part_bound(chunk_count, segments_, segment);
    const index_t end = chunk_begin + part_bound(chunk_count, segments_, segment + 1);
    return {data_ + begin * element_bytes_, static_cast<std::size_t>((end - begin) * element_bytes_)};
  }

  // In step s rank r sends chunk r-s and receives chunk r-s-1; the second half only goes on counting.
  [[nodiscard]] std::span<std::byte> sent_by(index_t item) const noexcept {
    return segment_of(rank_ - item / segments_, item % segments_);
  }
  [[nodiscard]] std::span<std::byte> received_by(index_t item) const noexcept {
    return segment_of(rank_ - item / segments_ - 1, item % segments_);
  }
  [[nodiscard]] bool adds(index_t item) const noexcept { return item / segments_ < ranks_ - 1; }

  static std::span<const std::uint8_t> as_bytes(std::span<const std::byte> bytes) noexcept {
    return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
  }
  static std::span<std::uint8_t> as_writable_bytes(std::span<std::byte> bytes) noexcept {
    return {reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()};
  }

  void begin_send(index_t item) {
    sends_[static_cast<std::size_t>(item)] = owner_->channel.send(next_, as_bytes(sent_by(item)), tag_);
  }

  /// An overwriting receive goes to where an earlier send may still be reading: the one of p-1 steps before and one
  /// segment place.
  bool may_receive(index_t item) {
    return adds(item) || sends_[static_cast<std::size_t>(item - (ranks_ - 1) * segments_)].test();
  }

  void begin_receive(index_t item) {
    const std::span<std::byte> target = received_by(item);
    const auto place = static_cast<std::size_t>(item % window);
    receives_[place] = owner_->channel.receive(
        previous_, as_writable_bytes(adds(item) ? std::span{scratch_[place]}.first(target.size()) : target), tag_);
  }

  void consume(index_t item) {
    if (adds(item)) {
      const std::span<std::byte> target = received_by(item);
      combine_(what_.operation, target.data(), scratch_[static_cast<std::size_t>(item % window)].data(),
               static_cast<index_t>(target.size()) / element_bytes_);
    }
    if (item + segments_ < items_) {
      begin_send(item + segments_);  // what was received in one step is sent in the next
    }
  }

  /// Does what can be done at once.
  void advance() noexcept {
    if (failure_ != nullptr || complete()) {
      return;
    }
    try {
      for (bool moved = true; moved;) {
        moved = false;
        while (posted_ < items_ && posted_ < consumed_ + window && may_receive(posted_)) {
          begin_receive(posted_++);
        }
        while (consumed_ < posted_ && receives_[static_cast<std::size_t>(consumed_ % window)].test()) {
          consume(consumed_++);
          moved = true;
        }
      }
      while (sends_done_ < items_ && sends_done_ < consumed_ + segments_ &&
             sends_[static_cast<std::size_t>(sends_done_)].test()) {
        ++sends_done_;
      }
    } catch (...) {
      failure_ = std::current_exception();
      drop_messages();
    }
  }

  void drop_messages() noexcept {
    for (request& each : receives_) {
      each.cancel();
    }
    for (request& each : sends_) {
      each.cancel();
    }
  }

  group* owner_;
  call what_{};
  std::byte* data_ = nullptr;
  index_t element_bytes_ = 1;
  combiner combine_ = nullptr;
  std::chrono::milliseconds limit_{};
  int tag_ = 0;
  int previous_ = 0;
  int next_ = 0;
  index_t ranks_ = 1;
  index_t rank_ = 0;
  index_t segments_ = 1;  // of each chunk
  index_t items_ = 0;     // segments times steps
  index_t posted_ = 0;    // receives begun
  index_t consumed_ = 0;  // receives dealt with
  index_t sends_done_ = 0;
  std::exception_ptr failure_;
  std::vector<request> sends_;
  request receives_[window];
  std::vector<std::byte> scratch_[window];
};

}  // namespace detail

/// A communicator whose all_reduce goes around a ring; everything else is done by the communicator that it is built on.
///
/// All-reduce of n bytes on p ranks takes 2(p-1) steps, in each of which every rank sends and receives n/p bytes: time
/// 2(p-1) a + 2 (p-1)/p n b + (p-1)/p n c for latency a, time per byte b and time to combine a byte c. Any number of
/// ranks and elements. Chunk i is combined in the order of the ranks i, i+1, ..., around: the same bits on all ranks
/// and in every run for one number of ranks. A ring all-reduce moves forward while its rank waits for or tests an
/// all-reduce of the same ring.
///
/// Reference: P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
///
/// @code
///   comm::ring world{comm::mpi{environment}};
///   comm::all_reduce(world, gradients).wait();
/// @endcode
template <class Communicator>
class ring {
  static_assert(explain_communicator<Communicator>());

 public:
  static constexpr std::string_view name = "ring";
  template <class Element>
  static constexpr bool supports = transferable<Element>&& Communicator::template supports<Element>;

  /// Called by all ranks: the ring has a duplicate of its own for its messages.
  /// @throws configuration_error for a segment of less than a byte
  explicit ring(Communicator base, ring_options options = {})
      : base_{std::move(base)}, options_{options}, group_{std::make_unique<group>(base_.duplicate(), options)} {}

  [[nodiscard]] int rank() const noexcept { return base_.rank(); }
  [[nodiscard]] int size() const noexcept { return base_.size(); }

  [[nodiscard]] std::chrono::milliseconds time_limit() const noexcept { return base_.time_limit(); }
  void set_time_limit(std::chrono::milliseconds limit) {
    base_.set_time_limit(limit);
    group_->channel.set_time_limit(limit);
  }

  template <class Element>
  [[nodiscard]] request send(int peer, std::span<const Element> data, int tag) {
    return base_.send(peer, data, tag);
  }

  template <class Element>
  [[nodiscard]] request receive(int peer, std::span<Element> data, int tag) {
    return base_.receive(peer, data, tag);
  }

  template <transferable Element>
  [[nodiscard]] request all_reduce(std::span<Element> data, reduction operation) {
    if (size() == 1) {
      return base_.all_reduce(data, operation);
    }
    const auto combine = [](reduction which, std::byte* target, const std::byte* source, index_t count) {
      detail::accumulate(which, reinterpret_cast<Element*>(target), reinterpret_cast<const Element*>(source), count);
    };
    return group_->begin({.kind = detail::call_kind::all_reduce,
                          .operation = operation,
                          .count = static_cast<index_t>(data.size()),
                          .element = element_name<Element>},
                         reinterpret_cast<std::byte*>(data.data()), sizeof(Element), combine, time_limit());
  }

  template <class Element>
  [[nodiscard]] request broadcast(std::span<Element> data, int root) {
    return base_.broadcast(data, root);
  }

  template <class Element>
  [[nodiscard]] request reduce_scatter(std::span<const Element> input, std::span<Element> output, reduction operation) {
    return base_.reduce_scatter(input, output, operation);
  }

  template <class Element>
  [[nodiscard]] request all_gather(std::span<const Element> input, std::span<Element> output) {
    return base_.all_gather(input, output);
  }

  [[nodiscard]] request barrier() { return base_.barrier(); }

  [[nodiscard]] ring duplicate() { return ring{base_.duplicate(), options_}; }

  void fail(std::string_view reason) noexcept { base_.fail(reason); }

 private:
  using group = typename detail::ring_all_reduce<Communicator>::group;

  Communicator base_;
  ring_options options_;
  std::unique_ptr<group> group_;
};
static_assert(communicator<ring<self>>);

}  // namespace gradus::comm
