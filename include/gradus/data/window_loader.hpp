// SPDX-License-Identifier: BSL-1.0
//
// Batches of a sliding_window.
#pragma once

#include <algorithm>    // std::fill, std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int64_t, std::uint64_t
#include <optional>     // std::optional
#include <span>         // std::span
#include <string>       // std::string
#include <type_traits>  // std::is_convertible_v
#include <vector>       // std::vector

#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/data/sliding_window.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus::data {

/// Which examples of a window a batch has.
enum class window_order {
  uniform,       ///< each with the same probability, with repetitions
  newest_first,  ///< from the newest to the oldest, and again; a push begins anew with the newest
};

/// Options of a window_loader.
struct window_loader_options {
  index_t global_batch_size = 0;               ///< examples of a step over all ranks; required
  index_t steps_per_epoch = 100;               ///< of a set without an end: schedules and reports count in epochs
  window_order order = window_order::uniform;  ///< of the examples
  std::uint64_t seed = 0;                      ///< of uniform draws; the same on all ranks
};

/// Yields batches of a sliding_window for a trainer. Each batch is drawn and copied when it is asked for, by the
/// calling thread: what is pushed between two steps is drawn from in the second one, and the examples are a function of
/// the pushes, the seed and the step.
///
/// On several ranks each has a window of its own, and draws its share of every batch from it. At the begin of an epoch
/// the ranks compare how many examples they have, and weigh theirs by it: the expected update is that of examples drawn
/// from all windows, and a rank without examples draws none. A checkpoint does not have the examples: a training that
/// goes on draws what has been pushed then.
template <class Element, class Layout>
class window_loader {
  static_assert(explain_network_element<Element>());
  static_assert(explain_layout_policy<Layout>());
  using number = parameter_element_t<Element>;

 public:
  using element_type = Element;                     ///< of images
  using layout_type = Layout;                       ///< of images
  using batch_type = data::batch<Element, Layout>;  ///< what next gives

  /// In one process. @throws configuration_error when options make no sense
  template <class Stored>
  window_loader(cpu& device, const sliding_window<Stored>& window, const window_loader_options& options,
                error_location where = error_location::current())
      : window_{&window},
        fill_{&fill_from<Stored>},
        device_{&device},
        options_{options},
        of_window_{window.options()},
        counts_(1) {
    if (options.global_batch_size < 1 || options.steps_per_epoch < 1) {
      raise<configuration_error>("window_loader", "a global_batch_size and steps_per_epoch of at least 1",
                                 {options.global_batch_size, " and ", options.steps_per_epoch}, {}, where);
    }
    allocate();
  }

  /// On the ranks of the trainer's communicator. The device, the window and the communicator outlive it.
  template <class Stored, class Communicator>
  requires(!std::is_convertible_v<Communicator&, error_location>)
      window_loader(cpu& device, const sliding_window<Stored>& window, Communicator& world,
                    const window_loader_options& options, error_location where = error_location::current())
      : window_loader{device, window, options, where} {
    shard_ = {.rank = world.rank(), .ranks = world.size()};
    counts_ = std::vector<std::int64_t>(static_cast<std::size_t>(world.size()));
    world_ = &world;
    gather_ = [](void* erased, const std::int64_t& own, std::span<std::int64_t> all) {
      static_cast<Communicator*>(erased)->all_gather(std::span<const std::int64_t>{&own, 1}, all).wait();
    };
    allocate();
  }

  window_loader(const window_loader&) = delete;
  window_loader& operator=(const window_loader&) = delete;

  /// Begins an epoch: ranks compare their numbers of examples. Called by all ranks.
  /// @param first  batches that are left out
  /// @throws configuration_error if no rank has an example
  void start_epoch(std::uint64_t epoch, index_t first = 0, error_location where = error_location::current()) {
    const std::int64_t own = counter_();
    if (gather_ != nullptr) {
      gather_(world_, own, counts_);
    } else {
      counts_[0] = own;
    }
    double all = 0;
    for (const std::int64_t each : counts_) {
      all += static_cast<double>(each);
    }
    if (all == 0) {
      raise<configuration_error>("window_loader", "examples in the sliding_window", "none",
                                 "push some before the training begins", where);
    }
    const share mine = share_of(options_.global_batch_size, shard_);
    share_ = own > 0 ? mine : share{mine.begin, 0};
    // Examples of a window count by their number; a batch has the share of this rank.
    const double weight = share_.count == 0
                              ? 1.0
                              : static_cast<double>(own) / all * static_cast<double>(options_.global_batch_size) /
                                    static_cast<double>(share_.count);
    weighted_ = weight != 1.0;
    std::fill(weights_.begin(), weights_.end(), static_cast<number>(weight));
    epoch_ = epoch;
    step_ = first;
    begun_ = true;
  }

  /// The next batch of the epoch, or nullptr after the last. It is valid until the next call.
  /// @throws configuration_error if no epoch was started
  [[nodiscard]] const batch_type* next(error_location where = error_location::current()) {
    if (!begun_) {
      raise<configuration_error>("window_loader.next", "an epoch", "none", "call start_epoch(0) first", where);
    }
    if (step_ == options_.steps_per_epoch) {
      return nullptr;
    }
    fill_(*this);
    const auto count = static_cast<std::size_t>(share_.count);
    given_.emplace(
        batch_type{.images = {*device_, images_->data(), extents_of(of_window_.input)},
                   .targets = {*device_, targets_->data(), extents_of(of_window_.target)},
                   .weights = weighted_ ? std::span<const number>{weights_.data(), count} : std::span<const number>{},
                   .first_example = static_cast<std::uint64_t>(step_ * options_.global_batch_size + share_.begin),
                   .global_examples = options_.global_batch_size});
    ++step_;
    return &*given_;
  }

  /// A trainer gives its rank. @throws configuration_error if it is another one than that of the communicator
  void take_shard(const data::shard& part, error_location where = error_location::current()) {
    if (part != shard_) {
      raise<configuration_error>(
          "window_loader.take_shard", {"rank ", shard_.rank, " of ", shard_.ranks, ", the loader's communicator"},
          {"rank ", part.rank, " of ", part.ranks, part.nested ? ", with virtual workers" : ""},
          "give the loader the communicator of the trainer: data::window_loader<...> loader{device, window, world, "
          "{...}}",
          where);
    }
  }

  /// As in the options.
  [[nodiscard]] index_t steps_per_epoch() const noexcept { return options_.steps_per_epoch; }
  /// Examples that an epoch draws, over all ranks.
  [[nodiscard]] index_t examples_per_epoch() const noexcept {
    return options_.steps_per_epoch * options_.global_batch_size;
  }
  /// The largest number of images of any rank in a batch: ceil(global_batch_size / ranks).
  [[nodiscard]] index_t local_batch_size() const noexcept {
    return share_of(options_.global_batch_size, {.rank = 0, .ranks = shard_.ranks}).count;
  }
  /// The extents of an image: (1, c, h, w).
  [[nodiscard]] const image_extents& example() const noexcept { return of_window_.input; }
  /// The extents of its targets: (1, c, h, w).
  [[nodiscard]] const image_extents& target() const noexcept { return of_window_.target; }
  /// 0: the targets are real numbers.
  [[nodiscard]] static constexpr int classes() noexcept { return 0; }
  /// 0: the targets are real numbers.
  [[nodiscard]] static constexpr index_t labels_per_example() noexcept { return 0; }
  /// The properties on which ranks must agree.
  [[nodiscard]] std::string description() const {
    const image_extents& x = of_window_.input;
    const image_extents& y = of_window_.target;
    return gradus::join({"a sliding window of ",
                         of_window_.capacity,
                         " examples of ",
                         x.c,
                         "x",
                         x.h,
                         "x",
                         x.w,
                         " with targets of ",
                         y.c,
                         "x",
                         y.h,
                         "x",
                         y.w,
                         ", batches of ",
                         options_.global_batch_size,
                         ", ",
                         options_.steps_per_epoch,
                         " of them an epoch, ",
                         options_.order == window_order::uniform ? "uniform with seed " : "the newest first, seed ",
                         options_.seed,
                         ", shared by ",
                         shard_.ranks,
                         shard_.ranks == 1 ? " rank" : " ranks"});
  }
  /// Seconds for which next() has waited: none, as it copies itself.
  [[nodiscard]] static constexpr double wait_seconds() noexcept { return 0; }

 private:
  void allocate() {
    const index_t most = local_batch_size();
    images_.emplace(*device_, image_extents{most, of_window_.input.c, of_window_.input.h, of_window_.input.w});
    targets_.emplace(*device_, image_extents{most, of_window_.target.c, of_window_.target.h, of_window_.target.w});
    weights_ = std::vector<number>(static_cast<std::size_t>(most));
  }

  [[nodiscard]] image_extents extents_of(const image_extents& one) const noexcept {
    return {share_.count, one.c, one.h, one.w};
  }

  /// The number of examples in the window.
  [[nodiscard]] std::int64_t counter_() {
    asks_for_count_ = true;
    fill_(*this);
    asks_for_count_ = false;
    return count_;
  }

  template <class Stored>
  static void fill_from(window_loader& self) {
    static_cast<const sliding_window<Stored>*>(self.window_)->with_examples([&](const auto& examples) {
      self.count_ = examples.size();
      if (self.asks_for_count_) {
        return;
      }
      if (examples.pushed() != self.seen_) {
        self.seen_ = examples.pushed();
        self.walked_ = 0;
      }
      const random_stream draws{random_stream{self.options_.seed, "window"}.bits(self.epoch_), "draw"};
      const auto strides_x = dense_strides<Layout, 4>(self.extents_of(self.of_window_.input));
      const auto strides_y = dense_strides<Layout, 4>(self.extents_of(self.of_window_.target));
      const auto first = static_cast<std::uint64_t>(self.step_ * self.options_.global_batch_size + self.share_.begin);
      for (index_t k = 0; k < self.share_.count; ++k) {
        const index_t age = self.options_.order == window_order::uniform
                                ? static_cast<index_t>(draws.below(static_cast<std::uint64_t>(self.count_),
                                                                   first + static_cast<std::uint64_t>(k)))
                                : self.walked_++ % self.count_;
        scatter(examples.input(age), self.of_window_.input, strides_x, self.images_->data() + k * strides_x[0]);
        scatter(examples.target(age), self.of_window_.target, strides_y, self.targets_->data() + k * strides_y[0]);
      }
    });
  }

  template <class From, class To>
  static void scatter(const From* from, const image_extents& one, const std::array<index_t, 4>& strides, To* image) {
    for (index_t c = 0; c < one.c; ++c) {
      for (index_t h = 0; h < one.h; ++h) {
        To* const row = image + c * strides[1] + h * strides[2];
        for (index_t w = 0; w < one.w; ++w) {
          row[w * strides[3]] = static_cast<To>(static_cast<number>(*from++));
        }
      }
    }
  }

  const void* window_;
  void (*fill_)(window_loader& self);
  cpu* device_;
  window_loader_options options_;
  window_options of_window_;
  data::shard shard_{};
  void* world_ = nullptr;
  void (*gather_)(void* world, const std::int64_t& own, std::span<std::int64_t> all) = nullptr;
  std::vector<std::int64_t> counts_;  // examples of each rank's window, at the begin of the epoch
  std::optional<tensor<Element, 4, Layout>> images_;
  std::optional<tensor<number, 4, Layout>> targets_;
  std::vector<number> weights_;
  std::optional<batch_type> given_;
  share share_;  // of this rank in every batch of the epoch
  bool weighted_ = false;
  bool begun_ = false;
  bool asks_for_count_ = false;
  std::int64_t count_ = 0;
  std::uint64_t epoch_ = 0;
  index_t step_ = 0;        // that comes next
  std::uint64_t seen_ = 0;  // pushes at the last draw
  index_t walked_ = 0;      // examples drawn since, newest first
};

}  // namespace gradus::data
