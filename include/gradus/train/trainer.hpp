// SPDX-License-Identifier: BSL-1.0
//
// The trainer: composes a network, an update rule, a strategy and a loader into epochs of steps.
#pragma once

#include <concepts>     // std::derived_from, std::same_as
#include <memory>       // std::unique_ptr
#include <string>       // std::string
#include <type_traits>  // std::conditional_t, std::remove_cvref_t, std::remove_reference_t

#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/watch.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/reference.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/update_rule.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/train/detail/trainer/parts.hpp"
#include "gradus/train/detail/trainer/trainer_base.hpp"
#include "gradus/train/fit_options.hpp"
#include "gradus/train/report.hpp"
#include "gradus/train/step_end.hpp"

namespace gradus::train {

namespace detail {

/// Ranks reach each other's memory, and the parameters are in it.
template <class Network, class Communicator>
concept shares_memory = has_host_memory<typename Network::device_type> &&
    comm::makes_windows<Communicator, parameter_element_t<typename Network::element_type>>;

/// The communicator of a trainer that is given none: of one process.
template <class Communicator>
struct own_communicator {
  [[nodiscard]] Communicator* choose(Communicator* given) noexcept { return given; }
};
template <>
struct own_communicator<comm::self> {
  comm::self one_process;
  [[nodiscard]] comm::self* choose(comm::self* given) noexcept { return given == nullptr ? &one_process : given; }
};

}  // namespace detail

/// The strategy of a trainer that is given none: where ranks reach each other's memory and the rule says that it
/// is elementwise, parallel::sharded_update, in one pass over that memory; else parallel::all_reduce. Both leave the
/// same sums, values and state of the rule on all ranks.
template <class Network, class Update, class Communicator>
using default_strategy =
    std::conditional_t<detail::shares_memory<Network, Communicator> && optim::elementwise_update_rule<Update>,
                       parallel::sharded_update, parallel::all_reduce>;

/// Trains a network on one or more ranks.
///
///   train::trainer trainer{net, optim::sgd{.momentum = 0.9}};         // in one process
///   train::trainer trainer{net, optim::sgd{.momentum = 0.9}, world};  // on the ranks of a communicator
///   trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05}, train::progress{});
///
/// Every rank has a network, a loader and a trainer; the ranks first compare what they are about to do and throw if
/// they differ. The trainer gives each rank its share of every batch (with parameter servers: each rank that trains),
/// so that the same program on any number of ranks computes the update that one process would compute. The network, the
/// communicator and the device must outlive the trainer. A trainer stays where it is made. As a member of a class its
/// types are written, and std::make_unique makes one that can be passed on:
///
///   train::trainer<network, optim::sgd> trainer{net, optim::sgd{}};  // network: decltype of net
///   auto passed_on = std::make_unique<train::trainer<network, optim::sgd>>(net, optim::sgd{});
///
/// A callback is any object with some of the members
///   on_start(const run_information&)
///   on_step(const step_report&) or on_step(trainer&, const step_report&)
///   on_epoch(epoch_report&) or on_epoch(trainer&, epoch_report&), which may return flow; on all ranks, in order
///   on_finish()
/// which return nothing else and may evaluate, on fit's loader too, or a function of a const step_report& or an
/// epoch_report&: [](const epoch_report& epoch) { ... }. What would never be called does not compile. Networks of
/// float16 are best trained with an optim::scaled_loss as the rule. A step allocates nothing and sends nothing but what
/// the strategy sends. Over a communicator of trace::traced the steps are traced (train/traced.hpp); given a
/// captured_network (train/captured_network.cuh), a step on a GPU is a graph that is launched.
template <class Network, class Update, class Communicator = comm::self,
          class Strategy = default_strategy<Network, Update, Communicator>>
class trainer final : public detail::trainer_base<Network, typename detail::parts_of_strategy<Strategy>::type> {
  static_assert(detail::explain_trainer_arguments<Network, Update, Communicator>());
  using base = detail::trainer_base<Network, typename detail::parts_of_strategy<Strategy>::type>;
  using element = parameter_element_t<typename Network::element_type>;
  using device = typename Network::device_type;
  static_assert(optim::explain_update_rule<Update, element, device>());
  static_assert(parallel::explain_strategy<Strategy, element, Communicator>());
  using strategy_state = parallel::strategy_state<Strategy, element, Communicator>;
  static constexpr bool elsewhere = std::derived_from<strategy_state, parallel::server_strategy<element>>;
  static_assert(!(elsewhere && optim::scales_loss<Update>),
                "gradus: optim::scaled_loss needs the gradients of all parameters on the rank that updates: train with "
                "parallel::all_reduce, not with parameter servers");
  static_assert(
      !std::derived_from<strategy_state, parallel::partial_strategy<element>> || optim::elementwise_update_rule<Update>,
      "gradus: parallel::sharded_update updates parts of parameters on each rank; this update rule needs whole "
      "ones or all gradients, as optim::lars and optim::scaled_loss do, or does not say that it does not (static "
      "constexpr bool elementwise = true): train with parallel::all_reduce");

 public:
  trainer(const trainer&) = delete;  // to pass it on: std::make_unique<train::trainer<network, optim::sgd>>(net, rule)
  trainer& operator=(const trainer&) = delete;  // stays where it is: make another one

  /// Compares the ranks' networks and rules, and makes all parameters those of rank 0.
  /// @throws configuration_error if the network is not compiled, the rule is invalid, or ranks differ
  trainer(Network& network, const Update& rule, Communicator& communicator, const Strategy& options = {},
          error_location where = error_location::current()) requires(!std::is_const_v<Network> &&
                                                                     !std::is_const_v<Communicator>)
      : trainer{&network, rule, &communicator, options, where} {}

  /// Trains in one process: the communicator is a comm::self of the trainer's own.
  /// @throws configuration_error if the network is not compiled or the rule is invalid
  trainer(Network& network, const Update& rule,
          error_location where = error_location::current()) requires(!std::is_const_v<Network> &&
                                                                     std::same_as<Communicator, comm::self>)
      : trainer{&network, rule, nullptr, {}, where} {}

  /// The network and the communicator must outlive the trainer.
  template <class NetworkArgument, class CommunicatorArgument>
  requires detail::not_kept_by_trainer<NetworkArgument, CommunicatorArgument> trainer(
      NetworkArgument&& network, const Update& rule, CommunicatorArgument&& communicator, const Strategy& options = {})
      : trainer{const_cast<Network&>(network), rule, const_cast<Communicator&>(communicator), options} {
    static_assert(detail::explain_kept_by_trainer<NetworkArgument, CommunicatorArgument>());
  }

  /// The network must outlive the trainer.
  template <class NetworkArgument>
  requires(detail::not_kept_by_trainer<NetworkArgument, comm::self&>&& std::same_as<Communicator, comm::self>)
      trainer(NetworkArgument&& network, const Update& rule)
      : trainer{const_cast<Network&>(network), rule} {
    static_assert(detail::explain_kept_by_trainer<NetworkArgument, comm::self&>());
  }

  /// Goes on from the newest valid checkpoint of a folder, or of several; without one the training begins. The program
  /// includes gradus/train/checkpoints.hpp, which has resume_training. Called by all ranks, before fit.
  /// @return  what was found, and which newer files were skipped and why
  /// @throws what restore throws if the checkpoint is one of another training
  template <class Folders>
  auto resume(const Folders& folders, error_location where = error_location::current()) {
    static_assert(
        requires(trainer & self) { resume_training(self, folders, where); },
        "gradus: trainer.resume takes a folder or a list of folders: include gradus/train/checkpoints.hpp");
    return resume_training(*this, folders, where);
  }

  /// Trains for some epochs. May be called again: steps and epochs go on counting. After an error in the arguments a
  /// corrected call works; with one rank after every error. With several, an error while they train ends the
  /// communicator: no rank may wait for one that has left.
  /// @throws configuration_error when options make no sense, ranks differ, or the loader was made for another part of
  ///         the batches than this rank's
  /// @throws numeric_error when the loss is not finite, with the step and the input, target, parameter or layer where
  ///         that was first seen
  template <class Loader, class... Callbacks>
  void fit(Loader&& loader, const fit_options& options,  // {.epochs = 2, .learning_rate = 0.05}
           Callbacks&&... callbacks) {
    static_assert(detail::explain_loader<std::remove_reference_t<Loader>, Network>());
    static_assert((detail::explain_callback<std::remove_reference_t<Callbacks>, trainer>() && ...));
    if constexpr (detail::loader_for<std::remove_reference_t<Loader>, Network>) {
      at_call(options.where, [&, this] { fit_with(loader, options, {adapter<Callbacks>{callbacks, this}.self()...}); });
    }
  }

  /// Options come before callbacks.
  template <class Loader, class... Others>
  requires(!detail::first_is_fit_options<Others...>) void fit(Loader&& /*loader*/, Others&&... /*others*/) {
    static_assert(sizeof(Loader) == 0,
                  "gradus: the second argument of fit is its options: write trainer.fit(loader, {.epochs = 2, "
                  ".learning_rate = 0.05}, train::progress{});");
  }

  /// The mean loss and accuracy over a loader's data set. Every rank that trains must call it: each computes its share
  /// of the batches, all get the same report, and all take over the running statistics of rank 0, so that they evaluate
  /// one model.
  /// @throws configuration_error when the loader was made for another part of the batches than this rank's
  template <class Loader>
  [[nodiscard]] evaluation_report evaluate(Loader&& loader, error_location where = error_location::current()) {
    static_assert(detail::explain_loader<std::remove_reference_t<Loader>, Network>());
    if constexpr (detail::loader_for<std::remove_reference_t<Loader>, Network>) {
      return at_call(where, [&, this] { return evaluate_with(loader, where); });
    } else {
      return {};
    }
  }

  /// As evaluate, and the metrics of the same pass (gradus/train/metrics.hpp): a metric, or a metrics::list of them.
  ///
  ///   const auto [report, top5, matrix] =
  ///       trainer.evaluate(loader, metrics::list{metrics::top_k{5}, metrics::confusion_matrix{}});
  ///
  /// Scores and targets are copied to the host's memory, as double. Examples count once, whatever the number of ranks,
  /// and as often as their weight says. All ranks get the same results.
  /// @return a tuple of the report and the result of each metric
  /// @throws shape_error, configuration_error when a metric cannot compare the scores with the targets, or ranks have
  ///         other metrics
  template <class Loader, detail::no_location Metrics>
  [[nodiscard]] auto evaluate(Loader&& loader, const Metrics& metrics,
                              error_location where = error_location::current()) {
    static_assert(detail::explain_loader<std::remove_reference_t<Loader>, Network>());
    return at_call(where, [&, this] {
      detail::metric_evaluation<Network, Metrics> measured{step_.group(), this->network(), metrics, where};
      return measured.finish(evaluate_with(loader, where, measured.observer()));
    });
  }

  /// The communicator of the ranks; without one in the constructor, the trainer's own comm::self.
  [[nodiscard]] Communicator& communicator() noexcept { return *communicator_; }
  /// The optimizer's state as of now, for checkpoints. Empty if the strategy updates elsewhere, as parameter
  /// servers do. Where ranks update parts and exchange messages (sharded_update) it is whole only at the end of epochs.
  [[nodiscard]] typename Update::template state<element, device>& update_state() {
    strategy_.fetch_state();
    return rule_.state();
  }
  /// What the strategy keeps, of the type Strategy::state<...>: its plan, and what it has counted.
  [[nodiscard]] strategy_state& strategy() noexcept { return strategy_; }

 private:
  friend struct detail::trainer_access;
  static constexpr bool watched = detail::watched_communicator<Communicator>;
  [[nodiscard]] auto watch() {
    return detail::training_watch<typename Communicator::recorder_type>{communicator_->recorder()};
  }

  template <class Loader>
  void fit_with(Loader& loader, const fit_options& options, detail::callback_list callbacks) {
    this->share_batches(step_.group(), detail::refuse_fit, loader, "trainer.fit", options.where);
    if constexpr (watched) {
      watch().fit(this->network(), step_, loader, this->steps(), callbacks,
                  [&, this](step_end& update, auto& input, detail::callback_list list) {
                    this->fit_on(step_.group(), update, input, options, list);
                  });
    } else {
      this->fit_on(step_.group(), step_, loader, options, callbacks);
    }
  }

  template <class Loader>
  evaluation_report evaluate_with(Loader& loader, error_location where,
                                  typename detail::batches_of<Network, Loader>::observer_type* observer = nullptr) {
    step_.complete_update();
    this->share_batches(step_.group(), detail::fail_all, loader, "trainer.evaluate", where);
    if constexpr (watched) {
      const auto seen = watch().evaluation();
      return this->evaluate_on(step_.group(), loader, where, observer);
    } else {
      return this->evaluate_on(step_.group(), loader, where, observer);
    }
  }

  /// @param communicator  null: one of its own
  GRADUS_COLD trainer(Network* network, const Update& rule, Communicator* communicator, const Strategy& options,
                      error_location where) try
      : base{*network, detail::parts_of_strategy<Strategy>::make(options)},
        communicator_{own_.choose(communicator)},
        all_{*communicator_},
        rule_watch_{comm::rule_watch_of(*communicator_)},
        parameters_{compared_parameters(*network, rule, *communicator_)},
        rule_{network->device(), rule, elements_of_rule()},
        strategy_{options, *communicator_, parameters_.flat()},
        step_{parameters_, rule_of_step(), strategy_, all_, rule_watch_.get()} {
    this->require_same(step_.group(), rule.description(), strategy_.describe());
    if constexpr (watched) {
      watch().made(strategy_.travelling());
      if constexpr (requires { this->parts().travelling(); }) {  // parts send, too
        watch().made(this->parts().travelling());
      }
    }
    step_.start();
  } catch (error& failure) {
    failure.location_at_call(where);
  }

  [[nodiscard]] index_t elements_of_rule() const noexcept {
    return elsewhere ? 0 : static_cast<index_t>(parameters_.values.size());
  }

  /// The rule, or what the strategy puts around it.
  [[nodiscard]] optim::parameter_update<element>& rule_of_step() {
    if constexpr (requires { strategy_.rule_of_step(rule_); }) {
      return strategy_.rule_of_step(rule_);
    } else {
      return rule_;
    }
  }

  /// Networks are compared before the strategy shares memory or sends parameters: ranks whose networks differ
  /// would fail there, and say less.
  auto compared_parameters(Network& network, const Update& rule, Communicator& communicator) {
    this->parts().prepare(network, communicator);
    auto parameters = trained_parameters_of<typename Network::element_type, device>(network);
    if constexpr (!elsewhere) {  // servers take no part in it
      comm::link_of<Communicator> group{communicator};
      this->require_same(group, rule.description(), std::string{Strategy::name});
    }
    return parameters;
  }

  /// The trainer is part of the type only where the callback asks for it.
  template <class Callback>
  using adapter = detail::callback_of<
      std::remove_reference_t<Callback>,
      std::conditional_t<detail::asks_for_trainer<std::remove_reference_t<Callback>, trainer>, trainer, void>>;

  [[no_unique_address]] detail::own_communicator<Communicator> own_;
  Communicator* communicator_;
  comm::link_of<Communicator> all_;
  std::unique_ptr<comm::rule_watch> rule_watch_;
  trained_parameters<element> parameters_;
  optim::parameter_update_of<Update, element, device> rule_;
  strategy_state strategy_;
  step_end_of<element> step_;
};

template <class Network, class Update>
trainer(Network&&, const Update&) -> trainer<std::remove_cvref_t<Network>, Update, comm::self>;
template <class Network, class Update, class Communicator>
requires detail::not_kept_by_trainer<Network, Communicator> trainer(Network&&, const Update&, Communicator&&)
->trainer<std::remove_cvref_t<Network>, Update, std::remove_cvref_t<Communicator>>;
template <class Network, class Update, class Communicator, class Strategy>
requires detail::not_kept_by_trainer<Network, Communicator> trainer(Network&&, const Update&, Communicator&&,
                                                                    const Strategy&)
->trainer<std::remove_cvref_t<Network>, Update, std::remove_cvref_t<Communicator>, Strategy>;

/// A callback that evaluates on another data set every `every` epochs, and after the last; it fills
/// epoch_report::evaluation, so put it before callbacks that show it.
///
/// The ranks share the work, and all get the result.
template <class Loader>
class evaluate_every {
 public:
  /// @param loader  batches of the other data set; it must outlive the callback
  /// @param every   epochs from one evaluation to the next
  /// @throws configuration_error if `every` is below 1
  explicit evaluate_every(Loader& loader, int every = 1, error_location where = error_location::current())
      : loader_{&loader}, every_{every} {
    if (every < 1) {
      raise<configuration_error>("evaluate_every", "every at least 1 epoch", {every}, {}, where);
    }
  }
  /// The loader must outlive the callback.
  template <class Argument>
  requires not_kept<Argument, Loader>
  explicit evaluate_every(Argument&& loader, int every = 1) : evaluate_every{const_cast<Loader&>(loader), every} {
    static_assert(explain_kept<Argument>());
  }

  /// Sets report.evaluation after each `every` epochs and after the last one. All ranks that train call it.
  template <class Trainer>
  void on_epoch(Trainer& trainer, epoch_report& report) {
    const bool due = (report.epoch + 1) % every_ == 0 || report.epoch + 1 == report.epochs;
    if (due) {
      report.evaluation = trainer.evaluate(*loader_);
    }
  }

 private:
  Loader* loader_;
  int every_;
};

template <class Loader>
requires(!std::is_lvalue_reference_v<Loader>) evaluate_every(Loader&&, int = 1)
->evaluate_every<Loader>;

}  // namespace gradus::train
