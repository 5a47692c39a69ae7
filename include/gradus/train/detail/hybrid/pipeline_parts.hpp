// SPDX-License-Identifier: BSL-1.0
//
// How a rank of a pipeline computes its part of a batch: the stages of the network that it runs.
#pragma once

#include <algorithm>    // std::sort
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint8_t, std::uint64_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <span>         // std::span
#include <string>       // std::string
#include <type_traits>  // std::remove_cvref_t
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/comm/agreement.hpp"
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/subset.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/nn/plan/compile_options.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/plan/stage_cuts.hpp"
#include "gradus/nn/plan/stage_plan.hpp"
#include "gradus/nn/score_observer.hpp"
#include "gradus/nn/step_hooks.hpp"
#include "gradus/nn/step_options.hpp"
#include "gradus/parallel/hybrid.hpp"
#include "gradus/parallel/pipeline/channel.hpp"
#include "gradus/parallel/pipeline/network_layers.hpp"
#include "gradus/parallel/pipeline/runner.hpp"
#include "gradus/parallel/pipeline/stages.hpp"
#include "gradus/train/detail/trainer/loop.hpp"
#include "gradus/train/detail/trainer/parts.hpp"

namespace gradus::train::detail {

/// The batches of a loader, computed in a pipeline. Sums of losses and examples are those of the ranks with the loss.
template <class Network, class Loader>
class pipeline_batches final : public batches {
  using element = typename Network::element_type;
  using device = typename Network::device_type;

 public:
  using runner_type = parallel::pipeline_runner<element, device>;
  using observer_type = nn::score_observer<element, device>;

  /// @param replicas  the ranks with the stages of this one
  /// @param observer  of the scores of evaluations; may be null
  pipeline_batches(runner_type& runner, comm::any_communicator& replicas, Loader& loader, observer_type* observer)
      : runner_{&runner}, replicas_{&replicas}, loader_{&loader}, observer_{observer} {}

  void start_epoch(std::uint64_t epoch, index_t first) override { start_epoch_at(*loader_, epoch, first); }

  bool next(batch_facts& facts) override {
    batch_ = loader_->next();
    if (batch_ != nullptr) {
      facts = {.first_example = batch_->first_example,
               .global_examples = batch_->global_examples,
               .examples = runner_->has_loss() ? batch_->images.extent(0) : 0};
    }
    return batch_ != nullptr;
  }

  kernels::loss_sums evaluate() override { return runner_->evaluate(own_batch(), observer_); }

  kernels::loss_sums train_step(const nn::step_options& options, nn::step_hooks& hooks) override {
    return runner_->train(own_batch(), options, &hooks);
  }

  std::string first_not_finite(const nn::step_options& /*options*/) override { return runner_->first_not_finite(); }

  void share_statistics(comm::any_communicator& /*group*/, std::span<std::byte> statistics) override {
    if (replicas_->size() > 1 && !statistics.empty()) {
      replicas_->broadcast(statistics, 0);
    }
  }

 private:
  [[nodiscard]] parallel::pipeline_batch<element, device> own_batch() const {
    return {batch_->images.data(), batch_->images.extent(0), targets_of<Network>(*batch_)};
  }

  runner_type* runner_;
  comm::any_communicator* replicas_;
  Loader* loader_;
  observer_type* observer_;
  decltype(loader_->next()) batch_ = nullptr;
};

/// The stages of a rank, and what it needs to run them. Without the type of the communicator.
class pipeline_ranks {
 public:
  pipeline_ranks() = default;
  pipeline_ranks(const pipeline_ranks&) = delete;
  pipeline_ranks& operator=(const pipeline_ranks&) = delete;
  virtual ~pipeline_ranks() = default;

  [[nodiscard]] virtual comm::any_communicator& replicas() noexcept = 0;
};

template <class Element, class Communicator>
class pipeline_ranks_of final : public pipeline_ranks {
 public:
  pipeline_ranks_of(const parallel::hybrid& options, Communicator& communicator)
      : replicas_{communicator.duplicate(),
                  parallel::detail::ranks_of_stage(options, communicator.rank(), communicator.size())},
        any_replicas_{replicas_},
        channel{comm::subset<Communicator>{communicator.duplicate(),
                                           parallel::detail::ranks_of_replica(options, communicator.rank())}} {}

  [[nodiscard]] comm::any_communicator& replicas() noexcept override { return any_replicas_; }

 private:
  comm::subset<Communicator> replicas_;
  comm::any_communicator_of<comm::subset<Communicator>> any_replicas_;

 public:
  parallel::pipeline_channel_of<Element, comm::subset<Communicator>> channel;
};

/// How a rank computes its part of a batch by parallel::hybrid.
class pipeline_parts {
 public:
  explicit pipeline_parts(const parallel::hybrid& options) : options_{options} {}

  [[nodiscard]] data::shard shard(const comm::any_communicator& group) const noexcept {
    return {.rank = group.rank() / options_.stages, .ranks = group.size() / options_.stages};
  }

  /// Cuts the network, and compiles it for the stages of this rank. Called by all ranks.
  /// @throws configuration_error when the options make no sense, or ranks cut differently
  template <class Network, class Communicator>
  void prepare(Network& network, Communicator& communicator) {
    using element = typename Network::element_type;
    using device = typename Network::device_type;
    static_assert(has_host_memory<device>,
                  "gradus: parallel::hybrid is for devices in host memory: values are sent from there");
    options_.check(communicator.size());
    const nn::compile_options compiled = parallel::compile_options_of(options_, network);
    const parallel::network_stages cut = parallel::cut_network(network, options_, compiled);
    comm::require_agreement(communicator, "parallel::hybrid", {{"stages of the network", cut.text}});
    nn::stage_cuts cuts = cut.cuts;
    for (std::size_t s = static_cast<std::size_t>(communicator.rank() % options_.stages); s < cuts.stages();
         s += static_cast<std::size_t>(options_.stages)) {
      cuts.own.push_back(s);
    }
    network.compile_stages(compiled, cuts);
    auto ranks = std::make_unique<pipeline_ranks_of<element, Communicator>>(options_, communicator);
    runner_ = std::make_unique<runner_of<element, device>>(network, options_.schedule, ranks->channel);
    ranks_ = std::move(ranks);
    text_ = cut.text;
  }

  template <class Network, class Loader>
  [[nodiscard]] pipeline_batches<Network, Loader> batches(
      comm::any_communicator& /*group*/, Network& /*network*/, Loader& loader,
      typename pipeline_batches<Network, Loader>::observer_type* observer = nullptr) const {
    using runner = runner_of<typename Network::element_type, typename Network::device_type>;
    return {static_cast<runner&>(*runner_).runner, ranks_->replicas(), loader, observer};
  }

  /// The stages, for people.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  struct any_runner {
    any_runner() = default;
    any_runner(const any_runner&) = delete;
    any_runner& operator=(const any_runner&) = delete;
    virtual ~any_runner() = default;
  };
  template <class Element, class Device>
  struct runner_of final : any_runner {
    template <class... Arguments>
    explicit runner_of(Arguments&... arguments) : runner{arguments...} {}
    parallel::pipeline_runner<Element, Device> runner;
  };

  parallel::hybrid options_;
  std::unique_ptr<pipeline_ranks> ranks_;
  std::unique_ptr<any_runner> runner_;
  std::string text_;
};

}  // namespace gradus::train::detail
