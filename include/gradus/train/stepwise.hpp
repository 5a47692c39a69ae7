// SPDX-License-Identifier: BSL-1.0
//
// Training in steps that the program asks for: trainer.start, train_steps, train_for.
#pragma once

#include <chrono>       // std::chrono::nanoseconds
#include <cstddef>      // std::size_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <optional>     // std::optional
#include <string>       // std::string
#include <tuple>        // std::get, std::tuple
#include <type_traits>  // std::remove_reference_t
#include <utility>      // std::forward, std::index_sequence, std::index_sequence_for

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/train/detail/trainer/loop.hpp"
#include "gradus/train/detail/trainer/parts.hpp"
#include "gradus/train/detail/trainer/stepwise.hpp"
#include "gradus/train/detail/trainer/trainer_base.hpp"
#include "gradus/train/execution.hpp"
#include "gradus/train/fit_options.hpp"
#include "gradus/train/report.hpp"
#include "gradus/train/trainer.hpp"

namespace gradus::train {

namespace detail {

/// A training that goes on step by step, with its loader and callbacks.
/// @tparam Callbacks  as a function takes them: references to those with a name
template <class Network, class Loader, class... Callbacks>
class session_of final : public any_session {
 public:
  session_of(trainer<Network>& of, Loader& loader, const stepwise_options& options, Callbacks&&... callbacks)
      : trainer_{&of},
        source_{shared(of, loader, options)},
        run_{of.run_of(*of.group_, loader, options.epochs)},
        learning_rate_{options.learning_rate},
        description_{loader.description()},
        where_{options.where},
        callbacks_{std::forward<Callbacks>(callbacks)...},
        replicas_{of.network()},
        progress_{of.progress(), *of.group_, properties(), agreement(std::index_sequence_for<Callbacks...>{})},
        data_{of.execution().training(*of.group_, of.network(), source_)} {}

  steps_report train(index_t most, std::optional<std::chrono::nanoseconds> budget, error_location where) override {
    where_ = where;
    return with_parts([&, this](const stepwise::parts& parts) { return progress_.train(parts, most, budget); });
  }
  void finish(error_location where) override {
    where_ = where;
    with_parts([this](const stepwise::parts& parts) { progress_.finish(parts); });
  }

 private:
  /// The loader, with this rank's part of each batch.
  static Loader& shared(trainer<Network>& of, Loader& loader, const stepwise_options& options) {
    of.share_batches(*of.group_, refuse_fit, loader, "trainer.start", options.where);
    return loader;
  }

  [[nodiscard]] fit_properties properties() {
    return {.run = run_,
            .learning_rate = learning_rate_,
            .loader = description_,
            .where = where_,
            .replicas = trainer_->end_->replicates() ? &replicas_ : nullptr};
  }

  template <std::size_t... Position>
  [[nodiscard]] std::string agreement(std::index_sequence<Position...> /*of*/) {
    return agreement_of(
        {typename trainer<Network>::template adapter<Callbacks>{std::get<Position>(callbacks_), trainer_}.self()...});
  }

  template <class Body>
  auto with_parts(const Body& body) {
    return with_parts(body, std::index_sequence_for<Callbacks...>{});
  }
  template <class Body, std::size_t... Position>
  auto with_parts(const Body& body, std::index_sequence<Position...> /*of*/) {
    const fit_properties fit = properties();
    return body(stepwise::parts{
        *data_,
        *trainer_->end_,
        *trainer_->group_,
        fit,
        {typename trainer<Network>::template adapter<Callbacks>{std::get<Position>(callbacks_), trainer_}.self()...}});
  }

  trainer<Network>* trainer_;
  loader_source<Network, Loader> source_;
  run_information run_;
  optim::schedule learning_rate_;
  std::string description_;
  error_location where_;
  std::tuple<Callbacks...> callbacks_;
  replicas_of<Network> replicas_;
  stepwise progress_;
  std::unique_ptr<batch_execution<Network>> data_;
};

}  // namespace detail

/// What trainer.start calls.
template <class Network, class Loader, class... Callbacks>
[[nodiscard]] std::unique_ptr<detail::any_session> start_training(trainer<Network>& of, Loader& loader,
                                                                  const stepwise_options& options,
                                                                  Callbacks&&... callbacks) {
  return at_call(options.where, [&] {
    return std::make_unique<detail::session_of<Network, Loader, Callbacks...>>(of, loader, options,
                                                                               std::forward<Callbacks>(callbacks)...);
  });
}

}  // namespace gradus::train
