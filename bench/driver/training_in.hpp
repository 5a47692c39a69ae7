// SPDX-License-Identifier: BSL-1.0
//
// The training of one element, layout and device: included by one file for CPUs and one for GPUs.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "build_model.hpp"
#include "gradus/checkpoint/checkpoints.hpp"
#include "gradus/comm/any_communicator.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/parallel_loader.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/io/weights.hpp"
#include "gradus/pipeline/hybrid.hpp"
#include "gradus/train/traced.hpp"
#include "gradus/train/trainer.hpp"
#include "training.hpp"

namespace driver {

/// The same batch in every step, made once: training without input, as with synthetic data in tf_cnn_benchmarks.
template <class Loader>
class one_batch {
 public:
  one_batch(Loader& loader, index_t steps) : loader_{&loader}, steps_{steps} {}

  void take_shard(const gradus::data::shard& part) { loader_->take_shard(part); }
  void start_epoch(std::uint64_t /*epoch*/, index_t first = 0) {
    given_ = first;
    if (batch_ == nullptr) {
      loader_->start_epoch(0);
      batch_ = loader_->next();
    }
  }
  [[nodiscard]] const typename Loader::batch_type* next() { return given_++ < steps_ ? batch_ : nullptr; }
  [[nodiscard]] index_t steps_per_epoch() const noexcept { return steps_; }
  [[nodiscard]] index_t examples_per_epoch() const noexcept { return steps_ * loader_->examples_per_epoch(); }
  [[nodiscard]] std::string description() const {
    return "the same batch in each of " + std::to_string(steps_) + " steps of " + loader_->description();
  }

 private:
  Loader* loader_;
  index_t steps_;
  index_t given_ = 0;
  const typename Loader::batch_type* batch_ = nullptr;
};

/// Begins to record with the first step that is measured. The spans of a step are kept from its input on, so it is the
/// loader that knows when.
template <class Loader>
class recorded_loader {
 public:
  recorded_loader(Loader& loader, gradus::trace::recorder& recorder, index_t first)
      : loader_{&loader}, recorder_{&recorder}, before_{first} {}

  void take_shard(const gradus::data::shard& part) { loader_->take_shard(part); }
  void start_epoch(std::uint64_t epoch, index_t first) {
    if constexpr (requires { loader_->start_epoch(epoch, first); }) {
      loader_->start_epoch(epoch, first);
    }
  }
  void start_epoch(std::uint64_t epoch) { start_epoch(epoch, 0); }
  [[nodiscard]] auto next() {
    if (before_-- == 0) {
      recorder_->enable(true);
    }
    return loader_->next();
  }
  [[nodiscard]] index_t steps_per_epoch() const { return loader_->steps_per_epoch(); }
  [[nodiscard]] index_t examples_per_epoch() const { return loader_->examples_per_epoch(); }
  [[nodiscard]] std::string description() const { return std::string{loader_->description()}; }

 private:
  Loader* loader_;
  gradus::trace::recorder* recorder_;
  index_t before_;  // steps
};

/// As many examples as the steps of an epoch need: the set again and again.
class repeated_set {
 public:
  repeated_set(const input_set& set, index_t size) : set_{&set}, size_{size} {}

  [[nodiscard]] index_t size() const noexcept { return size_; }
  [[nodiscard]] gradus::image_extents example() const { return set_->example(); }
  [[nodiscard]] int classes() const { return set_->classes(); }
  [[nodiscard]] std::uint64_t hash() const { return set_->hash(); }
  [[nodiscard]] gradus::image_extents label_map() const { return set_->label_map(); }
  void read_labels(index_t i, std::int32_t* labels) const { set_->read_labels(i % set_->size(), labels); }
  void read_labels(index_t i, std::uint64_t /*epoch*/, std::int32_t* labels) const { read_labels(i, labels); }
  void read(index_t i, float* planes) const { read(i, 0, planes); }
  void read(index_t i, std::uint64_t epoch, float* planes) const {
    const auto passes = static_cast<std::uint64_t>((size_ + set_->size() - 1) / set_->size());
    set_->read(i % set_->size(), epoch * passes + static_cast<std::uint64_t>(i / set_->size()), planes);
  }

 private:
  const input_set* set_;
  index_t size_;
};

/// What a trainer takes instead of a network when steps are recorded: a class template, for a GPU.
template <class Network>
struct recorded_form {
  using type = void;
};

template <class Element, class Layout, class Device>
class training_in final : public training {
  using network = gradus::nn::network<Element, Layout, Device>;
  using loader = gradus::data::parallel_loader<Element, Layout, Device>;
  static constexpr bool has_own_memory = gradus::has_memory_of_its_own<Device>;

 public:
  training_in(const settings& chosen, Device& device, const input_set& input, const batches& plan,
              gradus::trace::recorder& recorder)
      : chosen_{chosen},
        plan_{plan},
        recorder_{&recorder},
        net_{device, {.channels = input.example().c, .height = input.example().h, .width = input.example().w}},
        synthetic_{chosen.data_dir.empty()},
        repeats_{synthetic_ || chosen.repeat_cached_sample},
        set_{input, chosen.eval ? input.size() : plan.global() * (repeats_ ? 1 : plan.steps)},
        seen_{recorder, set_} {
    build_model(net_, find_model(chosen.model), input.classes());
  }

  gradus::nn::memory_forecast forecast() override { return net_.forecast(compiling()); }
  pipeline_forecast forecast_stages(const gradus::parallel::hybrid& options) override {
    const gradus::parallel::hybrid own = compiled_as_asked(options);
    const auto compiled = gradus::parallel::compile_options_of(own, net_);
    return forecast_of(own, compiled, gradus::parallel::cut_network(net_, own, compiled));
  }
  std::optional<pipeline_forecast> fewest_stages(const gradus::parallel::hybrid& options) override {
    const gradus::parallel::hybrid own = compiled_as_asked(options);
    const auto compiled = gradus::parallel::compile_options_of(own, net_);
    auto cut = gradus::parallel::cut_into_fewest(net_, own, compiled);
    if (!cut) {
      return {};
    }
    return forecast_of(own, compiled, *std::move(cut));
  }
  void compile() override { net_.compile(compiling()); }
  gradus::parallel::network_stages compile_stages(const gradus::parallel::hybrid& options,
                                                  gradus::comm::any_communicator ranks) override {
    gradus::parallel::hybrid own = compiled_as_asked(options);
    if (chosen_.layer_times == "measured" && chosen_.stage_cuts.empty() && ranks.rank() == 0) {
      own.layer_times = measured_times();
    }
    stages_ = std::make_unique<gradus::train::pipeline<network>>(own);
    stages_->prepare(net_, ranks);
    gradus::train::name_transfer_buffers(*recorder_, stages_->transfer_buffers());
    return stages_->cut();
  }
  const gradus::nn::graph& structure() const override { return net_.structure(); }
  trained_parameters parameters() override { return gradus::train::trained_parameters_of(net_); }

  gradus::parallel::step_profile profile(int steps) override { return profile_of(net_, opened_loader(), steps); }

  std::vector<double> infer(int count) override {
    compile_for_inference();
    const auto run = [&](auto& input) {
      std::vector<double> seconds;
      input.start_epoch(0);
      for (int i = 0; i < count; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        const auto* const batch = input.next();
        net_.forward(batch->images);
        net_.device().synchronize();
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      }
      return seconds;
    };
    if (repeats_) {
      one_batch<loader> input{opened_loader(), index_t{count}};
      return run(input);
    }
    return run(opened_loader());
  }

  void compile_for_evaluation() override { compile_for_inference(); }
  void load_weights(const std::string& checkpoint) override {
    static_cast<void>(gradus::io::load_weights(net_, checkpoint));
  }
  score_counts evaluate(index_t count, const std::function<void()>& after_batch) override {
    score_counts counts{{net_.output_shape(), net_.target_description()}};
    counting_observer<Element, Layout, Device> observer{counts};
    const auto run = [&](auto& input) {
      std::uint64_t epoch = 0;
      input.start_epoch(epoch);
      for (index_t i = 0; i < count; ++i) {
        const auto* batch = input.next();
        if (batch == nullptr) {
          input.start_epoch(++epoch);
          batch = input.next();
        }
        const index_t examples = batch->images.extent(0);
        counts.add(net_.evaluate(batch->images, batch->labels, observer).loss, examples);
        after_batch();
      }
    };
    if (repeats_) {
      one_batch<loader> input{opened_loader(), count};
      run(input);
    } else {
      run(opened_loader());
    }
    return counts;
  }

  void fit(gradus::comm::link& group, step_watch& watch, saves_of_rank& saves, int epochs,
           const gradus::optim::schedule& learning_rate, gradus::trace::recorder* recorder) override {
    namespace train = gradus::train;
    train::fit_options options{.epochs = epochs, .learning_rate = learning_rate};
    const auto fit_with = [&](auto& input, auto& trainer) {
      index_t warm_up = chosen_.warmup_batches;
      if (saves.resumes()) {
        const gradus::io::checkpoint_report found = train::resume_training(trainer, saves.folder());
        if (group.rank() == 0) {
          std::printf("Resumed:     %s\n", gradus::printable(gradus::io::to_string(found)).c_str());
        }
        const index_t reached = trainer.steps_in_epoch();
        // The last step of an epoch may be done and the epoch not ended: one more is measured.
        options.epochs += trainer.epochs() + (reached == plan_.steps ? 1 : 0);
        warm_up = watch.begin_at(static_cast<std::size_t>(reached), static_cast<std::size_t>(plan_.steps));
      }
      watch.begin();
      if (recorder == nullptr) {
        trainer.fit(input, options, saves.callback(), watch);
        return;
      }
      recorded_loader measured{input, *recorder, warm_up};
      train::fit_traced(*recorder, trainer, measured, options, saves.callback(), watch);
    };
    const auto fit_from = [&](auto& input, auto& trained) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(trained)>, network>) {
        if (stages_ != nullptr) {
          train::trainer trainer{trained, watch, group, std::move(stages_)};
          fit_with(input, trainer);
          return;
        }
      }
      train::trainer trainer{trained, watch, group};
      fit_with(input, trainer);
    };
    const auto fit_network = [&](auto& trained) {
      if (repeats_) {
        one_batch<loader> input{opened_loader(), plan_.steps};
        fit_from(input, trained);
      } else {
        fit_from(opened_loader(), trained);
      }
    };
    if constexpr (!std::is_void_v<typename recorded_form<network>::type>) {
      if (chosen_.capture_step) {
        typename recorded_form<network>::type recorded{net_};
        return fit_network(recorded);
      }
    }
    fit_network(net_);
  }

 private:
  [[nodiscard]] gradus::nn::compile_options compiling() const {
    using gradus::nn::convolution_algorithm;
    return {
        .max_batch_size = plan_.of_rank,
        .seed = chosen_.seed,
        .micro_batch_size = chosen_.micro_batches > 1 ? (plan_.of_rank - 1) / chosen_.micro_batches + 1 : 0,
        .convolution_algorithm = chosen_.winograd ? convolution_algorithm::automatic : convolution_algorithm::direct};
  }

  void compile_for_inference() {
    const gradus::nn::compile_options options = compiling();
    net_.compile_for_inference({.max_batch_size = options.max_batch_size,
                                .seed = options.seed,
                                .convolution_algorithm = options.convolution_algorithm});
  }

  /// The shortest times of a network's layers in some steps that update nothing.
  static gradus::parallel::step_profile profile_of(network& trained, loader& input, int steps) {
    gradus::parallel::profile_recorder recorder{trained.layers(), trained.device()};
    for (int step = 0; step < steps; ++step) {
      input.start_epoch(0);
      const auto* const batch = input.next();
      trained.train_step(batch->images, batch->labels, {}, &recorder);
    }
    return recorder.profile();
  }

  /// Of the whole network, for cuts: in two micro-batches, as other ranks wait. Nothing if it does not fit.
  std::vector<gradus::parallel::step_profile::layer> measured_times() {
    const auto example = set_.example();
    network whole{net_.device(), {.channels = example.c, .height = example.h, .width = example.w}};
    build_model(whole, find_model(chosen_.model), set_.classes());
    gradus::nn::compile_options options = compiling();
    const index_t examples = (plan_.of_rank - 1) / std::max(1, chosen_.micro_batches) + 1;
    options.micro_batch_size = examples;
    options.max_batch_size = std::min(2 * examples, plan_.of_rank);
    const std::size_t limit = has_own_memory ? options_limit() : memory_for_measuring(chosen_);
    if (whole.forecast(options).total() > limit || !compiles(whole, options)) {
      std::printf(
          "Cuts:        by estimates, as the whole network does not fit %s\n",
          has_own_memory ? "the GPU or --memory-limit" : (std::to_string(limit / (index_t{1} << 20)) + " MiB").c_str());
      return {};
    }
    loader input{
        net_.device(), set_,
        gradus::data::loader_options{.global_batch_size = options.max_batch_size, .seed = chosen_.seed, .prefetch = 1},
        gradus::data::reader_options{.threads = chosen_.reader_threads}};
    return profile_of(whole, input, 2).layers;
  }

  /// What the options allow.
  [[nodiscard]] std::size_t options_limit() const {
    return chosen_.memory_limit > 0 ? chosen_.memory_limit : std::numeric_limits<std::size_t>::max();
  }

  /// Whether there is memory for it: how much a GPU has left shows when it is taken.
  static bool compiles(network& whole, const gradus::nn::compile_options& options) {
    try {
      whole.compile(options);
    } catch (const gradus::device_error&) {
      if (has_own_memory) {
        return false;
      }
      throw;
    }
    return true;
  }

  [[nodiscard]] gradus::parallel::hybrid compiled_as_asked(gradus::parallel::hybrid options) const {
    options.compile = compiling();
    return options;
  }
  [[nodiscard]] pipeline_forecast forecast_of(const gradus::parallel::hybrid& options,
                                              const gradus::nn::compile_options& compiled,
                                              gradus::parallel::network_stages cut) {
    pipeline_forecast result{.cut = std::move(cut), .memory = {}};
    result.memory = gradus::parallel::forecast_stages(net_, options, compiled, result.cut);
    return result;
  }

  loader& opened_loader() {
    if (!loader_) {
      loader_ = std::make_unique<loader>(net_.device(), seen_,
                                         gradus::data::loader_options{.global_batch_size = plan_.global(),
                                                                      .shuffle = !synthetic_ && !chosen_.eval,
                                                                      .seed = chosen_.seed,
                                                                      .shard = {plan_.rank, plan_.ranks},
                                                                      .prefetch = repeats_ ? 1 : 2},
                                         gradus::data::reader_options{.threads = chosen_.reader_threads});
    }
    return *loader_;
  }

  settings chosen_;
  batches plan_;
  gradus::trace::recorder* recorder_;
  network net_;
  bool synthetic_;
  bool repeats_;  // the same batch in every step
  repeated_set set_;
  gradus::train::traced_set<repeated_set> seen_;
  std::unique_ptr<loader> loader_;
  std::unique_ptr<gradus::train::pipeline<network>> stages_;  // of a training in stages, until it begins
};

/// make_training of an element, a layout and a device.
template <class Element, class Layout, class Device>
std::unique_ptr<training> make_training_in(const settings& chosen, Device& device, const input_set& input,
                                           const batches& plan, gradus::trace::recorder& recorder) {
  return std::make_unique<training_in<Element, Layout, Device>>(chosen, device, input, plan, recorder);
}

}  // namespace driver
