// SPDX-License-Identifier: BSL-1.0
//
// Training behind the C interface: data of the caller as batches, and calls of some steps each.
#pragma once

#include <algorithm>   // std::max, std::min
#include <chrono>      // std::chrono::duration, std::chrono::steady_clock
#include <cstddef>     // std::size_t
#include <cstdint>     // std::int32_t, std::int64_t, std::uint64_t
#include <exception>   // std::current_exception, std::exception_ptr, std::rethrow_exception
#include <functional>  // std::function, std::less
#include <limits>      // std::numeric_limits
#include <map>         // std::map
#include <memory>      // std::make_unique, std::shared_ptr, std::unique_ptr
#include <optional>    // std::optional
#include <span>        // std::span
#include <string>      // std::string
#include <utility>     // std::move
#include <vector>      // std::vector

#include "arrays.hpp"
#include "calls.hpp"
#include "communicator.hpp"
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/io/checkpoint_reader.hpp"
#include "gradus/nn/targets.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/adam_w.hpp"
#include "gradus/optim/schedules.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/tensor/tensor.hpp"
#include "gradus/train/checkpoints.hpp"
#include "gradus/train/report.hpp"
#include "gradus/train/state.hpp"
#include "gradus/train/trainer.hpp"
#include "gradus/train/weights.hpp"
#include "gradus_c.h"
#include "network.hpp"

namespace gradus_c {

namespace train = gradus::train;

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
      // Behind "shared by" is what ranks compare, but not what a training that goes on must have.
      description_ =
          gradus::join({"examples of each rank's own, shared by ", ranks, " ranks", stops ? ", with a callback" : ""});
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
    description_ = gradus::join(
        {data_.count(), " samples of ", image_.channels, "x", image_.height, "x", image_.width, ", batches of ",
         settings.global_batch_size,
         settings.shuffle ? gradus::join({", shuffled with seed ", settings.seed}) : std::string{", in order"},
         ", shared by ", ranks, " ranks, ", limits_.steps, " steps", limits_.milliseconds ? " within a time" : "",
         stops ? ", with a callback" : ""});
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

/// A learning rate that the caller computes from the step.
template <class Trainer>
struct rate_of_step {
  const Trainer* of;
  const call_settings* settings;

  [[nodiscard]] double operator()(double /*epoch*/) const {
    return settings->schedule(of->steps(), settings->schedule_context);
  }
  [[nodiscard]] std::string description() const { return "a function of the program"; }
};

/// Gives the data of a call as the network reads it, and how long it goes on.
using request_taker = std::function<call_request()>;

/// A training, without the types of its elements and of its update rule.
class any_training {
 public:
  any_training() = default;
  any_training(const any_training&) = delete;
  any_training& operator=(const any_training&) = delete;
  virtual ~any_training() = default;

  [[nodiscard]] virtual std::uint64_t steps() const = 0;
  [[nodiscard]] virtual nn::target_description needed() const = 0;
  virtual gradus_report fit(const request_taker& take, const call_settings& settings) = 0;
  virtual gradus_report evaluate(const request_taker& take, const call_settings& settings) = 0;
  virtual void set_checkpoints(const std::string& folder, const gradus_checkpoint_options& options) = 0;
  virtual bool resume(const std::string& folder) = 0;
  virtual void save_weights(const std::string& path) = 0;
};

template <class Element>
class training final : public any_training {
  using network_type = typename network_of<Element>::network_type;
  using trainer_type = train::trainer<network_type>;

 public:
  template <class Rule, class Communicator>
  training(network_of<Element>& of, const Rule& rule, Communicator& ranks)
      : trainer_{of.net, rule, ranks},
        batches_{of.net.device(), of.net.shape(of.net.input()), of.net.target_description()},
        evaluation_{of.net.device(), of.net.shape(of.net.input()), of.net.target_description()} {}

  [[nodiscard]] std::uint64_t steps() const override { return trainer_.steps(); }
  [[nodiscard]] nn::target_description needed() const override {
    return const_cast<trainer_type&>(trainer_).network().target_description();
  }

  gradus_report fit(const request_taker& take, const call_settings& settings) override {
    const bool calls = settings.callback != nullptr;
    agree([&] { batches_.prepare(take(), settings, calls, group(), trainer_.steps()); });
    batches_.exchange_counts();
    gradus_report report{};
    const auto on_step = [&](const train::step_report& step) {
      if (!calls) {
        return;
      }
      const gradus_step_report told{.step = step.step,
                                    .global_examples = step.global_examples,
                                    .local_examples = step.local_examples,
                                    .local_loss = step.local_loss,
                                    .learning_rate = step.learning_rate};
      if (settings.callback(&told, settings.callback_context) != 0) {
        batches_.stop();
      }
    };
    const auto on_epoch = [&](train::epoch_report& epoch) {
      report = {.steps = batches_.steps(),
                .examples = epoch.examples,
                .loss = epoch.loss,
                .accuracy = epoch.accuracy,
                .seconds = epoch.seconds};
    };
    const gradus::optim::schedule rate =
        settings.schedule == nullptr ? gradus::optim::schedule{gradus::optim::constant{settings.learning_rate}}
                                     : gradus::optim::schedule{rate_of_step<trainer_type>{&trainer_, &settings}};
    // A call is an epoch of the trainer. Behind a resume, those before it count.
    const train::fit_options options{.epochs = calls_before_ + 1, .learning_rate = rate};
    calls_before_ = 0;
    if (checkpoints_ != nullptr) {
      trainer_.fit(batches_, options, on_step, on_epoch, *checkpoints_);
    } else {
      trainer_.fit(batches_, options, on_step, on_epoch);
    }
    return report;
  }

  gradus_report evaluate(const request_taker& take, const call_settings& settings) override {
    call_settings in_order = settings;
    in_order.shuffle = false;
    in_order.global_batch_size =
        trainer_.network().max_batch_size() * static_cast<index_t>(trainer_.communicator().size());
    agree([&] { evaluation_.prepare({take().data, {.passes = 1}}, in_order, false, group(), 0); });
    const train::evaluation_report measured = trainer_.evaluate(evaluation_);
    return {.steps = evaluation_.steps(),
            .examples = measured.examples,
            .loss = measured.loss,
            .accuracy = measured.accuracy,
            .seconds = measured.seconds};
  }

  void set_checkpoints(const std::string& folder, const gradus_checkpoint_options& options) override {
    checkpoints_ = std::make_unique<train::checkpoints>(
        folder,
        train::checkpoint_options{.every = static_cast<std::uint64_t>(options.every == 0 ? 1000 : options.every),
                                  .keep = options.keep == 0 ? 3 : options.keep,
                                  .signals = options.signals != 0});
  }

  bool resume(const std::string& folder) override {
    const auto found = trainer_.resume(folder);
    if (found.path.empty()) {
      return false;
    }
    calls_before_ = train::detail::trainer_access::parts_of(trainer_).progress->position().epochs;
    return true;
  }

  void save_weights(const std::string& path) override { train::save_weights(trainer_, path); }

 private:
  [[nodiscard]] gradus::comm::link& group() { return trainer_.communicator().link(); }

  /// Calls body(). If it throws on one rank, all throw, so that no rank waits for one that has refused its arguments.
  template <class Body>
  void agree(const Body& body) {
    double failed[] = {0};
    std::exception_ptr own;
    try {
      body();
    } catch (...) {
      own = std::current_exception();
      failed[0] = 1;
    }
    if (group().size() > 1) {
      group().sum(failed);
    }
    if (own != nullptr) {
      std::rethrow_exception(own);
    }
    if (failed[0] > 0) {
      throw failure{GRADUS_CONFIGURATION_ERROR,
                    "arguments that all ranks take",
                    {"those of ", failed[0], " other ranks, which refuse theirs"},
                    "their messages say why"};
    }
  }

  trainer_type trainer_;
  call_batches<Element> batches_;
  call_batches<Element> evaluation_;
  std::unique_ptr<train::checkpoints> checkpoints_;
  int calls_before_ = 0;
};

class trainer final : public object {
 public:
  explicit trainer(std::shared_ptr<network> trained) : of{std::move(trained)} { ++of->trainers; }

  std::shared_ptr<network> of;
  std::shared_ptr<communicator> ranks;
  std::unique_ptr<any_training> work;  // ends before what it refers to
  call_settings settings;

  ~trainer() override {
    work.reset();
    --of->trainers;
  }

  /// The data as the network reads it. @throws failure if arrays are missing, or of other shapes
  [[nodiscard]] training_data take(const data_set& from) {
    training_data result;
    const nn::value_shape image = of->with([](auto& any) { return any.net.shape(any.net.input()); });
    const nn::target_description needed = work->needed();
    result.inputs = array_of(from, of->input_name(), "samples of the input", image);
    const std::string& output = of->output_name();
    if (needed.values.channels > 0) {
      result.targets = array_of(from, output, "targets of the output", needed.values);
      require_count(output, result.targets.count, result.count());
    } else {
      nn::value_shape map = of->with([&](auto& any) { return any.net.shape(of->output()); });
      map = {.channels = 1, .height = needed.labels == 1 ? 1 : map.height, .width = needed.labels == 1 ? 1 : map.width};
      result.labels = array_of(from, output, "classes of the output", map);
      if (result.labels.element < GRADUS_INT32) {
        throw failure{GRADUS_SHAPE_ERROR,
                      {"classes '", output, "' that are integers, GRADUS_INT32 or GRADUS_INT64"},
                      "floating-point numbers",
                      "a class is a number from 0 to the number of channels of the output - 1"};
      }
      require_count(output, result.labels.count, result.count());
    }
    if (from.weights) {
      result.weights = examples_of("weights", *from.weights, {.channels = 1});
      require_count("weights", result.weights.count, result.count());
    }
    return result;
  }

 private:
  static examples array_of(const data_set& from, const std::string& name, const char* what,
                           const nn::value_shape& shape) {
    const auto at = from.arrays.find(name);
    if (at == from.arrays.end()) {
      refuse({"data with an array '", name, "', the ", what}, "data without it",
             "call gradus_data_set with the names of the network's input and output");
    }
    return examples_of(name, at->second, shape);
  }
  static void require_count(const std::string& name, index_t count, index_t inputs) {
    if (count != inputs) {
      throw failure{GRADUS_SHAPE_ERROR, {"as many samples of '", name, "' as of the input, ", inputs}, {count}};
    }
  }
};

/// The rule of the options, given to body.
template <class Body>
void with_rule(const gradus_trainer_options& options, const Body& body) {
  const auto clipped = [&](const auto& rule) {
    if (options.clip_norm != 0) {
      using rule_type = std::remove_cvref_t<decltype(rule)>;
      body(gradus::optim::update<rule_type>{.rule = rule, .max_norm = options.clip_norm});
    } else {
      body(rule);
    }
  };
  const auto or_default = [](double value, double missing) { return value == 0 ? missing : value; };
  const double beta1 = or_default(options.beta1, 0.9);
  const double beta2 = or_default(options.beta2, 0.999);
  const double epsilon = or_default(options.epsilon, 1e-8);
  switch (options.optimizer) {
    case GRADUS_SGD:
      return clipped(gradus::optim::sgd{
          .momentum = options.momentum, .nesterov = options.nesterov != 0, .weight_decay = options.weight_decay});
    case GRADUS_ADAM:
      return clipped(gradus::optim::adam{.beta1 = beta1,
                                         .beta2 = beta2,
                                         .epsilon = epsilon,
                                         .weight_decay = options.weight_decay,
                                         .amsgrad = options.amsgrad != 0});
    case GRADUS_ADAM_W:
      return clipped(gradus::optim::adam_w{
          .beta1 = beta1, .beta2 = beta2, .epsilon = epsilon, .weight_decay = options.weight_decay});
    default:
      refuse_constant("optimizer", options.optimizer, "GRADUS_SGD, GRADUS_ADAM or GRADUS_ADAM_W");
  }
}

}  // namespace gradus_c
