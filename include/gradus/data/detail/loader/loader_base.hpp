// SPDX-License-Identifier: BSL-1.0
//
// The part of a loader that does not depend on element type and layout: the order of batches, and the thread that
// prepares them.
#pragma once

#include <algorithm>           // std::max, std::min
#include <chrono>              // std::chrono::steady_clock
#include <condition_variable>  // std::condition_variable
#include <cstddef>             // std::size_t
#include <cstdint>             // std::int32_t, std::uint64_t
#include <exception>           // std::exception_ptr, std::current_exception, std::rethrow_exception
#include <mutex>               // std::mutex, std::unique_lock, std::lock_guard
#include <string>              // std::string
#include <thread>              // std::thread
#include <utility>             // std::move

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/core/thread.hpp"
#include "gradus/data/detail/loader/hash.hpp"
#include "gradus/data/detail/loader/source.hpp"
#include "gradus/data/loader_options.hpp"
#include "gradus/data/sampler.hpp"

namespace gradus::data::detail {

/// The members of every loader. A derived class fills slots. It calls start() when it can do so, and stop() before it
/// no longer can.
class loader_base {
 public:
  loader_base(const loader_base&) = delete;
  loader_base& operator=(const loader_base&) = delete;

  /// Begins an epoch. The rest of the previous epoch is abandoned, and its batches are no longer valid.
  /// @param first  batches of the epoch that are left out: next() gives what it would give after as many calls, and
  ///               their examples are not read
  /// @throws configuration_error unless 0 <= first <= steps_per_epoch()
  void start_epoch(std::uint64_t epoch, index_t first = 0, error_location where = error_location::current());

  /// Takes a shard of every batch, from the next epoch on. A trainer calls it with its rank and the number of ranks
  /// that train. Without a trainer and without a shard in its options, the loader yields whole batches.
  /// @throws configuration_error if the loader was made for another shard, or the shard is invalid
  void take_shard(const data::shard& part, error_location where = error_location::current());

  /// Batches of an epoch; the same on all ranks.
  [[nodiscard]] index_t steps_per_epoch() const noexcept { return batches_; }
  /// Examples of an epoch over all ranks.
  [[nodiscard]] index_t examples_per_epoch() const noexcept { return sampler_.examples(); }
  /// The largest number of images of any rank in a batch: sampler::largest_share.
  [[nodiscard]] index_t local_batch_size() const noexcept {
    return set_.held.spread() ? sampler_.largest_share()
                              : share_of(global_batch_size_, {.rank = 0, .ranks = shard_.ranks}).count;
  }
  /// The number of ranks that share each batch.
  [[nodiscard]] int ranks() const noexcept { return shard_.ranks; }
  /// The extents of an image: (1, c, h, w).
  [[nodiscard]] const image_extents& example() const noexcept { return set_.example; }
  /// The number of classes; 0 where the targets are real numbers.
  [[nodiscard]] int classes() const noexcept { return set_.classes; }
  /// The number of classes that each example has: 1, one for each pixel, or 0.
  [[nodiscard]] index_t labels_per_example() const noexcept { return set_.labels; }
  /// The extents of an example's real targets: (1, c, h, w), or empty.
  [[nodiscard]] const image_extents& target() const noexcept { return set_.target; }
  /// The properties on which ranks must agree: size, shape, classes and hash of the set, batch size, order, number of
  /// ranks.
  [[nodiscard]] std::string description() const {
    return gradus::join({description_, ", shared by ", shard_.ranks, shard_.ranks == 1 ? " rank" : " ranks"});
  }
  /// Seconds for which next() has waited for the producer since construction: the time that input takes from training.
  [[nodiscard]] double wait_seconds() const noexcept { return wait_seconds_; }

 protected:
  /// The epoch of the batch that is being prepared. For the functions that fill it.
  [[nodiscard]] std::uint64_t epoch_of_fill() const noexcept { return epoch_of_fill_; }

  loader_base(const dataset_properties& set, const loader_options& options);

  ~loader_base() = default;

  /// Writes a batch into slot `number`; called by the producer. It is not a virtual function, because the thread would
  /// read the pointer to the virtual table while destructors write it.
  using fill_function = void (*)(loader_base& loader, std::size_t number, const sample& mine);

  /// @param flush_denormals  as the device of the batches
  void start(fill_function fill, bool flush_denormals) {
    fill_ = fill;
    flush_denormals_ = flush_denormals;
    producer_ = start_thread(
        "gradus loader", [](void* self) { static_cast<loader_base*>(self)->produce(); }, this);
  }

  void stop() noexcept;

  /// The capacity of a slot in examples.
  [[nodiscard]] index_t largest_batch() const noexcept { return largest_batch_; }

  /// The number of slots.
  [[nodiscard]] std::size_t slots() const noexcept { return static_cast<std::size_t>(slots_); }

  /// The slot of the next batch, or slots() after the last.
  [[nodiscard]] std::size_t next_slot();

  /// The properties of the data set.
  [[nodiscard]] const dataset_properties& properties() const noexcept { return set_; }

  /// @throws format_error if a label is out of range
  void check_label(std::int32_t label, index_t example) const;

  /// @throws format_error if a weight is negative, infinite or NaN
  void check_weight(double weight, index_t example) const {
    if (!(weight >= 0) || !is_finite(weight)) {
      raise<format_error>("loader", "finite weights of at least 0", {"weight ", weight, " of example ", example});
    }
  }

 private:
  /// The shard as text: "rank 1 of 4".
  static std::string shard_text(const data::shard& part) {
    return gradus::join({"rank ", part.rank, " of ", part.ranks});
  }

  static std::string describe(const dataset_properties& set, const loader_options& options);

  void check(const loader_options& options) const;

  /// The slot of batch b of an epoch: b modulo the number of slots.
  [[nodiscard]] std::size_t slot_of(index_t batch_number) const noexcept {
    return static_cast<std::size_t>(batch_number % slots_);
  }

  /// The main function of the thread that prepares batches.
  void produce();

  dataset_properties set_;
  index_t global_batch_size_;
  bool fixed_shard_;       // the options set it
  data::shard shard_;      // written only by the consumer, under the mutex while the producer runs
  data::sampler sampler_;  // used by the producer while it runs, except for constants
  index_t largest_batch_;
  std::string description_;
  index_t batches_;  // batches of an epoch
  index_t slots_;
  fill_function fill_ = nullptr;
  bool flush_denormals_ = false;
  std::uint64_t epoch_of_fill_ = 0;  // of the batch that is being prepared; used by the producer

  std::mutex mutex_;  // protects the members below
  std::condition_variable wake_producer_;
  std::condition_variable wake_consumer_;
  std::uint64_t epoch_ = 0;
  std::uint64_t requests_ = 0;  // number of epochs started
  index_t ready_ = 0;           // batches of the epoch that are prepared
  index_t released_ = 0;        // batches of the epoch that the consumer no longer uses
  std::exception_ptr failure_;
  bool stop_ = false;

  index_t given_ = 0;  // batches of the epoch that the consumer received; used only by the consumer
  double wait_seconds_ = 0;
  std::thread producer_;  // last member, because it uses all of the above
};

}  // namespace gradus::data::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::data::detail {

GRADUS_INLINE void loader_base::start_epoch(std::uint64_t epoch, index_t first, error_location where) {
  if (first < 0 || first > batches_) {
    raise<configuration_error>("loader.start_epoch", {"a first batch from 0 to ", batches_}, {first}, {}, where);
  }
  {
    const std::lock_guard lock{mutex_};
    epoch_ = epoch;
    ++requests_;
    ready_ = first;
    released_ = first;
    failure_ = nullptr;
  }
  given_ = first;
  wake_producer_.notify_one();
}

GRADUS_INLINE void loader_base::take_shard(const data::shard& part, error_location where) {
  if (part.ranks < 1 || part.rank < 0 || part.rank >= part.ranks) {
    raise<configuration_error>("loader.take_shard", "a rank from 0 to ranks - 1", shard_text(part), {}, where);
  }
  if (set_.held.spread() && part != set_.held.of) {
    raise<configuration_error>("loader.take_shard",
                               {"the ranks of the distributed data set: ", shard_text(set_.held.of)},
                               {"the trainer's ", part.nested ? "virtual workers on " : "", shard_text(part)},
                               "make data::distributed and the trainer with one communicator; parallel::reproducible "
                               "and pipelines need data "
                               "that all ranks have",
                               where);
  }
  if (fixed_shard_ && part != shard_) {
    raise<configuration_error>("loader.take_shard", {shard_text(shard_), ", the shard of the loader's options"},
                               {shard_text(part), ", the shard of the trainer's rank"},
                               "leave loader_options::shard out: the trainer gives each rank its shard", where);
  }
  const std::lock_guard lock{mutex_};
  shard_ = part;
}

GRADUS_INLINE_CONSTRUCTOR loader_base::loader_base(const dataset_properties& set, const loader_options& options)
    : set_{set},
      global_batch_size_{std::min(options.global_batch_size, std::max(set.size, index_t{1}))},
      fixed_shard_{options.shard != loader_options{}.shard},
      shard_{fixed_shard_        ? options.shard
             : set.held.spread() ? set.held.of
                                 : data::shard{}},
      sampler_{set.size,
               {.global_batch_size = options.global_batch_size,
                .shuffle = options.shuffle,
                .seed = options.seed,
                .shard = shard_,
                .drop_last = options.drop_last,
                .held = set.held}},
      largest_batch_{local_batch_size()},
      description_{describe(set, options)},
      batches_{sampler_.batches()},
      slots_{static_cast<index_t>(options.prefetch) + 1} {
  check(options);
}

GRADUS_INLINE void loader_base::stop() noexcept {
  {
    const std::lock_guard lock{mutex_};
    stop_ = true;
  }
  wake_producer_.notify_one();
  if (producer_.joinable()) {
    producer_.join();
  }
}

GRADUS_INLINE std::size_t loader_base::next_slot() {
  std::unique_lock lock{mutex_};
  if (requests_ == 0) {
    raise<configuration_error>("loader.next", "an epoch", "none", "call start_epoch(0) first");
  }
  released_ = given_;  // the batch of the previous call is free
  if (given_ == batches_) {
    return slots();
  }
  wake_producer_.notify_one();
  if (ready_ == given_ && !failure_) {
    const auto began = std::chrono::steady_clock::now();
    wake_consumer_.wait(lock, [this] { return ready_ > given_ || failure_; });
    wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }
  if (ready_ == given_) {
    std::rethrow_exception(failure_);
  }
  return slot_of(given_++);
}

GRADUS_INLINE void loader_base::check_label(std::int32_t label, index_t example) const {
  if ((label < 0 || label >= set_.classes) && !(set_.ignores && label == set_.ignored)) {
    const std::string also = set_.ignores ? gradus::join({" or the ignored label ", set_.ignored}) : "";
    raise<format_error>(
        "loader", {"labels from 0 to ", set_.classes - 1, also}, {"label ", label, " of example ", example},
        {"if ", label, " is no class, say so to the data set and the loss: {.ignored_label = ", label,
         "} and nn::softmax_cross_entropy{.ignored_label = ", label, "}; else give the data set more classes"});
  }
}

GRADUS_COLD GRADUS_INLINE std::string loader_base::describe(const dataset_properties& set,
                                                            const loader_options& options) {
  const image_extents& one = set.example;
  std::string text = gradus::join({set.size, " examples of ", one.c, "x", one.h, "x", one.w});
  if (set.classes > 0) {
    append_text(text, {" in ", set.classes, " classes"});
  }
  if (set.labels > 1) {
    append_text(text, {" for each of ", set.labels, " pixels"});
  }
  if (set.target.c > 0) {
    append_text(text, {" with targets of ", set.target.c, "x", set.target.h, "x", set.target.w});
  }
  append_text(text, {set.weighted ? ", weighted (content " : " (content ", hexadecimal(set.hash), "), batches of ",
                     options.global_batch_size});
  if (options.shuffle) {
    append_text(text, {", shuffled with seed ", options.seed});
  } else {
    text.append(", in the order of the set");
  }
  return text.append(options.drop_last ? ", the last batch only if it is full" : "");
}

GRADUS_INLINE void loader_base::check(const loader_options& options) const {
  const image_extents& one = set_.example;
  if (one.c < 1 || one.h < 1 || one.w < 1) {
    raise<configuration_error>("loader", "images of at least one channel, row and column", to_string(one));
  }
  const image_extents& target = set_.target;
  if (set_.labels > 0 ? set_.classes < 1 : target.c < 1 || target.h < 1 || target.w < 1) {
    raise<configuration_error>("loader", "classes of at least 1, or real targets of at least 1 number",
                               {set_.classes, " classes and targets of ", to_string(target)});
  }
  if (options.prefetch < 1 || options.prefetch > 1024) {
    raise<configuration_error>("loader", "a prefetch from 1 to 1024 batches", {options.prefetch});
  }
}

GRADUS_INLINE void loader_base::produce() {
  const floating_point_scope arithmetic{flush_denormals_};
  std::uint64_t request = 0;  // the epoch that is being prepared
  std::unique_lock lock{mutex_};
  for (;;) {
    wake_producer_.wait(lock, [&, this] {
      const bool room = ready_ - released_ < slots_;
      return stop_ || requests_ != request || (request != 0 && !failure_ && ready_ < batches_ && room);
    });
    if (stop_) {
      return;
    }
    if (requests_ != request) {
      request = requests_;
      const std::uint64_t epoch = epoch_;
      const data::shard part = shard_;
      lock.unlock();
      sampler_.take_shard(part);
      sampler_.start_epoch(epoch);
      epoch_of_fill_ = epoch;
      lock.lock();
      continue;
    }
    const index_t number = ready_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      fill_(*this, slot_of(number), sampler_.batch(number));
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (requests_ == request) {  // otherwise the epoch was abandoned, and its failure is ignored
      if (failure) {
        failure_ = std::move(failure);
      } else {
        ++ready_;
      }
      wake_consumer_.notify_one();
    }
  }
}

}  // namespace gradus::data::detail
#endif
