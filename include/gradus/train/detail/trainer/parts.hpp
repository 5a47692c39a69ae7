// SPDX-License-Identifier: BSL-1.0
//
// The typed parts of a training behind the interfaces of its loops.
#pragma once

#include <concepts>     // std::convertible_to
#include <cstdint>      // std::uint64_t
#include <optional>     // std::optional
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_class_v, std::is_const_v, std::is_convertible_v, std::is_move_constructible_v, ...
#include <utility>      // std::declval

#include "gradus/comm/agreement.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/network/base.hpp"
#include "gradus/nn/targets.hpp"
#include "gradus/train/callback_state.hpp"
#include "gradus/train/detail/trainer/loop.hpp"
#include "gradus/train/execution.hpp"
#include "gradus/train/report.hpp"

namespace gradus::train::detail {

/// Begins an epoch at batch `first`.
template <class Loader>
void start_epoch_at(Loader& loader, std::uint64_t epoch, index_t first) {
  if constexpr (requires { loader.start_epoch(epoch, first); }) {
    loader.start_epoch(epoch, first);
  } else {  // a loader of the program that cannot leave batches out
    loader.start_epoch(epoch);
    for (index_t i = 0; i < first; ++i) {
      static_cast<void>(loader.next());
    }
  }
}

/// What a batch is compared with. A loader of the program may have labels only.
template <class Network, class Batch>
[[nodiscard]] auto targets_of(const Batch& batch) {
  nn::targets<typename Network::element_type, typename Network::device_type> all{batch.labels};
  if constexpr (requires { batch.targets; }) {
    all.values = batch.targets;
  }
  if constexpr (requires { batch.weights; }) {
    all.weights = batch.weights;
  }
  return all;
}

/// The batches of a loader.
template <class Network, class Loader>
class loader_source final : public batch_source<Network> {
 public:
  explicit loader_source(Loader& loader) noexcept : loader_{&loader} {}

  void start_epoch(std::uint64_t epoch, index_t first) override { start_epoch_at(*loader_, epoch, first); }

  const network_batch<Network>* next() override {
    const auto* const given = loader_->next();
    if (given == nullptr) {
      return nullptr;
    }
    return &batch_.emplace(network_batch<Network>{.images = given->images,
                                                  .targets = targets_of<Network>(*given),
                                                  .first_example = given->first_example,
                                                  .global_examples = given->global_examples});
  }

 private:
  Loader* loader_;
  std::optional<network_batch<Network>> batch_;
};

// What training asks of a loader.

template <class Loader>
concept gives_batches = requires(std::remove_const_t<Loader>& loader, std::uint64_t epoch) {
  loader.start_epoch(epoch);
  loader.next()->images.extents();
  loader.next()->labels.size();
  loader.steps_per_epoch();
};

template <class Loader>
using images_of = std::remove_cvref_t<decltype(std::declval<std::remove_const_t<Loader>&>().next()->images)>;

template <class Loader, class Network>
concept loader_for = gives_batches<Loader> && !std::is_const_v<Loader> &&
                     std::is_convertible_v<images_of<Loader>, typename Network::const_view>;

/// Says why a network cannot be trained on what a loader gives. Always true when it compiles.
template <class Loader, class Network>
consteval bool explain_loader() {
  static_assert(gives_batches<Loader>,
                "gradus: not a loader: fit and evaluate take batches, as of data::loader<float, nhwc> loader{device, "
                "images, {.global_batch_size = 64}};");
  if constexpr (gives_batches<Loader>) {
    using images = images_of<Loader>;
    using view = typename Network::const_view;
    static_assert(!std::is_const_v<Loader>,
                  "gradus: the loader is const, but each batch changes it: write auto& loader, not const auto& loader");
    static_assert(std::is_same_v<typename images::value_type, typename view::value_type>,
                  "gradus: the loader gives images of another element type than the network's: write "
                  "data::loader<Element, Layout> loader and nn::network<Element, Layout> net with the same Element");
    static_assert(std::is_same_v<typename images::layout_type, typename view::layout_type>,
                  "gradus: the loader gives images of another layout than the network's: write data::loader<Element, "
                  "Layout> loader and nn::network<Element, Layout> net with the same Layout");
    static_assert(std::is_same_v<typename images::device_type, typename view::device_type>,
                  "gradus: the loader gives images on another device than the network's: write data::loader<Element, "
                  "Layout, Device> loader and nn::network<Element, Layout, Device> net with the same Device");
  }
  return true;
}

/// Says which argument of a trainer is of the wrong kind. Always true when it compiles.
template <class Update, class Communicator>
consteval bool explain_trainer_arguments() {
  static_assert(!comm::has_ranks<Update>,
                "gradus: the second argument of a trainer is a communicator and no update rule: write train::trainer "
                "trainer{net, optim::sgd{}, world};");
  static_assert(std::is_class_v<Update>,
                "gradus: the second argument of a trainer is no update rule: write train::trainer trainer{net, "
                "optim::sgd{.momentum = 0.9}, world}; the learning rate is given to fit");
  static_assert(comm::has_ranks<Communicator>,
                "gradus: the third argument of a trainer is no communicator: write comm::self world; train::trainer "
                "trainer{net, optim::sgd{}, world};");
  return true;
}

template <class Callback, class Trainer>
concept takes_trainer = requires(Callback& callback, Trainer& trainer, epoch_report& report) {
  callback.on_epoch(trainer, report);
};

template <class Callback, class Trainer>
concept takes_trainer_in_step = requires(Callback& callback, Trainer& trainer, const step_report& step) {
  callback.on_step(trainer, step);
};
/// A callback that is given the trainer.
template <class Callback, class Trainer>
concept asks_for_trainer = takes_trainer<Callback, Trainer> || takes_trainer_in_step<Callback, Trainer>;

template <class Callback>
concept called_with_step = requires(Callback& callback, const step_report& step) {
  callback(step);
};
template <class Callback>
concept called_with_epoch = requires(Callback& callback, epoch_report& report) {
  callback(report);
};

template <class Callback>
concept takes_start = requires(Callback& callback, const run_information& run) {
  callback.on_start(run);
};
template <class Callback>
concept takes_step = requires(Callback& callback, const step_report& step) {
  callback.on_step(step);
};
template <class Callback>
concept takes_epoch = requires(Callback& callback, epoch_report& report) {
  callback.on_epoch(report);
};
template <class Callback>
concept takes_finish = requires(Callback& callback) {
  callback.on_finish();
};
template <class Callback>
concept saves_state = requires(Callback& callback, callback_state& state) {
  callback.save_state(state);
};
template <class Callback>
concept loads_state = requires(Callback& callback, callback_state& state) {
  callback.load_state(state);
};
template <class Callback>
concept has_agreement = requires(const Callback& callback) {
  { callback.agreement() } -> std::convertible_to<std::string>;
};

// Members of these names, if there is exactly one of the name.
template <class Callback>
concept names_on_start = requires {
  &Callback::on_start;
};
template <class Callback>
concept names_on_step = requires {
  &Callback::on_step;
};
template <class Callback>
concept names_on_epoch = requires {
  &Callback::on_epoch;
};
template <class Callback>
concept names_on_finish = requires {
  &Callback::on_finish;
};

/// What a call gives back is taken: nothing, or of an epoch whether to go on.
template <class Result>
inline constexpr bool nothing_or_flow = std::is_void_v<Result> || std::is_same_v<Result, flow>;

/// What the trainer gets back from a callback's function of a step, of an epoch and of others.
template <class Callback, class Trainer>
auto result_of_step(Callback& callback, Trainer& trainer, const step_report& step) {
  if constexpr (takes_trainer_in_step<Callback, Trainer>) {
    return std::type_identity<decltype(callback.on_step(trainer, step))>{};
  } else if constexpr (takes_step<Callback>) {
    return std::type_identity<decltype(callback.on_step(step))>{};
  } else if constexpr (called_with_step<Callback> && !called_with_epoch<Callback>) {
    return std::type_identity<decltype(callback(step))>{};
  } else {
    return std::type_identity<void>{};
  }
}
template <class Callback, class Trainer>
auto result_of_epoch(Callback& callback, Trainer& trainer, epoch_report& report) {
  if constexpr (takes_trainer<Callback, Trainer>) {
    return std::type_identity<decltype(callback.on_epoch(trainer, report))>{};
  } else if constexpr (takes_epoch<Callback>) {
    return std::type_identity<decltype(callback.on_epoch(report))>{};
  } else if constexpr (called_with_epoch<Callback> && !called_with_step<Callback>) {
    return std::type_identity<decltype(callback(report))>{};
  } else {
    return std::type_identity<void>{};
  }
}
template <class Callback>
auto result_of_others(Callback& callback, const run_information& run) {
  if constexpr (takes_start<Callback>) {
    if constexpr (!std::is_void_v<decltype(callback.on_start(run))>) {
      return std::type_identity<decltype(callback.on_start(run))>{};
    } else if constexpr (takes_finish<Callback>) {
      return std::type_identity<decltype(callback.on_finish())>{};
    } else {
      return std::type_identity<void>{};
    }
  } else if constexpr (takes_finish<Callback>) {
    return std::type_identity<decltype(callback.on_finish())>{};
  } else {
    return std::type_identity<void>{};
  }
}
template <class Callback, class Trainer>
using step_result = typename decltype(result_of_step(std::declval<Callback&>(), std::declval<Trainer&>(),
                                                     std::declval<const step_report&>()))::type;
template <class Callback, class Trainer>
using epoch_result = typename decltype(result_of_epoch(std::declval<Callback&>(), std::declval<Trainer&>(),
                                                       std::declval<epoch_report&>()))::type;
template <class Callback>
using other_result =
    typename decltype(result_of_others(std::declval<Callback&>(), std::declval<const run_information&>()))::type;

/// Says what is wrong with a callback. Always true when it compiles.
template <class Callback, class Trainer>
consteval bool explain_callback() {
  static_assert(!names_on_start<Callback> || takes_start<Callback>,
                "gradus: the callback's on_start would never be called: it takes a const train::run_information&");
  static_assert(!names_on_step<Callback> || takes_step<Callback> || takes_trainer_in_step<Callback, Trainer>,
                "gradus: the callback's on_step would never be called: it takes a const train::step_report&, or the "
                "trainer and that");
  static_assert(
      !names_on_epoch<Callback> || takes_epoch<Callback> || takes_trainer<Callback, Trainer>,
      "gradus: the callback's on_epoch would never be called: it takes a train::epoch_report&, or the trainer "
      "and that");
  static_assert(!names_on_finish<Callback> || takes_finish<Callback>,
                "gradus: the callback's on_finish would never be called: it takes nothing");
  static_assert(
      nothing_or_flow<epoch_result<Callback, Trainer>>,
      "gradus: what the callback returns after an epoch would be dropped: it returns nothing, or train::flow: "
      "write return enough ? train::flow::stop : train::flow::go_on;");
  static_assert(
      !std::is_same_v<std::remove_cvref_t<step_result<Callback, Trainer>>, flow>,
      "gradus: the train::flow that the callback returns after a step would be dropped: training stops at the "
      "end of an epoch: keep it in the callback and return it from train::flow on_epoch(const "
      "train::epoch_report&)");
  static_assert(std::is_void_v<step_result<Callback, Trainer>> ||
                    std::is_same_v<std::remove_cvref_t<step_result<Callback, Trainer>>, flow>,
                "gradus: what the callback returns after a step would be dropped: write void on_step(const "
                "train::step_report&), or a function that returns nothing");
  static_assert(std::is_void_v<other_result<Callback>>,
                "gradus: what on_start or on_finish of the callback returns would be dropped: write void");
  static_assert(saves_state<Callback> == loads_state<Callback>,
                "gradus: a callback with a state has both void save_state(train::callback_state&) and void "
                "load_state(train::callback_state&)");
  static_assert(!(called_with_step<Callback> && called_with_epoch<Callback>),
                "gradus: say which report the function takes, as in [](const train::epoch_report& epoch) { ... }");
  static_assert(called_with_step<Callback> || called_with_epoch<Callback> || takes_start<Callback> ||
                    takes_step<Callback> || takes_epoch<Callback> || asks_for_trainer<Callback, Trainer> ||
                    takes_finish<Callback>,
                "gradus: nothing of the callback would ever be called: give it on_start(const run_information&), "
                "on_step(const step_report&), on_epoch(epoch_report&) or on_finish(), or pass a function of a "
                "step_report or an epoch_report");
  return true;
}

/// Whether a training that outlives the call can have the callback. @tparam Callback  a reference if it has a name
template <class Callback>
concept keepable = std::is_lvalue_reference_v<Callback> || std::is_move_constructible_v<Callback>;

/// Says so if it cannot. Always true when it compiles.
template <class Callback>
consteval bool explain_kept() {
  static_assert(keepable<Callback>,
                "gradus: the training outlives the call of start, and this callback cannot be moved into it: give it a "
                "name that lives as long: train::checkpoints saved{folder}; trainer.start(loader, options, saved);");
  return true;
}

/// @tparam Trainer  void for a callback that does not ask for it
template <class Callback, class Trainer>
class callback_of final : public any_callback {
 public:
  callback_of(Callback& callback, void* trainer) noexcept : callback_{&callback}, trainer_{trainer} {}

  void on_start([[maybe_unused]] const run_information& run) override {
    if constexpr (takes_start<Callback>) {
      callback_->on_start(run);
    }
  }
  void on_step([[maybe_unused]] const step_report& step) override {
    if constexpr (takes_trainer_in_step<Callback, Trainer>) {
      callback_->on_step(*static_cast<Trainer*>(trainer_), step);
    } else if constexpr (takes_step<Callback>) {
      callback_->on_step(step);
    } else if constexpr (called_with_step<Callback>) {
      (*callback_)(step);
    }
  }
  bool on_epoch([[maybe_unused]] epoch_report& report) override {
    if constexpr (takes_trainer<Callback, Trainer>) {
      return stops([&, this] { return callback_->on_epoch(*static_cast<Trainer*>(trainer_), report); });
    } else if constexpr (takes_epoch<Callback>) {
      return stops([&, this] { return callback_->on_epoch(report); });
    } else if constexpr (called_with_epoch<Callback>) {
      return stops([&, this] { return (*callback_)(report); });
    } else {
      return false;
    }
  }
  void on_finish() override {
    if constexpr (takes_finish<Callback>) {
      callback_->on_finish();
    }
  }
  void save_state([[maybe_unused]] callback_state& state) override {
    if constexpr (saves_state<Callback>) {
      callback_->save_state(state);
    }
  }
  void load_state([[maybe_unused]] callback_state& state) override {
    if constexpr (loads_state<Callback>) {
      callback_->load_state(state);
    }
  }
  [[nodiscard]] std::string agreement() const override {
    if constexpr (has_agreement<Callback>) {
      return callback_->agreement();
    } else {
      return {};
    }
  }

 private:
  template <class Call>
  static bool stops(const Call& call) {
    if constexpr (std::is_same_v<decltype(call()), flow>) {
      return call() == flow::stop;
    } else {
      call();
      return false;
    }
  }

  Callback* callback_;
  void* trainer_;
};

/// What all ranks must have in common.
struct composition {
  std::string network;
  std::string options;  // of layers and the loss
  std::string_view element;
  std::string_view layout;
  std::uint64_t seed;
  std::string rule;
  std::string strategy;
  bool flush_denormals = false;
};

void require_same_composition(comm::link& group, const composition& own);

}  // namespace gradus::train::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::train::detail {

GRADUS_COLD GRADUS_INLINE void require_same_composition(comm::link& group, const composition& own) {
  const comm::property properties[] = {{"network", own.network},
                                       {"options of layers and of the loss", own.options},
                                       {"element type", std::string{own.element}},
                                       {"layout", std::string{own.layout}},
                                       {"seed", gradus::join({own.seed})},
                                       {"update rule", own.rule},
                                       {"strategy", own.strategy},
                                       {"flush_denormals of the device", own.flush_denormals ? "true" : "false"}};
  comm::require_agreement(group, "trainer", properties);
}

}  // namespace gradus::train::detail
#endif
