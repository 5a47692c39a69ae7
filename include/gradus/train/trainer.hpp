// SPDX-License-Identifier: BSL-1.0
//
// The trainer: composes a network, an update rule, a strategy and a loader into epochs of steps.
#pragma once

#include <chrono>           // std::chrono::nanoseconds
#include <concepts>         // std::derived_from
#include <memory>           // std::unique_ptr
#include <source_location>  // std::source_location
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <type_traits>      // std::conditional_t, std::is_same_v, std::remove_cvref_t, std::remove_reference_t
#include <utility>          // std::forward, std::move

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/watch.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/reference.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/update_rule.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/one_process.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/train/detail/trainer/parts.hpp"
#include "gradus/train/detail/trainer/recipe.hpp"
#include "gradus/train/detail/trainer/trainer_base.hpp"
#include "gradus/train/evaluate_every.hpp"
#include "gradus/train/execution.hpp"
#include "gradus/train/fit_options.hpp"
#include "gradus/train/optimizer_step.hpp"
#include "gradus/train/report.hpp"

namespace gradus::trace {
class recorder;
}  // namespace gradus::trace

namespace gradus::train {

namespace detail {

/// Ranks reach each other's memory, and the parameters are in it.
template <class Network, class Communicator>
concept shares_memory = has_host_memory<typename Network::device_type> &&
    comm::makes_windows<Communicator, parameter_element_t<typename Network::element_type>>;

}  // namespace detail

/// The strategy of a trainer that is given none: of one process (comm::self) parallel::one_process; where ranks reach
/// each other's memory and the rule says that it is elementwise, parallel::sharded_update, in one pass over that
/// memory; else parallel::all_reduce. Both leave the same sums, values and state of the rule on all ranks.
template <class Network, class Update, class Communicator>
using default_strategy = std::conditional_t<
    std::is_same_v<Communicator, comm::self>, parallel::one_process,
    std::conditional_t<detail::shares_memory<Network, Communicator> && optim::elementwise_update_rule<Update>,
                       parallel::sharded_update, parallel::all_reduce>>;

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
/// type is written, and std::make_unique makes one that can be passed on:
///
///   train::trainer<network> trainer{net, optim::sgd{}};  // network: decltype of net
///   auto passed_on = std::make_unique<train::trainer<network>>(net, optim::sgd{});
///
/// A program that chooses rule and strategy when it runs makes them itself, with what ends a step (optimizer_step),
/// compares the ranks and starts:
///
/// @code
///   const auto parameters = train::trained_parameters_of(net);
///   optim::parameter_update_of<optim::sgd, float> rule{device, {.momentum = 0.9}, elements};
///   parallel::all_reduce::state<float> strategy{{}, world, parameters.flat()};
///   comm::link_of all{world};
///   train::optimizer_step_of<float> end{parameters, rule, strategy, all};
///   end.start();
///   train::trainer trainer{net, end, end.group()};
/// @endcode
///
/// A callback is any object with some of the members
///   on_start(const run_information&)
///   on_step(const step_report&) or on_step(trainer&, const step_report&)
///   on_epoch(epoch_report&) or on_epoch(trainer&, epoch_report&), which may return flow; on all ranks, in order
///   on_finish()
///   std::string agreement() const, a text that fit compares between ranks before its first step
/// which return nothing else and may evaluate, on fit's loader too, or a function of a const step_report& or an
/// epoch_report&: [](const epoch_report& epoch) { ... }. What would never be called does not compile. Networks of
/// float16 are best trained with the loss scaled (optim::update). A step allocates nothing and sends nothing but what
/// the strategy sends. Over a communicator of trace::traced the steps are traced (train/traced.hpp); given a
/// captured_network (train/captured_network.cuh), a step on a GPU is a graph that is launched.
template <class Network>
class trainer final : public detail::trainer_base<Network> {
  using base = detail::trainer_base<Network>;
  using element = parameter_element_t<typename Network::element_type>;
  using device = typename Network::device_type;
  using recipe = detail::training_recipe<Network>;

 public:
  trainer(const trainer&) = delete;             // to pass it on: std::make_unique<train::trainer<network>>(net, rule)
  trainer& operator=(const trainer&) = delete;  // stays where it is: make another one

  /// Compares the ranks' networks and rules, and makes all parameters those of rank 0.
  /// @throws configuration_error if the network is not compiled, the rule is invalid, or ranks differ
  template <class Update, class Communicator, class Strategy = default_strategy<Network, Update, Communicator>>
  trainer(borrowed<Network> network, const Update& rule, Communicator& communicator, const Strategy& options = {},
          error_location where = error_location::current()) requires(!std::is_const_v<Communicator> &&
                                                                     !std::derived_from<Update, optimizer_step>)
      : trainer{network, detail::recipe_of<Network>(rule, communicator, options),
                detail::execution_of<Network>(options), where} {}

  /// Trains in one process: the communicator is a comm::self of the trainer's own.
  /// @throws configuration_error if the network is not compiled or the rule is invalid
  template <class Update>
  trainer(borrowed<Network> network, const Update& rule, error_location where = error_location::current())
      : trainer{network,
                detail::recipe_of<Network>(rule, comm::self{}, default_strategy<Network, Update, comm::self>{}),
                std::make_unique<train::execution<Network>>(), where} {}

  /// With a rule and a strategy that the program has made; network, end and group must outlive it.
  /// @param group  the ranks that train, as of optimizer_step_of::group()
  /// @param how    how a rank computes its part of a batch
  trainer(Network& network, optimizer_step& end, comm::link& group,
          std::unique_ptr<train::execution<Network>> how = std::make_unique<train::execution<Network>>())
      : base{network, std::move(how)}, end_{&end}, group_{&group} {}

  template <class Update, class Communicator, class Strategy = parallel::all_reduce>
  requires(!std::derived_from<Communicator, std::source_location> && !std::derived_from<Update, optimizer_step>)
      trainer(borrowed<Network>, const Update&,  // gradus: the third argument is a communicator with a name, not const
              const Communicator&, const Strategy& = {})
  = delete;

  /// Goes on from the newest valid checkpoint of a folder, or of several; without one the training begins. The program
  /// includes gradus/checkpoint.hpp, which has resume_training. Called by all ranks, before fit.
  /// @return  what was found, and which newer files were skipped and why
  /// @throws what restore throws if the checkpoint is one of another training
  template <class Folders>
  auto resume(const Folders& folders, error_location where = error_location::current()) {
    static_assert(
        requires(trainer & self) { resume_training(self, folders, where); },
        "gradus: trainer.resume takes a folder or a list of folders: include gradus/checkpoint.hpp");
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
    fit_watched(watch_.get(), loader, options, callbacks...);
  }

  /// Begins a training that goes on in calls of train_steps and train_for, between which the program does other things.
  /// The program includes gradus/train/stepwise.hpp. Called by all ranks. The loader must outlive it, and so must
  /// callbacks with a name; others are moved and kept. train::checkpoints cannot be moved: it has a name. It ends by
  /// finish, and with another start or fit.
  /// @throws configuration_error when options make no sense, or ranks differ
  template <class Loader, class... Callbacks>
  void start(Loader&& loader, const stepwise_options& options, Callbacks&&... callbacks) {
    static_assert(detail::explain_loader<std::remove_reference_t<Loader>, Network>());
    static_assert((detail::explain_callback<std::remove_reference_t<Callbacks>, trainer>() && ...));
    static_assert((detail::explain_kept<Callbacks>() && ...));
    static_assert(
        requires { start_training(*this, loader, options, std::forward<Callbacks>(callbacks)...); },
        "gradus: to train step by step, include gradus/train/stepwise.hpp");
    if constexpr ((detail::keepable<Callbacks> && ...)) {
      finish(options.where);
      session_ = start_training(*this, borrowed(std::forward<Loader>(loader)).get(), options,
                                std::forward<Callbacks>(callbacks)...);
    }
  }
  /// Makes `steps` steps of the training that start has begun; fewer if it ends. Then the weights are those of the last
  /// one, for any use. Called by all ranks with the same number.
  /// @throws what fit throws; then the training has ended
  steps_report train_steps(index_t steps, error_location where = error_location::current()) {
    return detail::going_on(session_, "trainer.train_steps", where).train(steps, {}, where);
  }
  /// The same for a time: begins steps until it is over on a rank, so it takes at most the time of a step longer.
  /// Called by all ranks. They compare after each step whether it is over, so all make the same steps; ranks that train
  /// independently of each other do not.
  /// @param budget  without one, no step is made
  steps_report train_for(std::chrono::nanoseconds budget, error_location where = error_location::current()) {
    return detail::going_on(session_, "trainer.train_for", where).train(-1, budget, where);
  }
  /// Ends the training that start has begun, if there is one: callbacks get on_finish. Called by all ranks.
  void finish(error_location where = error_location::current()) {
    if (const auto ended = std::move(session_); ended != nullptr) {
      ended->finish(where);
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
      detail::metric_evaluation<Network, Metrics> measured{*group_, this->network(), metrics, where};
      return measured.finish(evaluate_with(loader, where, measured.observer()));
    });
  }

  // What the trainer has made. A trainer that was made with an optimizer_step refuses: the program has them.

  /// The ranks of the communicator that the trainer was made with, or of its own comm::self.
  [[nodiscard]] comm::any_communicator& communicator(error_location where = error_location::current()) {
    return made(where).ranks;
  }
  /// The rule with its state as of now. The state is empty if the strategy updates on servers, as parameter_server
  /// does. Where ranks update parts and exchange messages (sharded_update) it is whole only at the end of epochs.
  [[nodiscard]] optim::parameter_update<element>& rule(error_location where = error_location::current()) {
    parts& own = made(where);
    at_call(where, [&] { own.strategy->fetch_state(); });
    return *own.rule;
  }
  /// The optimizer's state as of now, of the rule that the trainer was made with, whatever is done around it:
  /// update_state<optim::adam>().
  /// @throws configuration_error if it was made with another rule
  template <class Rule>
  [[nodiscard]] typename Rule::template state<element, device>& update_state(
      error_location where = error_location::current()) {
    optim::parameter_update<element>& all = rule(where);
    auto* const own = dynamic_cast<optim::parameter_update_of<Rule, element, device>*>(&all.innermost());
    if (own == nullptr) {
      detail::raise_other_type("trainer.update_state", all.name(), where);
    }
    return own->state();
  }
  /// Exchanges the averages of the weights (optim::update::average) with the weights, to evaluate or to save them; and
  /// back, before the next step. On all ranks, between calls of fit or in on_epoch. Until then fit and train::capture
  /// throw configuration_error.
  /// @throws configuration_error if the update keeps no average
  void swap_average(error_location where = error_location::current()) {
    at_call(where, [&, this] {
      optim::parameter_update<element>& all = rule(where);
      end_->complete_update();
      all.swap_average(this->network().trained_values());
      this->progress().averages_were_exchanged();
    });
  }
  /// What the strategy keeps: its plan, and what it has counted.
  [[nodiscard]] parallel::strategy<element>& strategy(error_location where = error_location::current()) {
    return *made(where).strategy;
  }
  /// The same, of the strategy that the trainer was made with: strategy<parallel::parameter_server>().
  /// @throws configuration_error if it was made with another strategy
  template <class Strategy>
  [[nodiscard]] parallel::strategy_state<Strategy, element>& strategy(
      error_location where = error_location::current()) {
    auto* const own = dynamic_cast<parallel::strategy_state<Strategy, element>*>(made(where).strategy.get());
    if (own == nullptr) {
      const std::string plan = own_->strategy->describe();
      detail::raise_other_type("trainer.strategy", std::string_view{plan}.substr(0, plan.find('\n')), where);
    }
    return *own;
  }

 private:
  friend struct detail::trainer_access;
  template <class TracedNetwork, class Loader, class... Callbacks>
  friend void fit_traced(trace::recorder& recorder, trainer<TracedNetwork>& of, Loader& loader,
                         const fit_options& options, Callbacks&&... callbacks);
  template <class, class, class...>
  friend class detail::session_of;

  /// What the trainer has made.
  struct parts {
    parts(comm::any_communicator of, std::unique_ptr<comm::rule_watch> by)
        : ranks{std::move(of)}, rule_watch{std::move(by)} {}

    comm::any_communicator ranks;
    std::unique_ptr<comm::rule_watch> rule_watch;
    trained_parameters<element> parameters;
    std::unique_ptr<optim::parameter_update<element>> rule;
    std::unique_ptr<parallel::strategy<element>> strategy;
    std::unique_ptr<optimizer_step_of<element>> end;
  };

  /// fit, watched by `watch` unless it is null.
  template <class Loader, class... Callbacks>
  void fit_watched(detail::fit_watch<Network>* watch, Loader& loader, const fit_options& options,
                   Callbacks&... callbacks) {
    static_assert(detail::explain_loader<Loader, Network>());
    static_assert((detail::explain_callback<Callbacks, trainer>() && ...));
    if constexpr (detail::loader_for<Loader, Network>) {
      at_call(options.where, [&, this] {
        fit_with(loader, options, {adapter<Callbacks>{callbacks, this}.self()...}, watch);
      });
    }
  }

  template <class Loader>
  void fit_with(Loader& loader, const fit_options& options, detail::callback_list callbacks,
                detail::fit_watch<Network>* watch) {
    finish(options.where);
    this->share_batches(*group_, detail::refuse_fit, loader, "trainer.fit", options.where);
    detail::loader_source<Network, Loader> source{loader};
    const std::string description{loader.description()};
    fit_source(source, this->run_of(*group_, loader, options.epochs), description, options, callbacks, watch);
  }

  void fit_source(batch_source<Network>& source, const run_information& run, const std::string& loader,
                  const fit_options& options, detail::callback_list callbacks, detail::fit_watch<Network>* watch) {
    const auto fit = [&, this](optimizer_step& end, batch_source<Network>& batches, detail::callback_list list) {
      this->fit_on(*group_, end, batches, run, loader, options, list);
    };
    if (watch == nullptr) {
      fit(*end_, source, callbacks);
      return;
    }
    watch->fit(
        this->network(), *end_, source, this->steps(), callbacks,
        {&fit, [](const void* body, optimizer_step& end, batch_source<Network>& batches, detail::callback_list list) {
           (*static_cast<const decltype(fit)*>(body))(end, batches, list);
         }});
  }

  template <class Loader>
  evaluation_report evaluate_with(Loader& loader, error_location where,
                                  typename train::execution<Network>::observer_type* observer = nullptr) {
    end_->complete_update();
    this->share_batches(*group_, detail::fail_all, loader, "trainer.evaluate", where);
    detail::loader_source<Network, Loader> source{loader};
    return evaluate_source(source, where, observer);
  }

  evaluation_report evaluate_source(batch_source<Network>& source, error_location where,
                                    typename train::execution<Network>::observer_type* observer) {
    const struct seen {
      detail::fit_watch<Network>* watch;
      explicit seen(detail::fit_watch<Network>* by) : watch{by} {
        if (watch != nullptr) {
          watch->evaluation(true);
        }
      }
      ~seen() {
        if (watch != nullptr) {
          watch->evaluation(false);
        }
      }
    } scope{watch_.get()};
    return this->evaluate_on(*group_, source, where, observer);
  }

  trainer(borrowed<Network> network, recipe from, std::unique_ptr<train::execution<Network>> how, error_location where)
      : base{network, std::move(how)},
        own_{std::make_unique<parts>(std::move(from.ranks), std::move(from.rule_watch))},
        watch_{std::move(from.watch)} {
    at_call(where, [&, this] { make(network, from); });
  }

  GRADUS_COLD void make(Network& network, const recipe& from) {
    // Networks are compared before the strategy shares memory or sends parameters: ranks whose networks differ would
    // fail there, and say less.
    this->execution().prepare(network, own_->ranks);
    own_->parameters = trained_parameters_of<typename Network::element_type, device>(network);
    if (!from.on_servers) {  // servers take no part in it
      this->require_same(own_->ranks.link(), from.describe_rule(from.rule), std::string{from.strategy_name});
    }
    const auto elements = from.on_servers ? index_t{0} : static_cast<index_t>(own_->parameters.values.size());
    own_->rule = from.make_rule(from.rule, network.device(), elements);
    own_->strategy = from.make_strategy(from.strategy, own_->ranks, own_->parameters.flat());
    own_->end = std::make_unique<optimizer_step_of<element>>(own_->parameters, *own_->rule, *own_->strategy,
                                                             own_->ranks.link(), own_->rule_watch.get());
    end_ = own_->end.get();
    group_ = &own_->end->group();
    this->require_same(*group_, from.describe_rule(from.rule),
                       this->execution().describe() + own_->strategy->describe());
    if (watch_ != nullptr) {
      watch_->made(own_->strategy->transfer_buffers());
      watch_->made(this->execution().transfer_buffers());
    }
    own_->end->start();
  }

  /// What the trainer has made.
  /// @throws configuration_error if it was made with an optimizer_step
  [[nodiscard]] parts& made(error_location where) {
    if (own_ == nullptr) {
      detail::raise_not_made(where);
    }
    return *own_;
  }

  /// The trainer is part of the type only where the callback asks for it.
  template <class Callback>
  using adapter = detail::callback_of<
      std::remove_reference_t<Callback>,
      std::conditional_t<detail::asks_for_trainer<std::remove_reference_t<Callback>, trainer>, trainer, void>>;

  std::unique_ptr<parts> own_;  // null: made with an optimizer_step
  optimizer_step* end_ = nullptr;
  comm::link* group_ = nullptr;  // the ranks that train
  std::unique_ptr<detail::fit_watch<Network>> watch_;
  std::unique_ptr<detail::any_session> session_;  // null: no training goes on step by step
};

template <class Network, class Update, class... Others>
trainer(Network&&, const Update&, Others&&...) -> trainer<std::remove_cvref_t<Network>>;

}  // namespace gradus::train

#ifdef GRADUS_HAS_INSTANCES
GRADUS_COMPILED_CLASS_OF_NETWORK(::gradus::train::trainer)
#endif
