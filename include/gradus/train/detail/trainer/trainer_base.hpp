// SPDX-License-Identifier: BSL-1.0
//
// What a trainer is without its communicator, its strategy and its update rule.
#pragma once

#include <cstdint>      // std::uint64_t
#include <memory>       // std::addressof
#include <span>         // std::as_writable_bytes, std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_convertible_v
#include <utility>      // std::move

#include "gradus/comm/link.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/nn/network_base.hpp"
#include "gradus/optim/schedule.hpp"
#include "gradus/train/detail/trainer/loop.hpp"
#include "gradus/train/detail/trainer/parts.hpp"
#include "gradus/train/detail/trainer/replicas.hpp"
#include "gradus/train/detail/trainer/target_check.hpp"
#include "gradus/train/fit_options.hpp"
#include "gradus/train/report.hpp"
#include "gradus/train/step_end.hpp"

namespace gradus::train::detail {

/// Whether the arguments of fit behind the loader begin with options.
template <class... Arguments>
inline constexpr bool first_is_fit_options = false;
template <class First, class... Others>
inline constexpr bool first_is_fit_options<First, Others...> = std::is_convertible_v<First, const fit_options&>;

/// What a trainer does with metrics: a class that is made of the ranks, the network, the metrics and the line of the
/// program, with
///   observer()      the nn::score_observer of the evaluation;
///   finish(report)  the result of the call, from the report of the loss.
template <class Network, class Metrics>
class metric_evaluation {
  static_assert(
      sizeof(Metrics) == 0,
      "gradus: the second argument of evaluate is a metric or a metrics::list of them: include "
      "gradus/train/metrics.hpp; static_assert(gradus::metrics::explain_metric<Mine>()) says what a metric of "
      "your own lacks");
};

/// Whether the second argument of evaluate is a metric or a list of them.
template <class Argument>
concept no_location = !std::is_convertible_v<const Argument&, error_location>;

/// What a trainer does when its communicator has a recorder that watches trainings: a class with
///   made(travelling)                                              when what ranks send in a step has its memory;
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

/// How a rank computes its part of a batch: at once.
struct whole_parts {
  /// The part of each batch that belongs to this rank.
  [[nodiscard]] static data::shard shard(const comm::link& group) noexcept {
    return {.rank = group.rank(), .ranks = group.size()};
  }

  /// Before a trainer looks at the network's parameters. Called by all ranks.
  template <class Network, class Communicator>
  void prepare(Network& /*network*/, Communicator& /*communicator*/) const noexcept {}

  template <class Network, class Loader>
  [[nodiscard]] batches_of<Network, Loader> batches(
      comm::link& /*group*/, Network& network, Loader& loader,
      typename batches_of<Network, Loader>::observer_type* observer = nullptr) const noexcept {
    return {network, loader, observer};
  }
};

/// How ranks that train by a strategy compute their parts: made of the strategy's options.
template <class Strategy>
struct parts_of_strategy {
  using type = whole_parts;
  [[nodiscard]] static type make(const Strategy& /*options*/) noexcept {
    static_assert(
        !requires(const Strategy& options) { options.virtual_workers; },
        "gradus: to train by parallel::reproducible, include gradus/train/reproducible.hpp");
    static_assert(
        !requires(const Strategy& options) { options.stages_per_rank; },
        "gradus: to train by parallel::hybrid, include gradus/train/hybrid.hpp");
    return {};
  }
};

/// What gradus/train/state.hpp reaches of a trainer.
struct trainer_access;

/// The parameters of a network.
template <class Network>
class replicas_of final : public any_replicas {
 public:
  explicit replicas_of(Network& network) noexcept : network_{&network} {}
  std::string first_difference(comm::link& group) override {
    replicas own;
    own.take(*network_);
    return own.first_difference(group);
  }

 private:
  Network* network_;
};

/// The trainer that derives from it brings gradients together and updates.
template <class Network, class Parts = whole_parts>
class trainer_base {
 public:
  trainer_base(const trainer_base&) = delete;
  trainer_base& operator=(const trainer_base&) = delete;

  /// The network that is trained.
  [[nodiscard]] Network& network() noexcept { return *network_; }
  /// Steps done since construction, or since the beginning of the training that train::restore has given it.
  [[nodiscard]] std::uint64_t steps() const noexcept { return loop_.steps(); }
  /// How this rank computes its part of a batch.
  [[nodiscard]] const Parts& parts() const noexcept { return parts_; }

 protected:
  explicit trainer_base(Network& network, Parts parts = {}) : network_{&network}, parts_{std::move(parts)} {}
  ~trainer_base() = default;

  [[nodiscard]] Parts& parts() noexcept { return parts_; }

  /// @throws configuration_error when ranks differ
  void require_same(comm::link& group, const std::string& rule, const std::string& strategy) {
    require_same_composition(group, {.network = network_->describe(),
                                     .element = element_name<typename Network::element_type>,
                                     .layout = Network::layout_type::name,
                                     .seed = network_->seed(),
                                     .rule = rule,
                                     .strategy = strategy,
                                     .flush_denormals = flushes_denormals_on(network_->device())});
  }

  /// Compares what the loader gives with what the network reads, and gives it this rank's part of each batch. If this
  /// fails on one rank, the other ranks get the error too.
  /// @param refuse  gives it to them
  /// @throws configuration_error when the loader was made for another part
  /// @throws shape_error when images or targets of the loader do not fit
  template <class Loader>
  GRADUS_COLD void share_batches(comm::link& group, void (*refuse)(comm::link&, std::string_view), Loader& loader,
                                 std::string_view operation, error_location where) {
    using network_base = nn::network_base<typename Network::element_type, typename Network::device_type>;
    take_shard(
        group, refuse, example_check_of(operation, static_cast<const network_base&>(*network_), loader),
        [](void* erased, const data::shard& part) -> index_t {
          auto& own = *static_cast<Loader*>(erased);
          own.take_shard(part);
          if constexpr (requires { own.local_batch_size(); }) {
            return own.local_batch_size();
          } else {
            return 0;  // a loader of the program that does not say it
          }
        },
        &loader, parts_.shard(group), where);
    if (refuse == &refuse_fit) {
      loader_of_fit_ = std::addressof(loader);
    } else if (loader_of_fit_ == std::addressof(loader)) {
      loop_.loader_was_used();
    }
  }

  template <class Loader>
  GRADUS_COLD void fit_on(comm::link& group, step_end& update, Loader& loader, const fit_options& options,
                          callback_list callbacks) {
    auto data = parts_.batches(group, *network_, loader);
    replicas_of<Network> equal{*network_};
    loop_.fit(data, update, group,
              {.run = {.rank = group.rank(),
                       .ranks = group.size(),
                       .epochs = options.epochs,
                       .steps_per_epoch = loader.steps_per_epoch(),
                       .examples_per_epoch = loader.examples_per_epoch(),
                       .parameters = network_->parameter_count()},
               .learning_rate = options.learning_rate,
               .loader = loader.description(),
               .where = options.where,
               .replicas = update.replicates() ? &equal : nullptr},
              callbacks);
  }

  template <class Loader>
  [[nodiscard]] evaluation_report evaluate_on(comm::link& group, Loader& loader, error_location where,
                                              typename batches_of<Network, Loader>::observer_type* observer = nullptr) {
    auto data = parts_.batches(group, *network_, loader, observer);
    return detail::evaluate(data, group, std::as_writable_bytes(network_->buffer_values()), where);
  }

 private:
  friend struct trainer_access;

  Network* network_;
  [[no_unique_address]] Parts parts_;
  loop loop_;
  const void* loader_of_fit_ = nullptr;  // of the last one
};

}  // namespace gradus::train::detail
