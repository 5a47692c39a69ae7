// SPDX-License-Identifier: BSL-1.0
//
// How a rank computes its part of a batch: a base class, and the way of most trainings.
#pragma once

#include <concepts>     // std::constructible_from, std::derived_from
#include <cstdint>      // std::uint64_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <optional>     // std::optional
#include <string>       // std::string
#include <type_traits>  // std::is_abstract_v

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/nn/network/memory.hpp"
#include "gradus/nn/network/step_hooks.hpp"
#include "gradus/nn/network/step_options.hpp"
#include "gradus/nn/score_observer.hpp"
#include "gradus/nn/targets.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/train/batch_runner.hpp"
#ifdef GRADUS_HAS_INSTANCES
#include "gradus/nn/network.hpp"
#endif

namespace gradus::train {

namespace detail {
struct worker_epoch;
}  // namespace detail

/// A rank's part of a batch, for a network.
template <class Network>
struct network_batch {
  /// Labels or values, and weights.
  using targets_type = nn::targets<typename Network::element_type, typename Network::device_type>;

  typename Network::const_view images;  ///< (n, c, h, w), in the memory of the device; n may be 0
  targets_type targets;                 ///< of the examples
  std::uint64_t first_example = 0;      ///< the number of the first one in the training
  index_t global_examples = 0;          ///< of the batch over all ranks
};

/// The batches of a loader, without its type.
template <class Network>
class batch_source {
 public:
  batch_source() = default;
  batch_source(const batch_source&) = delete;
  batch_source& operator=(const batch_source&) = delete;

  /// Begins an epoch at batch `first`.
  virtual void start_epoch(std::uint64_t epoch, index_t first) = 0;
  /// The next batch; null after the last. It is valid until the next call.
  [[nodiscard]] virtual const network_batch<Network>* next() = 0;

 protected:
  ~batch_source() = default;
};

/// What a network does with the batches of a fit or of an evaluation on this rank: all of them at once. Derive from it
/// to compute them in another way.
template <class Network>
class batch_execution : public batch_runner {
 public:
  /// What sees the scores of an evaluation.
  using observer_type = nn::score_observer<typename Network::element_type, typename Network::device_type>;

  /// Network, source and observer outlive it.
  /// @param observer  of the scores of evaluations; may be null
  batch_execution(Network& network, batch_source<Network>& source, observer_type* observer) noexcept
      : network_{&network}, source_{&source}, observer_{observer} {}
  virtual ~batch_execution() = default;

  void start_epoch(std::uint64_t epoch, index_t first) override { source_->start_epoch(epoch, first); }

  bool next(batch_counts& counts) override {
    batch_ = source_->next();
    if (batch_ != nullptr) {
      counts = {.first_example = batch_->first_example,
                .global_examples = batch_->global_examples,
                .examples = batch_->images.extent(0)};
    }
    return batch_ != nullptr;
  }

  kernels::loss_sums evaluate() override {
    return observer_ == nullptr ? network_->evaluate(batch_->images, batch_->targets)
                                : network_->evaluate(batch_->images, batch_->targets, *observer_);
  }

  kernels::loss_sums train_step(const nn::step_options& options, nn::step_hooks& observer) override {
    return network_->train_step(batch_->images, batch_->targets, options, &observer);
  }

  nn::non_finite first_not_finite(const nn::step_options& options) override {
    return network_->find_non_finite(batch_->images, batch_->targets, options);
  }

 protected:
  /// The network.
  [[nodiscard]] Network& network() const noexcept { return *network_; }
  /// The batch that `next` went to.
  [[nodiscard]] const network_batch<Network>& batch() const noexcept { return *batch_; }
  /// Of the scores; may be null.
  [[nodiscard]] observer_type* observer() const noexcept { return observer_; }

 private:
  Network* network_;
  batch_source<Network>* source_;
  observer_type* observer_;
  const network_batch<Network>* batch_ = nullptr;
};

/// How a rank computes its part of a batch, beside the strategy that brings gradients together. This one computes all
/// of it at once. A strategy that divides the computation differently has
/// `template <class Network> using execution = ...`, a class that derives from this one and is made of the strategy's
/// options.
template <class Network>
class execution {
 public:
  /// What sees the scores of an evaluation.
  using observer_type = typename batch_execution<Network>::observer_type;

  execution() = default;
  execution(const execution&) = delete;
  execution& operator=(const execution&) = delete;
  virtual ~execution() = default;

  /// The part of each batch that belongs to this rank. @param group  the ranks that train
  [[nodiscard]] virtual data::shard shard(const comm::link& group) const {
    return {.rank = group.rank(), .ranks = group.size()};
  }
  /// Before a trainer looks at the network's parameters. Called by all ranks; the ranks of the trainer outlive it.
  virtual void prepare(Network& /*network*/, comm::any_communicator& /*ranks*/) {}
  /// The batches of a fit. All that it is given outlives the result.
  [[nodiscard]] virtual std::unique_ptr<batch_execution<Network>> training(comm::link& /*group*/, Network& network,
                                                                           batch_source<Network>& source) {
    return std::make_unique<batch_execution<Network>>(network, source, nullptr);
  }
  /// The batches of an evaluation, also within an epoch of a training. @param observer  of the scores; may be null
  [[nodiscard]] virtual std::unique_ptr<batch_execution<Network>> evaluation(comm::link& /*group*/, Network& network,
                                                                             batch_source<Network>& source,
                                                                             observer_type* observer) {
    return std::make_unique<batch_execution<Network>>(network, source, observer);
  }
  /// What ranks that train together have in common, as text; empty where there is nothing to say.
  [[nodiscard]] virtual std::string describe() const { return {}; }
  /// What ranks send in a step besides what the strategy sends: traces call it by these names. @pre prepared
  [[nodiscard]] virtual dynamic_array<parallel::transfer_buffer> transfer_buffers() const { return {}; }
  /// The part of the state of the training that virtual workers have; null without them.
  [[nodiscard]] virtual detail::worker_epoch* workers() noexcept { return nullptr; }
};

/// A requirement of a strategy that divides computation: it names `execution<Network>`.
template <class Strategy, class Network>
concept divides_computation = requires {
  typename Strategy::template execution<Network>;
};

/// Reports at compile time what the execution that a strategy names lacks. Returns true if it compiles.
template <class Strategy, class Network>
consteval bool explain_execution() {
  if constexpr (divides_computation<Strategy, Network>) {
    using type = typename Strategy::template execution<Network>;
    static_assert(std::derived_from<type, execution<Network>>,
                  "gradus: the execution of this strategy is none: derive it from gradus::train::execution<Network>");
    static_assert(!std::is_abstract_v<type>,
                  "gradus: the execution of this strategy is abstract: override all its pure virtual functions");
    static_assert(std::constructible_from<type, const Strategy&>,
                  "gradus: the execution of this strategy is not made of its options: give it a constructor of const "
                  "strategy&");
  } else {
    constexpr bool names_one = requires {
      typename Strategy::execution;
    };
    static_assert(!names_one,
                  "gradus: the execution of this strategy would never be used: write template <class Network> using "
                  "execution = ...; in the strategy");
  }
  return true;
}

}  // namespace gradus::train

#ifdef GRADUS_HAS_INSTANCES
GRADUS_COMPILED_CLASS_OF_NETWORK(::gradus::train::batch_execution)
GRADUS_COMPILED_CLASS_OF_NETWORK(::gradus::train::execution)
#endif
