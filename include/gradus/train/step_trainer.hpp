// SPDX-License-Identifier: BSL-1.0
//
// A trainer whose strategy, update rule and communicator are chosen when the program runs.
#pragma once

#include <type_traits>  // std::conditional_t, std::remove_reference_t
#include <utility>      // std::move

#include "gradus/comm/link.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/train/detail/trainer/loop.hpp"
#include "gradus/train/detail/trainer/parts.hpp"
#include "gradus/train/detail/trainer/trainer_base.hpp"
#include "gradus/train/fit_options.hpp"
#include "gradus/train/report.hpp"
#include "gradus/train/step_end.hpp"

namespace gradus::train {

namespace detail {
struct watched_fit;
}  // namespace detail

/// Trains a network with a step_end that it is given. What `trainer` does with types, a program does by itself: it
/// makes the update rule's state, the strategy and the end of the step, compares the ranks and starts.
///
/// @code
///   const auto parameters = train::trained_parameters_of(net);
///   optim::parameter_update_of<optim::sgd, float> rule{device, {.momentum = 0.9}, elements};
///   parallel::all_reduce::state<float, comm::threads> strategy{{}, world, parameters.flat()};
///   comm::link_of all{world};
///   train::step_end_of<float> end{parameters, rule, strategy, all};
///   end.start();
///   train::step_trainer trainer{net, end, end.group()};
///   trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05});
/// @endcode
///
/// Rule and strategy may be std::unique_ptr of their base classes. Loaders and callbacks are those of `trainer`.
/// @tparam Parts  how a rank computes its part of a batch: at once, or in a pipeline (train::pipeline)
template <class Network, class Parts = detail::whole_parts>
class step_trainer final : public detail::trainer_base<Network, Parts> {
  using base = detail::trainer_base<Network, Parts>;

 public:
  /// Network, end and group must outlive it.
  /// @param group  the ranks that train, as of step_end_of::group()
  step_trainer(Network& network, step_end& end, comm::link& group, Parts parts = {}) noexcept
      : base{network, std::move(parts)}, end_{&end}, group_{&group} {}

  /// As trainer::fit.
  template <class Loader, class... Callbacks>
  void fit(Loader&& loader, const fit_options& options, Callbacks&&... callbacks) {
    static_assert(detail::explain_loader<std::remove_reference_t<Loader>, Network>());
    static_assert((detail::explain_callback<std::remove_reference_t<Callbacks>, step_trainer>() && ...));
    at_call(options.where, [&, this] {
      this->share_batches(*group_, detail::refuse_fit, loader, "trainer.fit", options.where);
      this->fit_on(*group_, *end_, loader, options, {adapter<Callbacks>{callbacks, this}.self()...});
    });
  }

  /// As trainer::evaluate.
  template <class Loader>
  [[nodiscard]] evaluation_report evaluate(Loader&& loader, error_location where = error_location::current()) {
    static_assert(detail::explain_loader<std::remove_reference_t<Loader>, Network>());
    return at_call(where, [&, this] {
      end_->complete_update();
      this->share_batches(*group_, detail::fail_all, loader, "trainer.evaluate", where);
      return this->evaluate_on(*group_, loader, where);
    });
  }

  /// As trainer::evaluate with metrics.
  template <class Loader, detail::no_location Metrics>
  [[nodiscard]] auto evaluate(Loader&& loader, const Metrics& metrics,
                              error_location where = error_location::current()) {
    static_assert(detail::explain_loader<std::remove_reference_t<Loader>, Network>());
    return at_call(where, [&, this] {
      end_->complete_update();
      detail::metric_evaluation<Network, Metrics> measured{*group_, this->network(), metrics, where};
      this->share_batches(*group_, detail::fail_all, loader, "trainer.evaluate", where);
      return measured.finish(this->evaluate_on(*group_, loader, where, measured.observer()));
    });
  }

 private:
  friend struct detail::watched_fit;
  friend struct detail::trainer_access;

  template <class Callback>
  using adapter =
      detail::callback_of<std::remove_reference_t<Callback>,
                          std::conditional_t<detail::asks_for_trainer<std::remove_reference_t<Callback>, step_trainer>,
                                             step_trainer, void>>;

  step_end* end_;
  comm::link* group_;
};

namespace detail {

/// A fit whose parts are recorded.
struct watched_fit {
  /// Calls watch(end, loader, callbacks, fit), which calls fit(end, loader, callbacks) with what it puts in their
  /// places.
  template <class Network, class Parts, class Loader, class Watch, class... Callbacks>
  static void run(step_trainer<Network, Parts>& trainer, Loader& loader, const fit_options& options, const Watch& watch,
                  Callbacks&... callbacks) {
    using trainer_type = step_trainer<Network, Parts>;
    at_call(options.where, [&] {
      trainer.share_batches(*trainer.group_, detail::refuse_fit, loader, "trainer.fit", options.where);
      const auto with_callbacks = [&](callback_list list) {
        watch(*trainer.end_, loader, list, [&](step_end& end, auto& input, callback_list watched) {
          trainer.fit_on(*trainer.group_, end, input, options, watched);
        });
      };
      with_callbacks({typename trainer_type::template adapter<Callbacks>{callbacks, &trainer}.self()...});
    });
  }
};

}  // namespace detail

}  // namespace gradus::train
