// SPDX-License-Identifier: BSL-1.0
//
// The trainer: composes a network, an update rule, a synchronization and a loader into epochs of steps.
// Module: train. Depends on: parallel, data.
#pragma once

#include <algorithm>    // std::max
#include <array>        // std::array
#include <chrono>       // std::chrono::steady_clock
#include <cmath>        // std::isfinite
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <exception>    // std::exception
#include <span>         // std::span
#include <string>       // std::string, std::to_string
#include <type_traits>  // std::is_same_v
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/comm/agreement.hpp"       // require_agreement
#include "gradus/comm/communicator.hpp"    // all_reduce
#include "gradus/core/error.hpp"           // configuration_error, numeric_error
#include "gradus/core/index.hpp"           // index_t
#include "gradus/nn/network.hpp"           // step_options
#include "gradus/optim/schedule.hpp"       // optim::schedule
#include "gradus/optim/segment.hpp"        // optim::segment
#include "gradus/optim/update_rule.hpp"    // explain_update_rule
#include "gradus/parallel/all_reduce.hpp"  // parallel::all_reduce
#include "gradus/train/report.hpp"         // epoch_report, step_report, flow

namespace gradus::train {

/// How long and how fast to train.
struct fit_options {
  int epochs = 1;
  optim::schedule learning_rate = 0.01;  ///< of the number of passes over the training set done so far
};

/// Trains a network on one or more ranks.
///
///   comm::self communicator;
///   train::trainer trainer{net, optim::sgd{.momentum = 0.9}, communicator};
///   trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05}, train::progress{std::cout});
///
/// Every rank has a network, a loader of its share, and a trainer; the ranks first compare what they are about to do
/// and throw if they differ. Each step computes the update that one process would compute on the examples of all ranks.
/// The network, the communicator and the device must outlive the trainer.
///
/// A callback is any object with some of the members
///   on_start(const run_information&)
///   on_step(const step_report&)
///   on_epoch(epoch_report&) or on_epoch(trainer&, epoch_report&), which may return flow; on all ranks, in order
///   on_finish()
/// A step allocates nothing and sends nothing but what the synchronization sends.
template <class Network, class Update, class Communicator, class Synchronization = parallel::all_reduce>
class trainer {
  using element = typename Network::element_type;
  using device = typename Network::device_type;
  static_assert(optim::explain_update_rule<Update, element, device>());
  static_assert(parallel::explain_synchronization<Synchronization>());

 public:
  /// Compares the ranks' networks and rules, and makes all parameters those of rank 0.
  /// @throws configuration_error when the network is not frozen, the rule makes no sense, or ranks differ
  trainer(Network& network, const Update& rule, Communicator& communicator, const Synchronization& options = {})
      : network_{&network},
        communicator_{&communicator},
        segments_{checked_segments(network)},
        rule_{network.device(), rule, static_cast<index_t>(network.values().size())},
        synchronization_{options, communicator, {network.values(), network.gradients(), segments_}} {
    comm::require_agreement(*communicator_, "trainer",
                            {{"network", network.describe()},
                             {"element type", std::string{element_name<element>}},
                             {"layout", std::string{Network::layout_type::name}},
                             {"seed", std::to_string(network.seed())},
                             {"update rule", describe_rule(rule)},
                             {"synchronization", synchronization_.describe()}});
    synchronization_.start();
  }

  trainer(const trainer&) = delete;  // the synchronization refers to the segments
  trainer& operator=(const trainer&) = delete;

  /// Trains for some epochs. May be called again: steps and epochs go on counting.
  /// @throws configuration_error when options make no sense or ranks differ
  /// @throws numeric_error when the loss is not finite, with the step and the layer where that was first seen
  template <class Loader, class... Callbacks>
  void fit(Loader& loader, const fit_options& options, Callbacks&&... callbacks) {
    if (options.epochs < 0) {
      throw configuration_error{"trainer.fit", "epochs of at least 0", std::to_string(options.epochs)};
    }
    comm::require_agreement(*communicator_, "trainer.fit",
                            {{"epochs", std::to_string(options.epochs)},
                             {"learning rate", options.learning_rate.description()},
                             {"loader", loader.description()}});
    const run_information run{.rank = communicator_->rank(),
                              .ranks = communicator_->size(),
                              .epochs = options.epochs,
                              .steps_per_epoch = loader.steps_per_epoch(),
                              .examples_per_epoch = loader.examples_per_epoch(),
                              .parameters = network_->parameter_count()};
    try {
      run_epochs(loader, options, run, callbacks...);
    } catch (const std::exception& failure) {
      communicator_->fail(failure.what());  // nobody shall wait for this rank
      throw;
    }
  }

  /// The mean loss and accuracy over a loader's data set, with the examples shared as the loader shares them. With a
  /// sharded loader every rank must call it, all get the same report, and all take over the running statistics of rank
  /// 0, so that they evaluate one model.
  template <class Loader>
  [[nodiscard]] evaluation_report evaluate(Loader& loader) {
    const auto began = clock::now();
    if (loader.ranks() > 1 && !network_->buffer_values().empty()) {
      comm::broadcast(*communicator_, network_->buffer_values(), 0).wait();
    }
    std::array<double, 3> sums{};  // loss, right answers, examples
    loader.start_epoch(0);
    while (const auto* batch = loader.next()) {
      const kernels::loss_sums part = network_->evaluate(batch->images, batch->labels);
      sums[0] += part.loss;
      sums[1] += static_cast<double>(part.correct);
      sums[2] += static_cast<double>(batch->labels.size());
    }
    if (loader.ranks() > 1) {
      comm::all_reduce(*communicator_, std::span<double>{sums}).wait();
    }
    return {.loss = sums[2] > 0 ? sums[0] / sums[2] : 0.0,
            .accuracy = sums[2] > 0 ? sums[1] / sums[2] : 0.0,
            .examples = static_cast<index_t>(sums[2]),
            .seconds = seconds_since(began)};
  }

  [[nodiscard]] Network& network() noexcept { return *network_; }
  [[nodiscard]] Communicator& communicator() noexcept { return *communicator_; }
  /// Steps done since construction.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_done_; }
  /// The optimizer's state, for checkpoints.
  [[nodiscard]] auto& update_state() noexcept { return rule_; }

 private:
  using clock = std::chrono::steady_clock;

  /// Passes the network's news on to the synchronization.
  struct step_observer {
    typename Synchronization::template state<element, Communicator>& synchronization;
    void gradients_ready(std::size_t first, std::size_t count) { synchronization.gradients_ready(first, count); }
  };

  static double seconds_since(clock::time_point began) {
    return std::chrono::duration<double>(clock::now() - began).count();
  }

  static std::vector<optim::segment> checked_segments(const Network& network) {
    if (!network.frozen()) {
      throw configuration_error{"trainer", "a frozen network", "one that is still being built",
                                "call freeze({.batch_size = ...}) first"};
    }
    std::vector<optim::segment> segments;
    for (const auto& p : network.parameters()) {
      segments.push_back({.name = p.name(), .offset = p.offset(), .size = p.size(), .decay = p.decay()});
    }
    return segments;
  }

  static std::string describe_rule(const Update& rule) {
    if constexpr (requires { std::string{rule.description()}; }) {
      return std::string{rule.description()};
    } else {
      return std::string{Update::name};
    }
  }

  template <class Loader, class... Callbacks>
  void run_epochs(Loader& loader, const fit_options& options, const run_information& run, Callbacks&... callbacks) {
    (call_start(callbacks, run), ...);
    for (int epoch = 0; epoch < options.epochs; ++epoch) {
      [[maybe_unused]] epoch_report report = run_epoch(loader, options, epoch, callbacks...);
      bool stop = false;
      ((stop = call_epoch(callbacks, report) || stop), ...);
      ++epochs_done_;
      if (any_rank(stop)) {
        break;
      }
    }
    (call_finish(callbacks), ...);
  }

  template <class Loader, class... Callbacks>
  epoch_report run_epoch(Loader& loader, const fit_options& options, int epoch, Callbacks&... callbacks) {
    const auto began = clock::now();
    epoch_report report{.epoch = epoch, .epochs = options.epochs};
    const index_t steps_per_epoch = loader.steps_per_epoch();
    std::array<double, 3> sums{};  // loss, right answers, examples
    loader.start_epoch(static_cast<std::uint64_t>(epochs_done_));
    for (;;) {
      const auto before_input = clock::now();
      const auto* batch = loader.next();
      const auto after_input = clock::now();
      report.input_seconds += std::chrono::duration<double>(after_input - before_input).count();
      if (batch == nullptr) {
        break;
      }
      const double passes =
          static_cast<double>(epochs_done_) + static_cast<double>(report.steps) / static_cast<double>(steps_per_epoch);
      const double rate = options.learning_rate(passes);
      const nn::step_options place{
          .step = steps_done_, .first_example = batch->first_example, .global_examples = batch->global_examples};
      const kernels::loss_sums part =
          network_->train_step(batch->images, batch->labels, place, step_observer{synchronization_});
      if (!std::isfinite(part.loss)) {
        throw_not_finite(*batch, place, epoch, part.loss, rate);
      }
      const auto before_synchronization = clock::now();
      synchronization_.finish([&](std::span<const optim::segment> ready) {
        rule_.update(network_->device(), ready, network_->values().data(), network_->gradients().data(), rate);
      });
      report.synchronization_seconds += seconds_since(before_synchronization);
      const auto examples = static_cast<index_t>(batch->labels.size());
      sums[0] += part.loss;
      sums[1] += static_cast<double>(part.correct);
      sums[2] += static_cast<double>(examples);
      [[maybe_unused]] const step_report step{.epoch = epoch,
                             .step_in_epoch = report.steps,
                             .steps_per_epoch = steps_per_epoch,
                             .step = steps_done_,
                             .global_examples = batch->global_examples,
                             .local_examples = examples,
                             .local_loss = examples > 0 ? part.loss / static_cast<double>(examples) : 0.0,
                             .learning_rate = rate};
      (call_step(callbacks, step), ...);
      ++report.steps;
      ++steps_done_;
    }
    if (communicator_->size() > 1) {
      comm::all_reduce(*communicator_, std::span<double>{sums}).wait();
    }
    report.examples = static_cast<index_t>(sums[2]);
    report.loss = sums[2] > 0 ? sums[0] / sums[2] : 0.0;
    report.accuracy = sums[2] > 0 ? sums[1] / sums[2] : 0.0;
    report.seconds = seconds_since(began);
    report.images_per_second = report.seconds > 0 ? sums[2] / report.seconds : 0.0;
    return report;
  }

  template <class Batch>
  [[noreturn]] void throw_not_finite(const Batch& batch, const nn::step_options& place, int epoch, double loss,
                                     double rate) {
    const std::string first = network_->find_non_finite(batch.images, place).place;
    throw numeric_error{
        "training step " + std::to_string(place.step) + " (epoch " + std::to_string(epoch + 1) + ", rank " +
            std::to_string(communicator_->rank()) + ")",
        "a finite loss", std::to_string(loss) + ", first not finite: " + (first.empty() ? "the loss itself" : first),
        "a smaller learning rate than " + std::to_string(rate) + ", a warm-up, or a look at the input data"};
  }

  /// Whether a rank says so; every rank gets the same answer.
  bool any_rank(bool says_so) {
    if (communicator_->size() == 1) {
      return says_so;
    }
    std::array<double, 1> count{says_so ? 1.0 : 0.0};
    comm::all_reduce(*communicator_, std::span<double>{count}).wait();
    return count[0] > 0;
  }

  template <class Callback>
  static void call_start(Callback& callback, const run_information& run) {
    if constexpr (requires { callback.on_start(run); }) {
      callback.on_start(run);
    }
  }
  template <class Callback>
  static void call_step(Callback& callback, const step_report& step) {
    if constexpr (requires { callback.on_step(step); }) {
      callback.on_step(step);
    }
  }
  template <class Callback>
  static void call_finish(Callback& callback) {
    if constexpr (requires { callback.on_finish(); }) {
      callback.on_finish();
    }
  }
  template <class Callback>
  bool call_epoch(Callback& callback, epoch_report& report) {
    if constexpr (requires { callback.on_epoch(*this, report); }) {
      return stops([&] { return callback.on_epoch(*this, report); });
    } else if constexpr (requires { callback.on_epoch(report); }) {
      return stops([&] { return callback.on_epoch(report); });
    } else {
      return false;
    }
  }
  template <class Call>
  static bool stops(const Call& call) {
    if constexpr (std::is_same_v<decltype(call()), flow>) {
      return call() == flow::stop;
    } else {
      call();
      return false;
    }
  }

  Network* network_;
  Communicator* communicator_;
  std::vector<optim::segment> segments_;
  typename Update::template state<element, device> rule_;
  typename Synchronization::template state<element, Communicator> synchronization_;
  std::uint64_t steps_done_ = 0;
  int epochs_done_ = 0;
};

/// A callback that evaluates on another data set every `every` epochs, and after the last; it fills
/// epoch_report::evaluation, so put it before callbacks that show it.
///
/// With a sharded loader the ranks share the work and all get the result. With a loader of the whole set on each rank,
/// rank 0 alone evaluates, the others go on, and rank 0 alone gets the result.
template <class Loader>
class evaluate_every {
 public:
  explicit evaluate_every(Loader& loader, int every = 1) : loader_{&loader}, every_{every} {
    if (every < 1) {
      throw configuration_error{"evaluate_every", "every at least 1 epoch", std::to_string(every)};
    }
  }

  template <class Trainer>
  void on_epoch(Trainer& trainer, epoch_report& report) {
    const bool due = (report.epoch + 1) % every_ == 0 || report.epoch + 1 == report.epochs;
    if (due && (loader_->ranks() > 1 || trainer.communicator().rank() == 0)) {
      report.evaluation = trainer.evaluate(*loader_);
    }
  }

 private:
  Loader* loader_;
  int every_;
};

}  // namespace gradus::train
