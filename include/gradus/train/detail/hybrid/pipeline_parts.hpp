// SPDX-License-Identifier: BSL-1.0
//
// How a rank of a pipeline computes its part of a batch: the stages of the network that it runs.
#pragma once

#include <cstddef>  // std::byte, std::size_t
#include <cstdint>  // std::uint64_t
#include <memory>   // std::make_unique, std::unique_ptr
#include <span>     // std::as_writable_bytes, std::span
#include <string>   // std::string
#include <utility>  // std::move

#include "gradus/comm/agreement.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/nn/network_memory.hpp"
#include "gradus/nn/plan/compile_options.hpp"
#include "gradus/nn/plan/stage_cuts.hpp"
#include "gradus/nn/score_observer.hpp"
#include "gradus/nn/step_hooks.hpp"
#include "gradus/nn/step_options.hpp"
#include "gradus/parallel/hybrid.hpp"
#include "gradus/parallel/pipeline/network_layers.hpp"
#include "gradus/parallel/pipeline/ranks.hpp"
#include "gradus/parallel/pipeline/rule.hpp"
#include "gradus/parallel/pipeline/runner.hpp"
#include "gradus/parallel/strategy.hpp"
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
  pipeline_batches(runner_type& runner, comm::link& replicas, Loader& loader, observer_type* observer)
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

  nn::non_finite first_not_finite(const nn::step_options& /*options*/) override { return runner_->first_not_finite(); }

  void share_statistics(comm::link& /*group*/, std::span<std::byte> statistics) override {
    if (replicas_->size() > 1 && !statistics.empty()) {
      replicas_->broadcast(statistics, 0);
    }
  }

 private:
  [[nodiscard]] parallel::pipeline_batch<element, device> own_batch() const {
    return {batch_->images.data(), batch_->images.extent(0), targets_of<Network>(*batch_)};
  }

  runner_type* runner_;
  comm::link* replicas_;
  Loader* loader_;
  observer_type* observer_;
  decltype(loader_->next()) batch_ = nullptr;
};

/// How a rank computes its part of a batch by parallel::hybrid.
class pipeline_parts {
 public:
  explicit pipeline_parts(const parallel::hybrid& options) : options_{options} {}

  [[nodiscard]] data::shard shard(const comm::link& group) const noexcept {
    return {.rank = group.rank() / options_.stages, .ranks = group.size() / options_.stages};
  }

  /// Cuts the network, and compiles it for the stages of this rank. Called by all ranks.
  /// @throws configuration_error when the options make no sense, or ranks cut differently
  template <class Network, class Communicator>
  void prepare(Network& network, Communicator& communicator) {
    using ranks = parallel::pipeline_ranks_of<typename Network::element_type, Communicator>;
    prepare_with(network, std::make_unique<ranks>(options_, communicator));
  }

  /// The same where the type of the communicator is not known.
  /// @param ranks  made with the same options
  template <class Network>
  void prepare_with(Network& network, std::unique_ptr<parallel::pipeline_ranks<typename Network::element_type>> ranks) {
    using element = typename Network::element_type;
    using device = typename Network::device_type;
    comm::link& all = ranks->all();
    options_.check(all.size());
    share_times(all);
    const nn::compile_options compiled = parallel::compile_options_of(options_, network);
    parallel::network_stages cut = parallel::cut_network(network, options_, compiled);
    const comm::fact facts[] = {{"micro-batches of a pipeline", gradus::join({options_.micro_batches})},
                                {"schedule of a pipeline", std::string{options_.schedule.name}},
                                {"stages of the network", cut.text}};
    comm::require_agreement(all, "parallel::hybrid", facts);
    nn::stage_cuts cuts = cut.cuts;
    for (std::size_t s = static_cast<std::size_t>(all.rank() % options_.stages); s < cuts.stages();
         s += static_cast<std::size_t>(options_.stages)) {
      cuts.own.push_back(s);
    }
    network.compile_stages(compiled, cuts);
    stages_ = std::make_unique<stages_of_rank<element, device>>(network, options_.schedule, std::move(ranks));
    cut_ = std::move(cut);
  }

  /// What crosses the cuts of this rank's stages in a step. @pre prepared
  [[nodiscard]] dynamic_array<parallel::travelling_memory> travelling() const { return stages_->travelling(); }

  template <class Network, class Loader>
  [[nodiscard]] pipeline_batches<Network, Loader> batches(
      comm::link& /*group*/, Network& /*network*/, Loader& loader,
      typename pipeline_batches<Network, Loader>::observer_type* observer = nullptr) const {
    using stages = stages_of_rank<typename Network::element_type, typename Network::device_type>;
    auto& own = static_cast<stages&>(*stages_);
    return {own.runner, own.ranks->replicas(), loader, observer};
  }

  /// Where the network was cut. @pre prepared
  [[nodiscard]] const parallel::network_stages& cut() const noexcept { return cut_; }

 private:
  /// Ranks measure other times, and would cut the network differently.
  void share_times(comm::link& all) {
    std::uint64_t layers = options_.layer_times.size();
    all.broadcast(std::as_writable_bytes(std::span{&layers, 1}), 0);
    options_.layer_times.resize(std::size_t{layers});
    if (layers > 0) {
      all.broadcast(std::as_writable_bytes(std::span{options_.layer_times}), 0);
    }
  }

  struct any_stages {
    any_stages() = default;
    any_stages(const any_stages&) = delete;
    any_stages& operator=(const any_stages&) = delete;
    virtual ~any_stages() = default;
    [[nodiscard]] virtual dynamic_array<parallel::travelling_memory> travelling() = 0;
  };
  template <class Element, class Device>
  struct stages_of_rank final : any_stages {
    template <class Network>
    stages_of_rank(Network& network, const parallel::pipeline_rule& rule,
                   std::unique_ptr<parallel::pipeline_ranks<Element>> own)
        : ranks{std::move(own)}, runner{network, rule, ranks->channel()} {}
    [[nodiscard]] dynamic_array<parallel::travelling_memory> travelling() override { return runner.travelling(); }

    std::unique_ptr<parallel::pipeline_ranks<Element>> ranks;
    parallel::pipeline_runner<Element, Device> runner;
  };

  parallel::hybrid options_;
  std::unique_ptr<any_stages> stages_;
  parallel::network_stages cut_;
};

}  // namespace gradus::train::detail
