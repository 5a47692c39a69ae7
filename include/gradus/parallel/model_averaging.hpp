// SPDX-License-Identifier: BSL-1.0
//
// Each rank trains by itself; now and then the ranks average their weights.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/parallel/strategy.hpp"

namespace gradus::parallel {

namespace detail {

template <class Element>
class model_averaging_state;

}  // namespace detail

/// Local SGD: every rank makes its own steps with the mean gradient of its own examples, and the ranks average their
/// weights every few steps, or once an epoch. NOT the algorithm of the synchronous strategies: between averages the
/// ranks have different weights, and the result depends on the number of ranks. With an average after every step it is
/// the update of one process, if the rule is linear in the gradients (sgd).
///
/// Averages once an epoch: Vishnu, Siegel, Daily, "Distributed TensorFlow with MPI", 2016. Synchronous steps first:
/// post-local SGD of Lin, Stich, Patel, Jaggi, "Don't use large mini-batches, use local SGD", 2020.
///
/// The optimizer's state is each rank's own and is not averaged. The ranks' shares of a batch are taken as equal.
struct model_averaging {
  /// The name of the strategy in messages.
  static constexpr std::string_view name = "model_averaging";

  /// Steps between averages; 0: once an epoch. The end of an epoch averages too, so that what is evaluated is one
  /// model.
  int every_steps = 0;
  /// Number of synchronous steps at the beginning: the ranks' gradients are summed and all make the same update.
  int synchronous_steps = 0;

  /// The object of one rank that brings its gradients together; see gradient_strategy.
  template <class Element>
  using state = detail::model_averaging_state<Element>;
};

namespace detail {

template <class Element>
class model_averaging_state final : public strategy<Element> {
 public:
  /// Called by all ranks. @throws configuration_error when options make no sense
  model_averaging_state(const model_averaging& options, comm::any_communicator communicator,
                        const flat_parameters<Element>& parameters)
      : options_{checked(options)}, channel_{communicator.duplicate()}, parameters_{parameters} {}

  void start() override { comm::broadcast(channel_, parameters_.values, 0).wait(); }

  void finish(const update_call& update) override {
    const bool together = steps() < static_cast<std::uint64_t>(options_.synchronous_steps);
    ++counters_[0];
    if (channel_.size() == 1) {
      update(parameters_.segments);
      return;
    }
    if (together) {
      comm::all_reduce(channel_, parameters_.gradients).wait();
    } else {  // they are parts of a mean over all ranks' examples
      scale(parameters_.gradients, static_cast<double>(channel_.size()));
    }
    update(parameters_.segments);
    counters_[2] = apart() || !together ? 1 : 0;
    const std::uint64_t alone = steps() - static_cast<std::uint64_t>(options_.synchronous_steps);
    if (!together && options_.every_steps > 0 && alone % static_cast<std::uint64_t>(options_.every_steps) == 0) {
      complete();
    }
  }

  /// Averages the weights unless they are the same on all ranks. Called by all ranks.
  void complete() override {
    if (!apart()) {
      return;
    }
    comm::all_reduce(channel_, parameters_.values).wait();
    scale(parameters_.values, 1.0 / static_cast<double>(channel_.size()));
    counters_[2] = 0;
    ++counters_[1];
  }

  [[nodiscard]] bool ranks_differ() const noexcept override { return channel_.size() > 1; }
  [[nodiscard]] std::span<std::uint64_t> counters() noexcept override { return counters_; }

  /// How often the weights have been averaged.
  [[nodiscard]] std::uint64_t averages() const noexcept { return counters_[1]; }

  [[nodiscard]] std::string describe() const override {
    std::string text = gradus::join({model_averaging::name, " by ", channel_.link().properties().name, ", "});
    if (options_.every_steps > 0) {
      append_text(text, {"every ", options_.every_steps, " steps"});
    } else {
      text += "once an epoch";
    }
    append_text(text, {", after ", options_.synchronous_steps, " synchronous steps"});
    return text;
  }

 private:
  [[nodiscard]] std::uint64_t steps() const noexcept { return counters_[0]; }
  /// The ranks' weights may differ.
  [[nodiscard]] bool apart() const noexcept { return counters_[2] != 0; }

  static model_averaging checked(const model_averaging& options) {
    if (options.every_steps < 0 || options.synchronous_steps < 0) {
      raise<configuration_error>("parallel::model_averaging", "every_steps and synchronous_steps of at least 0",
                                 {options.every_steps, " and ", options.synchronous_steps});
    }
    return options;
  }

  static void scale(std::span<Element> elements, double factor) noexcept {
    for (Element& each : elements) {
      each = static_cast<Element>(static_cast<double>(each) * factor);
    }
  }

  model_averaging options_;
  comm::any_communicator channel_;
  flat_parameters<Element> parameters_;
  std::uint64_t counters_[3] = {};  // steps, averages, whether the ranks are apart
};

}  // namespace detail

static_assert(gradient_strategy<model_averaging>);

}  // namespace gradus::parallel

GRADUS_COMPILED_STRATEGY(::gradus::parallel::model_averaging)
