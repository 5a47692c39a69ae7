// SPDX-License-Identifier: BSL-1.0
//
// How a rank of a pipeline computes its part of a batch: the stages of the network that it runs.
#pragma once

#include <cstddef>   // std::byte, std::size_t
#include <cstdint>   // std::uint64_t
#include <memory>    // std::make_unique, std::unique_ptr
#include <optional>  // std::optional
#include <span>      // std::as_writable_bytes, std::span
#include <string>    // std::string
#include <utility>   // std::move

#include "gradus/comm/agreement.hpp"
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/nn/network/memory.hpp"
#include "gradus/nn/network/step_hooks.hpp"
#include "gradus/nn/network/step_options.hpp"
#include "gradus/nn/plan/compile_options.hpp"
#include "gradus/nn/plan/stage_cuts.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/pipeline/network_layers.hpp"
#include "gradus/pipeline/ranks.hpp"
#include "gradus/pipeline/rule.hpp"
#include "gradus/pipeline/runner.hpp"
#include "gradus/pipeline/strategy.hpp"
#include "gradus/train/batch_runner.hpp"
#include "gradus/train/execution.hpp"

namespace gradus::train::detail {

/// The batches of a loader, computed in a pipeline. Sums of losses and examples are those of the ranks with the loss.
template <class Network>
class pipeline_batches final : public batch_execution<Network> {
  using element = typename Network::element_type;
  using device = typename Network::device_type;

 public:
  using runner_type = parallel::pipeline_runner<element, device>;
  using observer_type = typename batch_execution<Network>::observer_type;

  /// @param replicas  the ranks with the stages of this one
  /// @param observer  of the scores of evaluations; may be null
  pipeline_batches(Network& network, runner_type& runner, comm::link& replicas, batch_source<Network>& source,
                   observer_type* observer)
      : batch_execution<Network>{network, source, observer}, runner_{&runner}, replicas_{&replicas} {}

  bool next(batch_counts& counts) override {
    const bool more = batch_execution<Network>::next(counts);
    counts.examples = runner_->has_loss() ? counts.examples : 0;
    return more;
  }

  kernels::loss_sums evaluate() override { return runner_->evaluate(own_batch(), this->observer()); }

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
    const network_batch<Network>& all = this->batch();
    return {all.images.data(), all.images.extent(0), all.targets};
  }

  runner_type* runner_;
  comm::link* replicas_;
};

/// How a rank computes its part of a batch by parallel::hybrid.
template <class Network>
class pipeline_execution final : public execution<Network> {
  using element = typename Network::element_type;
  using device = typename Network::device_type;
  using observer_type = typename execution<Network>::observer_type;

 public:
  explicit pipeline_execution(const parallel::hybrid& options) : options_{options} {}

  [[nodiscard]] data::shard shard(const comm::link& group) const override {
    return {.rank = group.rank() / options_.stages, .ranks = group.size() / options_.stages};
  }

  /// Cuts the network, and compiles it for the stages of this rank. Called by all ranks.
  /// @throws configuration_error when the options make no sense, or ranks cut differently
  void prepare(Network& network, comm::any_communicator& communicator) override {
    auto ranks = std::make_unique<parallel::pipeline_ranks>(options_, communicator);
    comm::link& all = ranks->all();
    share_times(all);
    const nn::compile_options compiled = parallel::compile_options_of(options_, network);
    cut_ = parallel::cut_network(network, options_, compiled);
    const comm::property properties[] = {{"micro-batches of a pipeline", gradus::join({options_.micro_batches})},
                                         {"schedule of a pipeline", std::string{options_.schedule.name}},
                                         {"stages of the network", cut_.text}};
    comm::require_agreement(all, "parallel::hybrid", properties);
    nn::stage_cuts cuts = cut_.cuts;
    for (std::size_t s = static_cast<std::size_t>(all.rank() % options_.stages); s < cuts.stages();
         s += static_cast<std::size_t>(options_.stages)) {
      cuts.own.push_back(s);
    }
    network.compile_stages(compiled, cuts);
    runner_.emplace(network, options_.schedule, ranks->channel());
    ranks_ = std::move(ranks);
  }

  [[nodiscard]] dynamic_array<parallel::transfer_buffer> transfer_buffers() const override {
    return runner_->transfer_buffers();
  }

  std::unique_ptr<batch_execution<Network>> training(comm::link& group, Network& network,
                                                     batch_source<Network>& source) override {
    return evaluation(group, network, source, nullptr);
  }
  std::unique_ptr<batch_execution<Network>> evaluation(comm::link& /*group*/, Network& network,
                                                       batch_source<Network>& source,
                                                       observer_type* observer) override {
    return std::make_unique<pipeline_batches<Network>>(network, *runner_, ranks_->replicas(), source, observer);
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

  parallel::hybrid options_;
  std::unique_ptr<parallel::pipeline_ranks> ranks_;
  mutable std::optional<parallel::pipeline_runner<element, device>> runner_;
  parallel::network_stages cut_;
};

}  // namespace gradus::train::detail
