// SPDX-License-Identifier: BSL-1.0
//
// Trainings whose steps are recorded: those over a communicator of trace::traced.
#pragma once

#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::int32_t, std::int64_t, std::uint64_t
#include <functional>   // std::function
#include <memory>       // std::make_unique, std::unique_ptr
#include <optional>     // std::optional
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::remove_cvref_t
#include <utility>      // std::move

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/reference.hpp"
#include "gradus/nn/network/phase.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/trace/breakdown.hpp"
#include "gradus/trace/chrome.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/trace/transfers.hpp"
#include "gradus/train/callback_state.hpp"
#include "gradus/train/detail/trainer/loop.hpp"
#include "gradus/train/detail/trainer/parts.hpp"
#include "gradus/train/detail/trainer/trainer_base.hpp"
#include "gradus/train/execution.hpp"
#include "gradus/train/forwarding_step.hpp"
#include "gradus/train/optimizer_step.hpp"
#include "gradus/train/report.hpp"
#include "gradus/train/trainer.hpp"

namespace gradus::train {

/// Gives what travels in a step its names: parts of the gradients, parameters on their way to and from servers, and
/// what crosses the cuts of a network in stages.
inline void name_transfer_buffers(trace::recorder& recorder, std::span<const parallel::transfer_buffer> all) {
  for (const parallel::transfer_buffer& each : all) {
    recorder.name_memory(each.bytes, each.name);
  }
}

namespace detail {

/// Records the steps of a training: what the loop does with the loader, the network, the update and the callbacks
/// passes through here.
class step_tracer final : public forwarding_step {
 public:
  /// @param layers  the names of the network's layers
  step_tracer(trace::recorder& recorder, optimizer_step& inner, dynamic_array<trace::name> layers,
              std::uint64_t first_step) noexcept
      : forwarding_step{inner},
        recorder_{&recorder},
        late_{inner.has_deferred_update()},
        on_servers_{inner.on_servers()},
        layers_{std::move(layers)},
        step_{first_step} {}

  // ---- the loader

  /// A step begins with the wait for its batch, and the one before has ended.
  void input_begins() {
    finish_step();
    recorder_->set_step(static_cast<std::int32_t>(step_));
    step_began_ = recorder_->now();
  }
  void input_ends(bool more) {
    in_step_ = more;
    if (!more) {
      recorder_->set_step(-1);
      return;
    }
    phase_began_ = recorder_->now();
    phase_ = trace::category::forward;
    put("input", step_began_, phase_began_, trace::category::input);
  }

  // ---- the network

  void before_layer(std::size_t layer, nn::phase which) override {
    const bool forward = which == nn::phase::forward;
    change_phase(forward ? trace::category::forward : trace::category::backward);
    if (late_ && forward) {
      const std::int64_t began = recorder_->now();
      forwarding_step::before_layer(layer, which);
      put_exchange(began, too_short);
    } else {
      forwarding_step::before_layer(layer, which);
    }
    if (open_layers_++ == 0) {
      first_layer_ = layer;
      side_by_side_ = false;
      recorder_->push_range(layers_[layer]);
      layer_began_ = recorder_->now();
    } else {
      side_by_side_ = true;
    }
  }

  void after_layer(std::size_t layer, nn::phase which) override {
    if (--open_layers_ == 0) {
      const std::int64_t now = recorder_->now();
      layer_ended_ = now;
      recorder_->pop_range();
      trace::span one{.begin = layer_began_,
                      .end = now,
                      .title = side_by_side_ ? trace::name{"layers side by side"} : layers_[first_layer_],
                      .subject = layers_[first_layer_],
                      .step = recorder_->step(),
                      .what = phase_,
                      .where = trace::track::compute};
      recorder_->push(one);
    }
    forwarding_step::after_layer(layer, which);
  }

  void skip_layer(std::size_t layer) override {
    const std::int64_t began = recorder_->now();
    forwarding_step::skip_layer(layer);
    put_exchange(began, too_short);
  }

  /// Transfers are begun and moved forward by this thread.
  void gradients_ready(std::size_t first, std::size_t count) override {
    const std::int64_t began = recorder_->now();
    forwarding_step::gradients_ready(first, count);
    put_if_long("exchange", began, trace::category::exchange);
  }

  // ---- the passes of a pipeline: between them the thread sends, receives, copies and waits

  void before_pass(nn::stage_pass which, std::size_t stage, std::size_t micro_batch) override {
    const std::int64_t now = recorder_->now();
    put("exchange", phase_began_, now, trace::category::exchange);
    phase_ = which == nn::stage_pass::forward ? trace::category::forward : trace::category::backward;
    in_pass_ = true;
    pass_ = {.begin = now,
             .title = title_of(which),
             .step = recorder_->step(),
             .tag = static_cast<std::int32_t>(stage),
             .sequence = static_cast<std::uint32_t>(micro_batch),
             .what = phase_,
             .operation = trace::span::stage_pass};
    forwarding_step::before_pass(which, stage, micro_batch);
  }
  void after_pass() override {
    forwarding_step::after_pass();
    pass_.end = recorder_->now();
    recorder_->push_here(pass_);
    in_pass_ = false;
    phase_ = trace::category::exchange;
    phase_began_ = pass_.end;
  }

  // ---- the update

  void update(const optim::update_step& step) override {
    const std::int64_t began = recorder_->now();
    end_phase(began);
    forwarding_step::update(step);
    put_exchange(began, 0);
  }

  void complete_update() override {
    const std::int64_t began = recorder_->now();
    forwarding_step::complete_update();
    if (late_) {
      put_exchange(began, too_short);
    }
  }

  // ---- callbacks

  void callback_ended(trace::name title, std::int64_t began) { put_if_long(title, began, trace::category::log); }
  [[nodiscard]] std::int64_t now() const noexcept { return recorder_->now(); }

 private:
  static constexpr std::int64_t too_short = 1000;  // ticks: half a microsecond or so is not worth a span

  void put(trace::name title, std::int64_t began, std::int64_t ended, trace::category what, trace::name subject = {}) {
    trace::span one{
        .begin = began, .end = ended, .title = title, .subject = subject, .step = recorder_->step(), .what = what};
    recorder_->push_here(one);
  }
  void put_if_long(trace::name title, std::int64_t began, trace::category what, trace::name subject = {},
                   std::int64_t least = too_short) {
    const std::int64_t now = recorder_->now();
    if (now - began >= least) {
      put(title, began, now, what, subject);
      last_ = now;
    }
  }
  /// The update rule and waits are recorded inside it.
  void put_exchange(std::int64_t began, std::int64_t least) {
    if (on_servers_) {
      put_if_long("wait", began, trace::category::wait, "servers", least);
    } else {
      put_if_long("exchange", began, trace::category::exchange, {}, least);
    }
  }

  static trace::name title_of(nn::stage_pass which) noexcept {
    switch (which) {
      case nn::stage_pass::forward:
        return "forward";
      case nn::stage_pass::input_gradients:
        return "gradients of inputs";
      case nn::stage_pass::weight_gradients:
        return "gradients of weights";
      case nn::stage_pass::backward:
        break;
    }
    return "backward";
  }

  void end_phase(std::int64_t when) {
    put(phase_ == trace::category::forward    ? trace::name{"forward"}
        : phase_ == trace::category::backward ? trace::name{"backward"}
                                              : trace::name{"exchange"},
        phase_began_, when, phase_);
    phase_began_ = when;
  }
  /// The loss, which comes between the layers' passes, is a part of backward.
  void change_phase(trace::category to) {
    if (!in_pass_ && phase_ != to) {
      end_phase(to == trace::category::backward ? layer_ended_ : recorder_->now());
      phase_ = to;
    }
  }
  void finish_step() {
    if (in_step_) {
      put("step", step_began_, last_, trace::category::step);
      in_step_ = false;
      ++step_;
    }
  }

  trace::recorder* recorder_;
  bool late_;
  bool on_servers_;
  dynamic_array<trace::name> layers_;
  std::uint64_t step_;
  bool in_step_ = false;
  trace::category phase_ = trace::category::forward;
  bool in_pass_ = false;         // of a pipeline:
  trace::span pass_;             // this one
  std::size_t open_layers_ = 0;  // announced and not yet done
  std::size_t first_layer_ = 0;  // of those
  bool side_by_side_ = false;
  std::int64_t step_began_ = 0;
  std::int64_t phase_began_ = 0;
  std::int64_t layer_began_ = 0;
  std::int64_t layer_ended_ = 0;  // the last one
  std::int64_t last_ = 0;         // the end of what a step did last
};

/// Batches that are waited for under a tracer's eyes.
template <class Network>
class traced_batches final : public batch_source<Network> {
 public:
  traced_batches(batch_source<Network>& source, step_tracer& tracer) noexcept : source_{&source}, tracer_{&tracer} {}

  void start_epoch(std::uint64_t epoch, index_t first) override { source_->start_epoch(epoch, first); }
  const network_batch<Network>* next() override {
    tracer_->input_begins();
    const auto* const batch = source_->next();
    tracer_->input_ends(batch != nullptr);
    return batch;
  }

 private:
  batch_source<Network>* source_;
  step_tracer* tracer_;
};

/// Callbacks whose time is recorded.
class traced_callbacks final : public any_callback {
 public:
  traced_callbacks(callback_list callbacks, step_tracer& tracer) noexcept : callbacks_(callbacks), tracer_{&tracer} {}

  void on_start(const run_information& run) override {
    for (any_callback* const each : callbacks_) {
      each->on_start(run);
    }
  }
  void on_step(const step_report& step) override {
    for (any_callback* const each : callbacks_) {
      const std::int64_t began = tracer_->now();
      each->on_step(step);
      tracer_->callback_ended("on_step", began);
    }
  }
  bool on_epoch(epoch_report& epoch) override {
    bool stop = false;
    for (any_callback* const each : callbacks_) {
      const std::int64_t began = tracer_->now();
      stop = each->on_epoch(epoch) || stop;
      tracer_->callback_ended("on_epoch", began);
    }
    return stop;
  }
  void on_finish() override {
    for (any_callback* const each : callbacks_) {
      const std::int64_t began = tracer_->now();
      each->on_finish();
      tracer_->callback_ended("on_finish", began);
    }
  }
  void save_state(callback_state& state) override {
    for (any_callback* const each : callbacks_) {
      each->save_state(state);
    }
  }
  void load_state(callback_state& state) override {
    for (any_callback* const each : callbacks_) {
      each->load_state(state);
    }
  }
  [[nodiscard]] std::string agreement() const override { return agreement_of(callbacks_); }

 private:
  callback_list callbacks_;
  step_tracer* tracer_;
};

/// Records the trainings over a communicator of trace::traced.
template <class Network>
class traced_fits final : public fit_watch<Network> {
 public:
  explicit traced_fits(trace::recorder& recorder) noexcept : recorder_{&recorder} {}

  void made(std::span<const parallel::transfer_buffer> transfer_buffers) override {
    name_transfer_buffers(*recorder_, transfer_buffers);
  }
  void fit(const Network& network, optimizer_step& end, batch_source<Network>& source, std::uint64_t first_step,
           callback_list callbacks, const typename fit_watch<Network>::fit_call& fit) override {
    dynamic_array<trace::name> layers;
    for (std::size_t i = 0; i < network.layers(); ++i) {
      layers.push_back(recorder_->intern(network.layer_name(i)));
    }
    step_tracer tracer{*recorder_, end, std::move(layers), first_step};
    traced_batches<Network> traced{source, tracer};
    traced_callbacks watched{callbacks, tracer};
    fit(tracer, traced, {watched.self()});
  }
  /// A span around it.
  void evaluation(bool begins) override {
    if (begins) {
      evaluation_.emplace(*recorder_, trace::category::evaluate, trace::name{"evaluate"});
    } else {
      evaluation_.reset();
    }
  }

 private:
  trace::recorder* recorder_;
  std::optional<trace::scope> evaluation_;
};

template <>
class training_watch<trace::transfers> {
 public:
  template <class Network>
  [[nodiscard]] static std::unique_ptr<fit_watch<Network>> make(trace::transfers& transfers) {
    return std::make_unique<traced_fits<Network>>(transfers.spans());
  }
};

}  // namespace detail

/// As trainer.fit(loader, options, callbacks...), and records the steps as a training over a communicator of
/// trace::traced does. The recorder must outlive the call.
template <class Network, class Loader, class... Callbacks>
void fit_traced(trace::recorder& recorder, trainer<Network>& of, Loader& loader, const fit_options& options,
                Callbacks&&... callbacks) {
  detail::traced_fits<Network> watch{recorder};
  of.fit_watched(&watch, loader, options, callbacks...);
}

/// A data set whose loader records how its threads prepare batches, as spans of trace::track::input: each batch, and of
/// data::parallel_loader also what each of its threads reads of it.
///
/// @code
///   train::traced_set traced{recorder, images};
///   data::loader<float, nhwc> loader{device, traced, {.global_batch_size = 64}};
/// @endcode
///
/// The recorder and the data set must outlive it, and it the loader.
template <class Dataset>
class traced_set {
 public:
  /// Reads examples from `set` and records spans with `recorder`. Both must outlive it.
  traced_set(borrowed<trace::recorder> recorder, borrowed<const Dataset> set) noexcept
      : recorder_{&recorder.get()}, set_{&set.get()} {}

  /// The number of examples.
  [[nodiscard]] index_t size() const { return static_cast<index_t>(set_->size()); }
  /// The extents of one example: (1, c, h, w).
  [[nodiscard]] image_extents example() const { return set_->example(); }
  /// The hash of the data set's content.
  [[nodiscard]] std::uint64_t hash() const { return static_cast<std::uint64_t>(set_->hash()); }
  /// Writes the c * h * w elements of example i to `planes`, as the data set does.
  template <class Element>
  requires requires(const Dataset& set, index_t i, Element* planes) { set.read(i, planes); }
  void read(index_t i, Element* planes) const { set_->read(i, planes); }
  /// The same for an epoch, of a data set whose examples depend on it, such as random crops.
  template <class Element>
  requires requires(const Dataset& set, index_t i, std::uint64_t epoch, Element* planes) { set.read(i, epoch, planes); }
  void read(index_t i, std::uint64_t epoch, Element* planes) const { set_->read(i, epoch, planes); }

  // The targets of the data set (data::dataset), of the kinds that it has.

  /// The number of classes.
  [[nodiscard]] int classes() const requires requires(const Dataset& set) { set.classes(); }
  { return static_cast<int>(set_->classes()); }
  /// The label of example i, in [0, classes).
  [[nodiscard]] std::int32_t label(index_t i) const requires requires(const Dataset& set) { set.label(i); }
  { return set_->label(i); }
  /// The extents of the labels of an example: (1, 1, h, w).
  [[nodiscard]] image_extents label_map() const requires requires(const Dataset& set) { set.label_map(); }
  { return set_->label_map(); }
  /// Writes the labels of example i to the pointer, row after row. Where they depend on the epoch, it comes before it.
  template <class... Where>
  requires requires(const Dataset& set, index_t i, Where... where) { set.read_labels(i, where...); }
  void read_labels(index_t i, Where... where) const { set_->read_labels(i, where...); }
  /// The label that is no class.
  [[nodiscard]] auto ignored_label() const requires requires(const Dataset& set) { set.ignored_label(); }
  { return set_->ignored_label(); }
  /// The extents of a real target: (1, c, h, w).
  [[nodiscard]] image_extents target() const requires requires(const Dataset& set) { set.target(); }
  { return set_->target(); }
  /// Writes target i to the pointer, plane after plane. Where it depends on the epoch, that comes before the pointer.
  template <class... Where>
  requires requires(const Dataset& set, index_t i, Where... where) { set.read_target(i, where...); }
  void read_target(index_t i, Where... where) const { set_->read_target(i, where...); }
  /// True if examples have weights.
  [[nodiscard]] bool weighted() const requires requires(const Dataset& set, index_t i) { set.weight(i); }
  {
    if constexpr (requires { set_->weighted(); }) {
      return set_->weighted();
    } else {
      return true;
    }
  }
  /// The weight of example i.
  [[nodiscard]] double weight(index_t i) const requires requires(const Dataset& set) { set.weight(i); }
  { return set_->weight(i); }

  /// Called by the loader's thread before it prepares a batch; the result lives until the batch is ready.
  [[nodiscard]] trace::scope watch_batch() const { return watch("batch"); }
  /// Called by each thread that reads examples of a batch; the result lives until it has read its part.
  [[nodiscard]] trace::scope watch_reader() const { return watch("read"); }
  /// Called by a thread that waits for `bytes` bytes of a batch that are copied to a device.
  [[nodiscard]] trace::scope watch_copy(std::size_t bytes) const {
    return {*recorder_, trace::category::copy, "batch to the device", {}, static_cast<std::int64_t>(bytes)};
  }

 private:
  [[nodiscard]] trace::scope watch(trace::name title) const {
    recorder_->set_track(trace::track::input);
    return {*recorder_, trace::category::input, title};
  }

  trace::recorder* recorder_;
  const Dataset* set_;
};

template <class Dataset>
traced_set(const trace::recorder&, Dataset&&) -> traced_set<std::remove_cvref_t<Dataset>>;

}  // namespace gradus::train
