// SPDX-License-Identifier: BSL-1.0
//
// What a trainer is without its communicator, its strategy and its update rule.
#pragma once

#include <chrono>       // std::chrono::nanoseconds
#include <cstdint>      // std::uint64_t
#include <memory>       // std::addressof, std::make_unique, std::unique_ptr
#include <optional>     // std::optional
#include <span>         // std::as_writable_bytes, std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_convertible_v
#include <utility>      // std::move

#include "gradus/comm/link.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/nn/network/base.hpp"
#include "gradus/optim/schedule.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/train/detail/trainer/loop.hpp"
#include "gradus/train/detail/trainer/parts.hpp"
#include "gradus/train/detail/trainer/replicas.hpp"
#include "gradus/train/detail/trainer/target_check.hpp"
#include "gradus/train/execution.hpp"
#include "gradus/train/fit_options.hpp"
#include "gradus/train/optimizer_step.hpp"
#include "gradus/train/report.hpp"
#ifdef GRADUS_HAS_INSTANCES
#include "gradus/nn/network.hpp"
#endif

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

/// What stands between a trainer and its parts where its communicator has a recorder that watches trainings.
template <class Network>
class fit_watch {
 public:
  /// A fit with what stands in front of its parts: refers to a function of the caller.
  struct fit_call {
    const void* body;  ///< the function
    void (*call)(const void* body, optimizer_step& end, batch_source<Network>& source, callback_list callbacks);
    /// Runs the fit.
    void operator()(optimizer_step& end, batch_source<Network>& source, callback_list callbacks) const {
      call(body, end, source, callbacks);
    }
  };

  fit_watch() = default;
  fit_watch(const fit_watch&) = delete;
  fit_watch& operator=(const fit_watch&) = delete;
  virtual ~fit_watch() = default;

  /// The buffers that ranks send in a step are allocated.
  virtual void made(std::span<const parallel::transfer_buffer> transfer_buffers) = 0;
  /// Calls fit(end, source, callbacks).
  virtual void fit(const Network& network, optimizer_step& end, batch_source<Network>& source, std::uint64_t first_step,
                   callback_list callbacks, const fit_call& fit) = 0;
  /// An evaluation begins, or has ended.
  virtual void evaluation(bool begins) = 0;
};

/// Makes the fit_watch of a recorder: training_watch<Recorder>::make<Network>(recorder), which outlives it.
template <class Recorder>
class training_watch {
  static_assert(sizeof(Recorder) == 0,
                "gradus: to train over a communicator of trace::traced, include gradus/train/traced.hpp");
};

template <class Communicator>
concept watched_communicator = requires {
  requires Communicator::recorder_type::watches_training;
};

/// How ranks that train by a strategy compute their parts.
template <class Network, class Strategy>
[[nodiscard]] std::unique_ptr<execution<Network>> execution_of([[maybe_unused]] const Strategy& options) {
  if constexpr (divides_computation<Strategy, Network>) {
    using type = typename Strategy::template execution<Network>;
    constexpr bool complete = requires {
      sizeof(type);
    };
    static_assert(
        complete || !requires { options.virtual_workers; },
        "gradus: to train by parallel::reproducible, include gradus/train/reproducible.hpp");
    static_assert(
        complete || !requires { options.stages_per_rank; },
        "gradus: to train by parallel::hybrid, include gradus/pipeline.hpp");
    if constexpr (complete) {
      static_assert(explain_execution<Strategy, Network>());
      return std::make_unique<type>(options);
    } else {
      return nullptr;
    }
  } else {
    static_assert(explain_execution<Strategy, Network>());
    return std::make_unique<execution<Network>>();
  }
}

/// A training that goes on step by step.
class any_session {
 public:
  any_session() = default;
  any_session(const any_session&) = delete;
  any_session& operator=(const any_session&) = delete;
  virtual ~any_session() = default;

  /// @param most    steps; negative: any number
  /// @param budget  of time; none: any
  virtual steps_report train(index_t most, std::optional<std::chrono::nanoseconds> budget, error_location where) = 0;
  virtual void finish(error_location where) = 0;
};

/// The any_session of a network, a loader and callbacks.
template <class Network, class Loader, class... Callbacks>
class session_of;

/// @throws configuration_error if there is none
[[nodiscard]] any_session& going_on(const std::unique_ptr<any_session>& session, std::string_view operation,
                                    error_location where);

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

/// What a trainer does in a fit and an evaluation, whatever its loader and callbacks are.
template <class Network>
class trainer_base {
  static_assert(
      requires {
        typename Network::const_view;
        typename Network::device_type;
      },
      "gradus: the first argument of a trainer is no network: write train::trainer trainer{net, optim::sgd{}, world};");
  using network_base = nn::network_base<typename Network::element_type, typename Network::device_type>;
  using observer_type = typename execution<Network>::observer_type;

 public:
  trainer_base(const trainer_base&) = delete;
  trainer_base& operator=(const trainer_base&) = delete;

  /// The network that is trained.
  [[nodiscard]] Network& network() noexcept { return *network_; }
  /// Steps done since construction, or since the beginning of the training that train::restore has given it.
  [[nodiscard]] std::uint64_t steps() const noexcept { return loop_.steps(); }
  /// Epochs that have ended, counted as `steps` counts; in on_epoch the reported epoch is one of them.
  [[nodiscard]] int epochs() const noexcept { return loop_.position().epochs; }
  /// Steps done of the epoch that has not ended, 0 between epochs; in on_step the reported step is one of them. The
  /// next fit goes on with the epoch after train::restore, and begins it again if an error has ended the last fit.
  [[nodiscard]] index_t steps_in_epoch() const noexcept { return loop_.position().step_in_epoch; }

 protected:
  trainer_base(Network& network, std::unique_ptr<execution<Network>> how)
      : network_{&network}, execution_{std::move(how)} {}
  ~trainer_base() = default;

  [[nodiscard]] train::execution<Network>& execution() noexcept { return *execution_; }
  [[nodiscard]] loop& progress() noexcept { return loop_; }

  /// @throws configuration_error when ranks differ
  void require_same(comm::link& group, const std::string& rule, const std::string& strategy) {
    require_same_composition(group, {.network = network_->describe(),
                                     .options = network_->describe_options(),
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
        &loader, execution_->shard(group), where);
    if (refuse == &refuse_fit) {
      loader_of_fit_ = std::addressof(loader);
    } else if (loader_of_fit_ == std::addressof(loader)) {
      loop_.loader_was_used();
    }
  }

  /// The properties of a fit that a loader gives.
  template <class Loader>
  [[nodiscard]] run_information run_of(comm::link& group, Loader& loader, int epochs) const {
    return {.rank = group.rank(),
            .ranks = group.size(),
            .epochs = epochs,
            .steps_per_epoch = loader.steps_per_epoch(),
            .examples_per_epoch = loader.examples_per_epoch(),
            .parameters = network_->parameter_count()};
  }

  /// @param loader  its description
  void fit_on(comm::link& group, optimizer_step& update, batch_source<Network>& source, const run_information& run,
              const std::string& loader, const fit_options& options, callback_list callbacks) {
    const auto data = execution_->training(group, *network_, source);
    replicas_of<Network> equal{*network_};
    loop_.fit(*data, update, group,
              {.run = run,
               .learning_rate = options.learning_rate,
               .loader = loader,
               .where = options.where,
               .replicas = update.replicates() ? &equal : nullptr},
              callbacks);
  }

  [[nodiscard]] evaluation_report evaluate_on(comm::link& group, batch_source<Network>& source, error_location where,
                                              observer_type* observer) {
    const auto data = execution_->evaluation(group, *network_, source, observer);
    return detail::evaluate(*data, group, std::as_writable_bytes(network_->buffer_values()), where);
  }

 private:
  friend struct trainer_access;

  Network* network_;
  std::unique_ptr<train::execution<Network>> execution_;
  loop loop_;
  const void* loader_of_fit_ = nullptr;  // of the last one
};

}  // namespace gradus::train::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::train::detail {

GRADUS_INLINE any_session& going_on(const std::unique_ptr<any_session>& session, std::string_view operation,
                                    error_location where) {
  if (session == nullptr) {
    raise<configuration_error>(operation, "a training that has been started", "none",
                               "call trainer.start(loader, {.learning_rate = ...}) first", where);
  }
  return *session;
}

}  // namespace gradus::train::detail
#endif

#ifdef GRADUS_HAS_INSTANCES
GRADUS_COMPILED_CLASS_OF_NETWORK(::gradus::train::detail::trainer_base)
GRADUS_COMPILED_CLASS_OF_NETWORK(::gradus::train::detail::replicas_of)
#endif
