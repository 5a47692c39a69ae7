// SPDX-License-Identifier: BSL-1.0
//
// Pipelines of stages, and replicas of them: data and model parallelism in one strategy.
#pragma once

#include <algorithm>    // std::max
#include <cstddef>      // std::byte, std::size_t
#include <limits>       // std::numeric_limits
#include <memory>       // std::make_unique, std::unique_ptr
#include <optional>     // std::optional
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/subset.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/plan/compile_options.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/parallel/transfer_order/step_graph.hpp"
#include "gradus/pipeline/rule.hpp"

namespace gradus::train::detail {

template <class Network>
class pipeline_execution;  // gradus/pipeline/hybrid.hpp

}  // namespace gradus::train::detail

namespace gradus::parallel {

namespace detail {

template <class Element>
class hybrid_state;

}  // namespace detail

/// Cuts the network into stages, each on a rank, and trains replicas of this pipeline: hybrid parallelism (Awan et al.,
/// "HyPar-Flow: exploiting MPI and Keras for scalable hybrid-parallel DNN training with TensorFlow", 2020). A rank
/// holds the parameters, gradients and state of the update rule of its stage only, so a network may be larger than a
/// rank.
///
/// @code
///   #include <gradus/pipeline.hpp>
///   train::trainer trainer{net, optim::sgd{.momentum = 0.9}, world, parallel::hybrid{.stages = 4, .micro_batches =
///   16}};
/// @endcode
///
/// Ranks 0 to stages - 1 are the first replica, the next ones the second; each replica trains its share of every batch,
/// cut into micro-batches. Values go from stage to stage, gradients back, in the order of a schedule that is checked
/// before the first step; the gradients of a stage are summed over the replicas behind backward, as by
/// parallel::all_reduce. The trainer cuts the network, so the program, the network and the loader are those of other
/// strategies; a network that was compiled keeps its values. What does not fit a rank is not compiled by the program:
/// `compile` then has the options.
///
/// With one replica a step gives the same bits as one process with a micro_batch_size of max_batch_size /
/// micro_batches, rounded up; with several replicas the same up to rounding. Statistics of batch normalization are
/// those of a micro-batch.
struct hybrid {
  /// The name of the strategy in messages.
  static constexpr std::string_view name = "hybrid";

  /// The ranks of a replica; the number of ranks is a multiple of it.
  int stages = 1;
  /// Micro-batches of the largest batch of a replica. More make the ranks wait less, and each pass smaller.
  int micro_batches = 1;
  /// The order of passes: parallel::gpipe, parallel::one_f_one_b or parallel::zero_bubble.
  pipeline_rule schedule = one_f_one_b;
  /// Stages of each rank; above 1 for parallel::one_f_one_b, which then interleaves them.
  int stages_per_rank = 1;
  /// The names of the first layers of all stages but the first; empty: the cuts are chosen so that the longest stage is
  /// as short as it can be.
  std::vector<std::string> first_layers{};
  /// Seconds that each layer takes, measured by a profile_recorder on a network with these micro-batches: cuts are
  /// chosen by them. The times of rank 0 count, also if it has none. Empty: estimates of multiply-adds and elements,
  /// which do not know that some layers compute faster than others.
  std::vector<step_profile::layer> layer_times{};
  /// What a rank may take, in bytes: parameters, gradients, the state of the rule and values.
  std::size_t memory_limit = std::numeric_limits<std::size_t>::max();
  /// The options of a network that is not compiled yet: a rank then takes memory for its stages only.
  std::optional<nn::compile_options> compile{};
  /// How gradients are summed over the replicas of a stage.
  all_reduce gradients{};

  /// @param ranks  of the communicator
  /// @throws configuration_error when the numbers do not go together
  void check(int ranks) const {
    if (stages < 1 || micro_batches < 1 || stages_per_rank < 1) {
      raise<configuration_error>(
          "parallel::hybrid", "stages, micro_batches and stages_per_rank of at least 1",
          {"stages = ", stages, ", micro_batches = ", micro_batches, ", stages_per_rank = ", stages_per_rank});
    }
    if (ranks % stages != 0) {
      raise<configuration_error>("parallel::hybrid", {"a multiple of ", stages, " ranks, the ranks of a replica"},
                                 {ranks, " ranks"}, "start that many ranks, or choose other stages");
    }
    if (schedule.make == nullptr) {
      raise<configuration_error>("parallel::hybrid", "a schedule", "none", "write .schedule = parallel::one_f_one_b");
    }
    static_cast<void>(schedule.make(stages, 1, stages_per_rank));
  }

  /// The object of one rank that brings its gradients together; see gradient_strategy.
  template <class Element>
  using state = detail::hybrid_state<Element>;
  /// How a rank computes its part of a batch; see train::execution.
  template <class Network>
  using execution = train::detail::pipeline_execution<Network>;
};

namespace detail {

/// The ranks of the replica of a rank.
[[nodiscard]] inline std::vector<int> ranks_of_replica(const hybrid& options, int rank) {
  std::vector<int> ranks;
  const int first = rank / options.stages * options.stages;
  for (int each = first; each < first + options.stages; ++each) {
    ranks.push_back(each);
  }
  return ranks;
}

/// The ranks with the stages of a rank, in all replicas.
[[nodiscard]] inline std::vector<int> ranks_of_stage(const hybrid& options, int rank, int size) {
  std::vector<int> ranks;
  for (int each = rank % options.stages; each < size; each += options.stages) {
    ranks.push_back(each);
  }
  return ranks;
}

/// Sums the gradients of a stage over the replicas, and what the update rule needs of all gradients over the stages.
template <class Element>
class hybrid_state final : public all_reduce::state<Element> {
  using sums = all_reduce::state<Element>;  // over the ranks with this rank's stages

 public:
  /// Called by all ranks, with the parameters of this rank's stages.
  /// @throws configuration_error when options make no sense
  hybrid_state(const hybrid& options, comm::any_communicator communicator, const flat_parameters<Element>& parameters)
      : sums{(options.check(communicator.size()), options.gradients),
             comm::split(communicator, ranks_of_stage(options, communicator.rank(), communicator.size())), parameters},
        options_{options},
        stages_{comm::split(communicator, ranks_of_replica(options, communicator.rank()))} {}

  ~hybrid_state() override = default;

  /// The same text on all ranks. What the stages are is compared when the network is cut.
  [[nodiscard]] std::string describe() const override {
    return gradus::join({hybrid::name, ": ", options_.stages, " ranks of a replica with ", options_.stages_per_rank,
                         " stages each, ", options_.micro_batches, " micro-batches, ", options_.schedule.name,
                         ", buckets of ", options_.gradients.bucket_bytes, " bytes"});
  }
  [[nodiscard]] int rank_of_stage(std::size_t stage) const noexcept override {
    return static_cast<int>(stage % static_cast<std::size_t>(options_.stages));
  }
  void share_frozen(std::span<std::byte> values) override {
    if (sums::communicator().size() > 1 && !values.empty()) {
      sums::communicator().link().broadcast(values, 0);
    }
  }

  void use(optim::parameter_update<Element>& rule) override { rule_ = &rule; }

  void finish(const update_call& update) override {
    if (needs_all()) {
      const auto nothing = [](std::span<const optim::segment> /*arrived*/) {};
      sums::finish(update_call{nothing});  // waits for all sums over the replicas
      test();
      update(sums::parameters().segments);
    } else {
      sums::finish(update);
    }
  }
  [[nodiscard]] bool has_deferred_update() const noexcept override {
    return rule_ != nullptr && !needs_all() && sums::has_deferred_update();
  }

  [[nodiscard]] update_scope scope() const noexcept override { return update_scope::stages; }
  [[nodiscard]] bool sums_totals() const noexcept override { return true; }

 private:
  [[nodiscard]] bool needs_all() const noexcept { return rule_ != nullptr && rule_->needs_all_gradients(); }

  /// Totals become those of all stages, so that a step that is skipped because of one stage is skipped by all. They are
  /// added up in the order of the segments of the whole network, from the last layer to the first, so that they have
  /// the bits of one process: they go from the rank of each stage to that of the stage before.
  void test() {
    const int ranks = stages_.size();
    const int after = (stages_.rank() + 1) % ranks;
    const int before = (stages_.rank() + ranks - 1) % ranks;
    std::size_t first = 0;
    for (int k = options_.stages_per_rank; k-- > 0;) {
      const bool last = k + 1 == options_.stages_per_rank && stages_.rank() + 1 == ranks;
      if (!last && ranks > 1) {
        comm::receive(stages_, after, rule_->totals()).wait();
      }
      const std::size_t count = segments_of_stage(static_cast<std::size_t>(k));
      rule_->test(sums::parameters().segments.subspan(first, count), sums::parameters().gradients.data());
      first += count;
      if ((k > 0 || stages_.rank() > 0) && ranks > 1) {
        comm::send(stages_, before, std::span<const double>{rule_->totals()}).wait();
      }
    }
    if (ranks > 1) {
      comm::broadcast(stages_, rule_->totals(), 0).wait();
    }
    rule_->use_totals();
  }

  /// @param k  counts the stages of this rank
  [[nodiscard]] std::size_t segments_of_stage(std::size_t k) const noexcept {
    const std::span<const std::size_t> counts = sums::parameters().of_stage;
    return counts.empty() ? sums::parameters().segments.size() : counts[counts.size() - 1 - k];
  }

  hybrid options_;
  comm::any_communicator stages_;  // of this rank's replica
  optim::parameter_update<Element>* rule_ = nullptr;
};

}  // namespace detail

static_assert(gradient_strategy<hybrid>);

}  // namespace gradus::parallel
