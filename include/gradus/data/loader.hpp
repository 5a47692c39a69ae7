// SPDX-License-Identifier: BSL-1.0
//
// The loader: batches of a data set, prepared ahead by a thread of its own.
// Module: data. Depends on: tensor.
#pragma once

#include <chrono>              // std::chrono::steady_clock
#include <condition_variable>  // std::condition_variable
#include <cstddef>             // std::size_t
#include <cstdint>             // std::int32_t, std::uint64_t
#include <exception>           // std::exception_ptr, std::current_exception, std::rethrow_exception
#include <memory>              // std::addressof
#include <mutex>               // std::mutex, std::unique_lock, std::lock_guard
#include <span>                // std::span
#include <string>              // std::string, std::to_string
#include <thread>              // std::thread
#include <utility>             // std::move
#include <vector>              // std::vector

#include "gradus/core/element.hpp"          // explain_real_element
#include "gradus/core/error.hpp"            // configuration_error, format_error
#include "gradus/core/extents.hpp"          // image_extents, extents
#include "gradus/core/index.hpp"            // index_t
#include "gradus/data/dataset.hpp"          // explain_dataset
#include "gradus/data/detail/hash.hpp"      // hash_text
#include "gradus/data/sampler.hpp"          // sampler, shard
#include "gradus/device/cpu.hpp"            // cpu
#include "gradus/layout/layout_policy.hpp"  // explain_layout_policy, axis
#include "gradus/layout/mapping.hpp"        // dense_mapping
#include "gradus/tensor/tensor.hpp"         // image_tensor
#include "gradus/tensor/tensor_view.hpp"    // image_view

namespace gradus::data {

/// How a loader makes batches.
struct loader_options {
  index_t batch_size = 0;  ///< examples of a step, over all ranks; must be given
  bool shuffle = true;     ///< a new order for each epoch, or always the order of the set
  std::uint64_t seed = 0;  ///< of the orders; the same on all ranks
  data::shard shard = {};  ///< which part of each batch is ours
  bool drop_last = false;  ///< leave out the last batch of an epoch if it is smaller than the others
  int prefetch = 2;        ///< batches prepared ahead, besides the one in use; 1 to 1024
};

/// One rank's part of a batch. The memory belongs to the loader.
template <class Element, class Layout>
struct batch {
  image_view<const Element, Layout, cpu> images;  ///< (n, c, h, w); n may be 0
  std::span<const std::int32_t> labels = {};      ///< n of them, in [0, classes)
  std::uint64_t first_example = 0;                ///< position of the first image in the order of the epoch
  index_t global_examples = 0;                    ///< of the batch, over all ranks
};

/// Gives the examples of a data set in batches of floating-point images, epoch after epoch.
///
///   data::loader<float, nhwc> loader{device, images, {.batch_size = 64, .seed = 1}};
///   loader.start_epoch(0);
///   while (const auto* batch = loader.next()) { ... batch->images, batch->labels ... }
///
/// A thread of its own shuffles, converts and normalises ahead; nothing is allocated after construction. Which examples
/// come when, and which of them are ours, is said at `sampler`. A loader is used by one thread at a time. The device
/// and the data set must outlive it.
template <class Element, class Layout>
class loader {
  static_assert(explain_real_element<Element>());
  static_assert(explain_layout_policy<Layout>());

 public:
  using element_type = Element;
  using layout_type = Layout;
  using batch_type = data::batch<Element, Layout>;

  /// @throws configuration_error when the set is empty or options make no sense
  /// @throws device_error when there is not enough memory
  template <class Dataset>
  loader(cpu& device, const Dataset& set, const loader_options& options)
      : source_{source_of(set)},
        sampler_{static_cast<index_t>(set.size()),
                 {.batch_size = options.batch_size,
                  .shuffle = options.shuffle,
                  .seed = options.seed,
                  .shard = options.shard,
                  .drop_last = options.drop_last}},
        description_{describe(set, options)},
        batches_{sampler_.batches()} {
    check(options);
    make_slots(device, static_cast<std::size_t>(options.prefetch) + 1);
    producer_ = std::thread{[this] { produce(); }};
  }
  /// The data set must outlive the loader: give it a name.
  template <class Dataset>
  loader(cpu& device, const Dataset&& set, const loader_options& options) = delete;

  loader(const loader&) = delete;
  loader& operator=(const loader&) = delete;

  ~loader() {
    {
      const std::lock_guard lock{mutex_};
      stop_ = true;
    }
    wake_producer_.notify_one();
    producer_.join();
  }

  /// Begins an epoch. What is left of the epoch before is abandoned, and its batches are no longer valid.
  void start_epoch(std::uint64_t epoch) {
    {
      const std::lock_guard lock{mutex_};
      epoch_ = epoch;
      ++requests_;
      ready_ = 0;
      released_ = 0;
      failure_ = nullptr;
    }
    given_ = 0;
    wake_producer_.notify_one();
  }

  /// The next batch of the epoch, or nullptr after the last. It is valid until the next call of next or start_epoch.
  /// @throws configuration_error when no epoch was started
  /// @throws format_error when the data set gives a label that is out of range
  /// @throws what the data set threw when it was read; again in every call, until an epoch is started
  [[nodiscard]] const batch_type* next() {
    std::unique_lock lock{mutex_};
    if (requests_ == 0) {
      throw configuration_error{"loader.next", "an epoch", "none", "call start_epoch(0) first"};
    }
    released_ = given_;  // the batch of the call before is free
    if (given_ == batches_) {
      return nullptr;
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
    return std::addressof(slot_of(given_++).contents);
  }

  /// Batches of an epoch; the same on all ranks.
  [[nodiscard]] index_t steps_per_epoch() const noexcept { return batches_; }
  /// Examples of an epoch, over all ranks.
  [[nodiscard]] index_t examples_per_epoch() const noexcept { return sampler_.examples(); }
  /// The most images that a batch of any rank has: ceil(batch_size / ranks).
  [[nodiscard]] index_t local_batch_size() const noexcept { return sampler_.largest_share(); }
  /// The number of ranks that share each batch.
  [[nodiscard]] int ranks() const noexcept { return sampler_.options().shard.ranks; }
  /// (1, c, h, w)
  [[nodiscard]] const image_extents& example() const noexcept { return source_.example; }
  [[nodiscard]] int classes() const noexcept { return source_.classes; }
  /// All that the ranks must agree on: size, shape, classes and hash of the set, batch size, order, number of ranks.
  [[nodiscard]] const std::string& description() const noexcept { return description_; }
  /// How long next() has waited for the producer since construction: what the input costs the training.
  [[nodiscard]] double wait_seconds() const noexcept { return wait_seconds_; }

 private:
  /// The data set without its type.
  struct source {
    const void* set;
    void (*read)(const void* set, index_t i, Element* planes);
    std::int32_t (*label)(const void* set, index_t i);
    image_extents example;
    int classes;
  };

  /// The memory of one batch.
  struct slot {
    image_tensor<Element, Layout, cpu> images;  // (local_batch_size, c, h, w)
    std::vector<std::int32_t> labels;
    batch_type contents;
  };

  template <class Dataset>
  static source source_of(const Dataset& set) {
    static_assert(explain_dataset<Dataset, Element>());
    return {.set = std::addressof(set),
            .read = [](const void* erased, index_t i,
                       Element* planes) { static_cast<const Dataset*>(erased)->read(i, planes); },
            .label = [](const void* erased, index_t i) -> std::int32_t {
              return static_cast<const Dataset*>(erased)->label(i);
            },
            .example = set.example(),
            .classes = set.classes()};
  }

  template <class Dataset>
  static std::string describe(const Dataset& set, const loader_options& options) {
    const image_extents one = set.example();
    return std::to_string(set.size()) + " examples of " + std::to_string(one.c) + "x" + std::to_string(one.h) + "x" +
           std::to_string(one.w) + " in " + std::to_string(set.classes()) + " classes (content " +
           detail::hash_text(set.hash()) + "), batches of " + std::to_string(options.batch_size) + " over " +
           std::to_string(options.shard.ranks) + (options.shard.ranks == 1 ? " rank" : " ranks") +
           (options.shuffle ? ", shuffled with seed " + std::to_string(options.seed) : ", in the order of the set") +
           (options.drop_last ? ", the last batch only if it is full" : "");
  }

  void check(const loader_options& options) const {
    const image_extents& one = source_.example;
    if (one.c < 1 || one.h < 1 || one.w < 1) {
      throw configuration_error{"loader", "images of at least one channel, row and column", to_string(one)};
    }
    if (source_.classes < 1) {
      throw configuration_error{"loader", "classes of at least 1", std::to_string(source_.classes)};
    }
    if (options.prefetch < 1 || options.prefetch > 1024) {
      throw configuration_error{"loader", "a prefetch from 1 to 1024 batches", std::to_string(options.prefetch)};
    }
  }

  void make_slots(cpu& device, std::size_t count) {
    const image_extents& one = source_.example;
    const extents<4> all{sampler_.largest_share(), one.c, one.h, one.w};
    slots_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      image_tensor<Element, Layout, cpu> images{device, all};
      const image_view<const Element, Layout, cpu> view{images};
      slots_.push_back({std::move(images), std::vector<std::int32_t>(static_cast<std::size_t>(all[0])), {view}});
    }
    planes_.resize(static_cast<std::size_t>(one.c * one.h * one.w));
  }

  slot& slot_of(index_t batch_number) noexcept {
    return slots_[static_cast<std::size_t>(batch_number) % slots_.size()];
  }

  /// The thread that prepares batches.
  void produce() {
    std::uint64_t request = 0;  // the epoch that is being prepared
    std::unique_lock lock{mutex_};
    for (;;) {
      wake_producer_.wait(lock, [&] {
        const bool room = ready_ - released_ < static_cast<index_t>(slots_.size());
        return stop_ || requests_ != request || (request != 0 && !failure_ && ready_ < batches_ && room);
      });
      if (stop_) {
        return;
      }
      if (requests_ != request) {
        request = requests_;
        const std::uint64_t epoch = epoch_;
        lock.unlock();
        sampler_.start_epoch(epoch);
        lock.lock();
        continue;
      }
      const index_t number = ready_;
      lock.unlock();
      std::exception_ptr failure;
      try {
        fill(slot_of(number), sampler_.batch(number));
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (requests_ == request) {  // or else the epoch was abandoned, and its failure with it
        if (failure) {
          failure_ = std::move(failure);
        } else {
          ++ready_;
        }
        wake_consumer_.notify_one();
      }
    }
  }

  void fill(slot& into, const sample& mine) {
    const image_extents& one = source_.example;
    const auto count = static_cast<index_t>(mine.examples.size());
    const image_extents shape{count, one.c, one.h, one.w};
    const dense_mapping<Layout> place{shape};
    const bool as_planes = (one.w == 1 || place.stride(axis::w) == 1) &&
                           (one.h == 1 || place.stride(axis::h) == one.w) &&
                           (one.c == 1 || place.stride(axis::c) == one.h * one.w);
    Element* image = into.images.data();
    for (std::size_t i = 0; i < mine.examples.size(); ++i) {
      const index_t example = mine.examples[i];
      into.labels[i] = checked_label(example);
      if (as_planes) {
        source_.read(source_.set, example, image);
      } else {
        source_.read(source_.set, example, planes_.data());
        scatter(place, image);
      }
      image += place.stride(axis::n);
    }
    into.contents = {.images = {into.images.device(), into.images.data(), shape},
                     .labels = std::span{into.labels}.first(mine.examples.size()),
                     .first_example = mine.first_example,
                     .global_examples = mine.global_examples};
  }

  std::int32_t checked_label(index_t example) const {
    const std::int32_t label = source_.label(source_.set, example);
    if (label < 0 || label >= source_.classes) {
      throw format_error{"loader", "labels from 0 to " + std::to_string(source_.classes - 1),
                         "label " + std::to_string(label) + " of example " + std::to_string(example)};
    }
    return label;
  }

  /// Writes planes_ to the image in the order of the layout.
  void scatter(const dense_mapping<Layout>& place, Element* image) const noexcept {
    const image_extents& shape = place.extents();
    const index_t step = place.stride(axis::w);
    const Element* from = planes_.data();
    for (index_t c = 0; c < shape.c; ++c) {
      for (index_t h = 0; h < shape.h; ++h) {
        Element* to = image + c * place.stride(axis::c) + h * place.stride(axis::h);
        for (index_t w = 0; w < shape.w; ++w) {
          to[w * step] = *from++;
        }
      }
    }
  }

  source source_;
  data::sampler sampler_;  // the producer's, once it runs; but for what does not change
  std::string description_;
  index_t batches_;              // of an epoch
  std::vector<slot> slots_;      // batch b of an epoch is in slot b modulo their number
  std::vector<Element> planes_;  // the producer's: one image, before its elements are reordered

  std::mutex mutex_;  // of what follows
  std::condition_variable wake_producer_;
  std::condition_variable wake_consumer_;
  std::uint64_t epoch_ = 0;
  std::uint64_t requests_ = 0;  // epochs started
  index_t ready_ = 0;           // batches of the epoch that were prepared
  index_t released_ = 0;        // batches of the epoch that the consumer has done with
  std::exception_ptr failure_;
  bool stop_ = false;

  index_t given_ = 0;  // batches of the epoch that the consumer got; the consumer's
  double wait_seconds_ = 0;
  std::thread producer_;  // last: it uses all of the above
};

}  // namespace gradus::data
