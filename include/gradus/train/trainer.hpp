// SPDX-License-Identifier: BSL-1.0
//
// The trainer: composes a network, an update rule, a synchronization and a loader into epochs of steps.
// Module: train. Depends on: parallel, data.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <span>         // std::span
#include <type_traits>  // std::conditional_t, std::remove_reference_t
#include <vector>       // std::vector

#include "gradus/comm/any_group.hpp"       // group_of
#include "gradus/comm/communicator.hpp"    // broadcast
#include "gradus/core/element.hpp"         // element_name
#include "gradus/core/error.hpp"           // configuration_error
#include "gradus/core/index.hpp"           // index_t
#include "gradus/core/text.hpp"            // text
#include "gradus/optim/schedule.hpp"       // optim::schedule
#include "gradus/optim/segment.hpp"        // optim::segment
#include "gradus/optim/update_rule.hpp"    // explain_update_rule
#include "gradus/parallel/all_reduce.hpp"  // parallel::all_reduce
#include "gradus/train/detail/loop.hpp"    // evaluate, loop
#include "gradus/train/detail/parts.hpp"   // callback_of, evaluation_pass_of, training_pass_of
#include "gradus/train/report.hpp"         // epoch_report, evaluation_report, run_information

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
        segments_{detail::segments_of(network)},
        rule_{network.device(), rule, static_cast<index_t>(network.values().size())},
        synchronization_{options, communicator, {network.values(), network.gradients(), segments_}} {
    comm::group_of<Communicator> group{communicator};
    detail::require_same_composition(group, {.network = network.describe(),
                                             .element = element_name<element>,
                                             .layout = Network::layout_type::name,
                                             .seed = network.seed(),
                                             .rule = detail::describe_rule(rule),
                                             .synchronization = synchronization_.describe()});
    synchronization_.start();
  }

  trainer(const trainer&) = delete;  // the synchronization refers to the segments
  trainer& operator=(const trainer&) = delete;

  /// Trains for some epochs. May be called again: steps and epochs go on counting.
  /// @throws configuration_error when options make no sense or ranks differ
  /// @throws numeric_error when the loss is not finite, with the step and the layer where that was first seen
  template <class Loader, class... Callbacks>
  void fit(Loader& loader, const fit_options& options, Callbacks&&... callbacks) {
    const run_information run{.rank = communicator_->rank(),
                              .ranks = communicator_->size(),
                              .epochs = options.epochs,
                              .steps_per_epoch = loader.steps_per_epoch(),
                              .examples_per_epoch = loader.examples_per_epoch(),
                              .parameters = network_->parameter_count()};
    comm::group_of<Communicator> group{*communicator_};
    detail::require_same_fit(group, run, options.learning_rate, loader.description());
    step_update update{*this};
    detail::training_pass_of<Network, Loader> data{*network_, loader, update};
    loop_.fit(data, group, run, options.learning_rate, {adapter<Callbacks>{callbacks, this}.self()...});
  }

  /// The mean loss and accuracy over a loader's data set, with the examples shared as the loader shares them. With a
  /// sharded loader every rank must call it, all get the same report, and all take over the running statistics of rank
  /// 0, so that they evaluate one model.
  template <class Loader>
  [[nodiscard]] evaluation_report evaluate(Loader& loader) {
    const auto began = detail::clock::now();
    const bool shared = loader.ranks() > 1;
    if (shared && !network_->buffer_values().empty()) {
      comm::broadcast(*communicator_, network_->buffer_values(), 0).wait();
    }
    detail::evaluation_pass_of<Network, Loader> data{*network_, loader};
    comm::group_of<Communicator> group{*communicator_};
    return detail::evaluate(data, shared ? &group : nullptr, began);
  }

  [[nodiscard]] Network& network() noexcept { return *network_; }
  [[nodiscard]] Communicator& communicator() noexcept { return *communicator_; }
  /// Steps done since construction.
  [[nodiscard]] std::uint64_t steps() const noexcept { return loop_.steps(); }
  /// The optimizer's state, for checkpoints.
  [[nodiscard]] auto& update_state() noexcept { return rule_; }

 private:
  /// Brings the gradients together as the network completes them, and updates.
  class step_update final : public detail::synchronized_update {
   public:
    explicit step_update(trainer& owner) noexcept : owner_{&owner} {}

    void gradients_ready(std::size_t first, std::size_t count) override {
      owner_->synchronization_.gradients_ready(first, count);
    }
    void update(double rate) override {
      Network& network = *owner_->network_;
      owner_->synchronization_.finish([&](std::span<const optim::segment> ready) {
        owner_->rule_.update(network.device(), ready, network.values().data(), network.gradients().data(), rate);
      });
    }

   private:
    trainer* owner_;
  };

  /// The trainer is part of the type only where the callback asks for it.
  template <class Callback>
  using adapter = detail::callback_of<
      std::remove_reference_t<Callback>,
      std::conditional_t<detail::takes_trainer<std::remove_reference_t<Callback>, trainer>, trainer, void>>;

  Network* network_;
  Communicator* communicator_;
  std::vector<optim::segment> segments_;
  typename Update::template state<element, device> rule_;
  typename Synchronization::template state<element, Communicator> synchronization_;
  detail::loop loop_;
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
      throw configuration_error{"evaluate_every", "every at least 1 epoch", gradus::detail::text({every})};
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
