// SPDX-License-Identifier: BSL-1.0
//
// Data of the caller as the batches of one call of training or evaluation.
#pragma once

#include <algorithm>   // std::max, std::min
#include <chrono>      // std::chrono::duration, std::chrono::steady_clock
#include <cstddef>     // std::size_t
#include <cstdint>     // std::int32_t, std::int64_t, std::uint64_t
#include <functional>  // std::less
#include <limits>      // std::numeric_limits
#include <map>         // std::map
#include <memory>      // std::make_unique, std::unique_ptr
#include <optional>    // std::optional
#include <string>      // std::string
#include <vector>      // std::vector

#include "arrays.hpp"
#include "calls.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/targets.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/tensor/tensor.hpp"
#include "gradus_c.h"

namespace gradus_c {

namespace nn = gradus::nn;

/// An array whose extents and strides have been copied.
class data_set final : public object {
 public:
  std::map<std::string, described_array, std::less<>> arrays;
  std::optional<described_array> weights;
};

/// What a call trains on, as its network reads it.
struct training_data {
  examples inputs;
  examples labels;   // integers, or
  examples targets;  // real numbers
  examples weights;

  [[nodiscard]] index_t count() const noexcept { return inputs.count; }
};

/// When a call of training ends.
struct call_limits {
  index_t steps = std::numeric_limits<index_t>::max();
  std::optional<index_t> passes = {};  // in place of steps
  std::optional<double> milliseconds = {};
  bool own_examples = false;  // each rank trains on all of its own, in one step
};

/// What a call trains or evaluates on.
struct call_request {
  training_data data;
  call_limits limits;
};

/// What calls of training have in common: what the caller has set.
struct call_settings {
  index_t global_batch_size = 0;
  bool shuffle = true;
  std::uint64_t seed = 0;
  double learning_rate = 0.01;
  gradus_schedule schedule = nullptr;
  void* schedule_context = nullptr;
  gradus_step_callback callback = nullptr;
  void* callback_context = nullptr;
};

using clock = std::chrono::steady_clock;

/// The batches of one call, which a trainer takes as a loader. They are read from the arrays of the caller when they
/// are asked for, by the thread that trains, so that the arrays may change between calls.
template <class Element>
class call_batches {
 public:
  using batch_type = gradus::data::batch<Element, gradus::nhwc>;

  call_batches(gradus::cpu& on, const nn::value_shape& image, const nn::target_description& needed)
      : on_{&on}, image_{image}, needed_{needed}, batch_{.images = {on, nullptr, {}}, .targets = {on, nullptr, {}}} {}

  /// Begins a call. Memory grows to that of the largest batch.
  /// @param group  the ranks that train
  /// @param step   steps of the training so far
  void prepare(const call_request& request, const call_settings& settings, bool stops, gradus::comm::link& group,
               std::uint64_t step) {
    data_ = request.data;
    limits_ = request.limits;
    stops_ = stops;
    group_ = &group;
    began_ = clock::now();
    produced_ = 0;
    stop_ = false;
    const int rank = group.rank();
    const int ranks = group.size();
    if (limits_.own_examples) {
      limits_.steps = 1;
      reserve(data_.count());
      description_ = gradus::join({own_settings(settings), ", shared by ", ranks, " ranks, samples of each rank's own",
                                   stops ? ", with a callback" : ""});
      return;
    }
    if (settings.global_batch_size < 1) {
      throw failure{GRADUS_CONFIGURATION_ERROR,
                    "a global_batch_size of at least 1 in the trainer's options",
                    {settings.global_batch_size}};
    }
    const gradus::data::shard part{.rank = rank, .ranks = ranks};
    if (sampler_ == nullptr || of_sampler_ != data_.count() || batch_of_sampler_ != settings.global_batch_size) {
      sampler_ = std::make_unique<gradus::data::sampler>(
          data_.count(), gradus::data::sampler_options{.global_batch_size = settings.global_batch_size,
                                                       .shuffle = settings.shuffle,
                                                       .seed = settings.seed,
                                                       .shard = part});
      of_sampler_ = data_.count();
      batch_of_sampler_ = settings.global_batch_size;
      drawn_.reset();
      largest_ =
          gradus::data::share_of(std::min(settings.global_batch_size, data_.count()), {.rank = 0, .ranks = ranks})
              .count;
    }
    if (limits_.passes) {
      limits_.steps = *limits_.passes * sampler_->batches();
    }
    const auto per_pass = static_cast<std::uint64_t>(sampler_->batches());
    pass_ = step / per_pass;
    next_ = static_cast<index_t>(step % per_pass);
    reserve(largest_);
    description_ = gradus::join({own_settings(settings), ", shared by ", ranks, " ranks, ", data_.count(),
                                 " samples of all, ", limits_.steps, " steps",
                                 limits_.milliseconds ? " within a time" : "", stops ? ", with a callback" : ""});
    if (ranks > 1) {  // some of the content
      std::uint64_t hash = hash_of(data_.inputs, 0xcbf29ce484222325U);
      hash = hash_of(data_.labels, hash_of(data_.targets, hash));
      gradus::append_text(description_, {", content ", hash});
    }
  }

  /// Behind prepare on all ranks: where each has examples of its own, how many the others have.
  void exchange_counts() {
    if (!limits_.own_examples) {
      return;
    }
    std::vector<double> all(static_cast<std::size_t>(group_->size()), 0.0);
    all[static_cast<std::size_t>(group_->rank())] = static_cast<double>(data_.count());
    if (group_->size() > 1) {
      group_->sum(all);
    }
    global_ = 0;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      before_ = rank == static_cast<std::size_t>(group_->rank()) ? global_ : before_;
      global_ += static_cast<index_t>(all[rank]);
    }
    if (global_ == 0) {
      throw failure{GRADUS_SHAPE_ERROR, "samples of some rank", "0 samples on all ranks"};
    }
  }

  /// After the step that has been made no other one follows, on all ranks.
  void stop() noexcept { stop_ = true; }
  /// Steps of this call.
  [[nodiscard]] index_t steps() const noexcept { return produced_; }

  // What a trainer asks of a loader.

  void start_epoch(std::uint64_t /*epoch*/, index_t /*first*/ = 0) {}
  void take_shard(const gradus::data::shard& /*part*/) {}
  [[nodiscard]] index_t steps_per_epoch() const noexcept { return limits_.steps; }
  [[nodiscard]] index_t examples_per_epoch() const noexcept { return data_.count(); }
  [[nodiscard]] index_t local_batch_size() const noexcept { return limits_.own_examples ? data_.count() : largest_; }
  [[nodiscard]] const std::string& description() const noexcept { return description_; }
  [[nodiscard]] gradus::image_extents example() const noexcept { return image_.batch(1); }
  [[nodiscard]] int classes() const noexcept { return static_cast<int>(needed_.labels > 0 ? needed_.classes : 0); }
  [[nodiscard]] index_t labels_per_example() const noexcept { return needed_.labels; }
  [[nodiscard]] gradus::image_extents target() const noexcept {
    return {1, needed_.values.channels, needed_.values.height, needed_.values.width};
  }

  /// The next batch, or null where the call ends. All ranks get the same answer.
  [[nodiscard]] const batch_type* next() {
    if (produced_ == limits_.steps || over()) {
      return nullptr;
    }
    if (limits_.own_examples) {
      fill(data_.count(), [](index_t i) { return i; });
      batch_.first_example = static_cast<std::uint64_t>(before_);
      batch_.global_examples = global_;
    } else {
      if (next_ == sampler_->batches()) {
        next_ = 0;
        ++pass_;
      }
      if (drawn_ != pass_) {
        sampler_->start_epoch(pass_);
        drawn_ = pass_;
      }
      const gradus::data::sample mine = sampler_->batch(next_);
      fill(static_cast<index_t>(mine.examples.size()),
           [&](index_t i) { return mine.examples[static_cast<std::size_t>(i)]; });
      batch_.first_example = mine.first_example;
      batch_.global_examples = mine.global_examples;
      ++next_;
    }
    ++produced_;
    return &batch_;
  }

 private:
  /// What all calls of a trainer have in common: a training that goes on from a checkpoint must have it. Behind it,
  /// after "shared by", comes what ranks compare in one call. The next call may have another one.
  [[nodiscard]] std::string own_settings(const call_settings& settings) const {
    return gradus::join(
        {"samples of ", image_.channels, "x", image_.height, "x", image_.width, ", batches of ",
         settings.global_batch_size,
         settings.shuffle ? gradus::join({", shuffled with seed ", settings.seed}) : std::string{", in order"}});
  }

  /// Whether the time is over or a callback stops, on some rank.
  [[nodiscard]] bool over() {
    bool ends = stop_;
    if (limits_.milliseconds) {
      ends = ends || std::chrono::duration<double, std::milli>(clock::now() - began_).count() >= *limits_.milliseconds;
    }
    if (group_->size() > 1 && (limits_.milliseconds || (stops_ && produced_ > 0))) {
      double ranks[] = {ends ? 1.0 : 0.0};
      group_->sum(ranks);
      ends = ranks[0] > 0;
    }
    return ends;
  }

  void reserve(index_t count) {
    if (images_ != nullptr && count <= capacity_) {
      return;
    }
    capacity_ = std::max(count, index_t{1});
    images_ = std::make_unique<gradus::tensor<Element, 1>>(*on_, gradus::extents<1>{capacity_ * image_.size()});
    const index_t values = needed_.values.channels > 0 ? needed_.values.batch(1).size() : index_t{0};
    targets_ = std::make_unique<gradus::tensor<Element, 1>>(*on_, gradus::extents<1>{capacity_ * values});
    labels_.resize(static_cast<std::size_t>(capacity_ * needed_.labels));
    weights_.resize(static_cast<std::size_t>(capacity_));
  }

  template <class Index>
  void fill(index_t count, const Index& index) {
    const bool real = needed_.values.channels > 0;
    const index_t values = real ? needed_.values.batch(1).size() : index_t{0};
    for (index_t i = 0; i < count; ++i) {
      const index_t from = index(i);
      read_example(data_.inputs, from, images_->data() + i * image_.size());
      if (real) {
        read_example(data_.targets, from, targets_->data() + i * values);
      } else {
        read_labels(from, labels_.data() + i * needed_.labels);
      }
      if (data_.weights.count > 0) {
        read_example(data_.weights, from, weights_.data() + i);
        const auto weight = static_cast<double>(weights_[static_cast<std::size_t>(i)]);
        if (!(weight >= 0) || !gradus::is_finite(weight)) {
          throw failure{GRADUS_SHAPE_ERROR, "finite weights of at least 0", {"weight ", weight, " of sample ", from}};
        }
      }
    }
    batch_.images = {*on_, images_->data(), image_.batch(count)};
    batch_.labels = {labels_.data(), static_cast<std::size_t>(count * needed_.labels)};
    if (real) {
      batch_.targets = {*on_, targets_->data(), needed_.values.batch(count)};
    }
    batch_.weights = {weights_.data(), data_.weights.count > 0 ? static_cast<std::size_t>(count) : 0};
  }

  /// Labels are compared with the number of classes by the loss; here they only have to be numbers of 32 bits.
  void read_labels(index_t i, std::int32_t* to) const {
    if (data_.labels.element == GRADUS_INT32) {
      read_example(data_.labels, i, to);
      return;
    }
    const auto* const all = static_cast<const std::int64_t*>(data_.labels.data) + i * data_.labels.strides[0];
    for (index_t h = 0; h < data_.labels.shape.height; ++h) {
      for (index_t w = 0; w < data_.labels.shape.width; ++w) {
        const std::int64_t label = all[h * data_.labels.strides[2] + w * data_.labels.strides[3]];
        if (label < std::numeric_limits<std::int32_t>::min() || label > std::numeric_limits<std::int32_t>::max()) {
          throw failure{GRADUS_SHAPE_ERROR, "classes that are numbers of 32 bits", {label, " of sample ", i}};
        }
        *to++ = static_cast<std::int32_t>(label);
      }
    }
  }

  gradus::cpu* on_;
  nn::value_shape image_;
  nn::target_description needed_;
  training_data data_;
  call_limits limits_;
  bool stops_ = false;  // a callback may stop
  gradus::comm::link* group_ = nullptr;
  clock::time_point began_;
  index_t produced_ = 0;
  bool stop_ = false;
  std::string description_;
  // Of examples of each rank's own.
  index_t global_ = 0;
  index_t before_ = 0;
  // Of examples that all ranks have.
  std::unique_ptr<gradus::data::sampler> sampler_;
  index_t of_sampler_ = 0;
  index_t batch_of_sampler_ = 0;
  index_t largest_ = 0;
  std::uint64_t pass_ = 0;
  index_t next_ = 0;
  std::optional<std::uint64_t> drawn_;  // the pass whose order the sampler has
  // The batch.
  index_t capacity_ = 0;
  std::unique_ptr<gradus::tensor<Element, 1>> images_;
  std::unique_ptr<gradus::tensor<Element, 1>> targets_;
  std::vector<std::int32_t> labels_;
  std::vector<Element> weights_;
  batch_type batch_;
};

}  // namespace gradus_c
