// SPDX-License-Identifier: BSL-1.0
//
// What a trainer is without its communicator, its strategy and its update rule.
#pragma once

#include <cstdint>      // std::uint64_t
#include <span>         // std::as_writable_bytes, std::span
#include <string>       // std::string
#include <type_traits>  // std::is_convertible_v

#include "gradus/comm/any_communicator.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/optim/schedule.hpp"
#include "gradus/train/detail/trainer/loop.hpp"
#include "gradus/train/detail/trainer/parts.hpp"
#include "gradus/train/fit_options.hpp"
#include "gradus/train/report.hpp"
#include "gradus/train/step_end.hpp"

namespace gradus::train::detail {

/// Whether the arguments of fit behind the loader begin with options.
template <class... Arguments>
inline constexpr bool first_is_fit_options = false;
template <class First, class... Others>
inline constexpr bool first_is_fit_options<First, Others...> = std::is_convertible_v<First, const fit_options&>;

/// What a trainer does when its communicator has a recorder that watches trainings: a class with
///   made(strategy)                                                when the strategy is ready;
///   fit(network, update, loader, first_step, callbacks, fit)      which calls fit(update, loader, callbacks);
///   evaluation()                                                  the result lives as long as an evaluation takes.
template <class Recorder>
class training_watch {
  static_assert(sizeof(Recorder) == 0,
                "gradus: to train over a communicator of trace::traced, include gradus/train/traced.hpp");
};

template <class Communicator>
concept watched_communicator = requires {
  requires Communicator::recorder_type::watches_training;
};

/// The trainer that derives from it brings gradients together and updates.
template <class Network>
class trainer_base {
 public:
  trainer_base(const trainer_base&) = delete;
  trainer_base& operator=(const trainer_base&) = delete;

  /// The network that is trained.
  [[nodiscard]] Network& network() noexcept { return *network_; }
  /// Steps done since construction.
  [[nodiscard]] std::uint64_t steps() const noexcept { return loop_.steps(); }

 protected:
  explicit trainer_base(Network& network) : network_{&network} {}
  ~trainer_base() = default;

  /// @throws configuration_error when ranks differ
  void require_same(comm::any_communicator& group, const std::string& rule, const std::string& strategy) {
    require_same_composition(group, {.network = network_->describe(),
                                     .element = element_name<typename Network::element_type>,
                                     .layout = Network::layout_type::name,
                                     .seed = network_->seed(),
                                     .rule = rule,
                                     .strategy = strategy});
  }

  /// Gives the loader this rank's part of each batch. If it has another one, the other ranks get the error too.
  /// @throws configuration_error when the loader was made for another part
  template <class Loader>
  GRADUS_COLD static void share_batches(comm::any_communicator& group, Loader& loader, error_location where) {
    take_shard(
        group, [](void* erased, const data::shard& part) { static_cast<Loader*>(erased)->take_shard(part); }, &loader,
        where);
  }

  template <class Loader>
  GRADUS_COLD void fit_on(comm::any_communicator& group, step_end& update, Loader& loader, const fit_options& options,
                          callback_list callbacks) {
    batches_of<Network, Loader> data{*network_, loader};
    loop_.fit(data, update, group,
              {.run = {.rank = group.rank(),
                       .ranks = group.size(),
                       .epochs = options.epochs,
                       .steps_per_epoch = loader.steps_per_epoch(),
                       .examples_per_epoch = loader.examples_per_epoch(),
                       .parameters = network_->parameter_count()},
               .learning_rate = options.learning_rate,
               .loader = loader.description(),
               .where = options.where},
              callbacks);
  }

  template <class Loader>
  [[nodiscard]] evaluation_report evaluate_on(comm::any_communicator& group, Loader& loader, error_location where) {
    batches_of<Network, Loader> data{*network_, loader};
    return detail::evaluate(data, group, std::as_writable_bytes(network_->buffer_values()), where);
  }

 private:
  Network* network_;
  loop loop_;
};

}  // namespace gradus::train::detail
