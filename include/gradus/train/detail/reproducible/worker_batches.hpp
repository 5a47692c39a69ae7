// SPDX-License-Identifier: BSL-1.0
//
// A rank's part of each batch, computed for one virtual worker after another.
#pragma once

#include <array>    // std::array
#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint64_t, std::uintptr_t
#include <cstring>  // std::memcpy
#include <memory>   // std::make_unique, std::unique_ptr
#include <span>     // std::span
#include <utility>  // std::swap
#include <vector>   // std::vector

#include "gradus/comm/link.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/exact_sum.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/network/memory.hpp"
#include "gradus/nn/network/phase.hpp"
#include "gradus/nn/network/step_hooks.hpp"
#include "gradus/nn/network/step_options.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/score_observer.hpp"
#include "gradus/nn/targets.hpp"
#include "gradus/tensor/tensor.hpp"
#include "gradus/train/detail/reproducible/worker_epoch.hpp"
#include "gradus/train/detail/reproducible/worker_statistics.hpp"
#include "gradus/train/detail/trainer/loop.hpp"
#include "gradus/train/execution.hpp"

namespace gradus::train::detail {

/// Adds the gradients of a rank's virtual workers in a binary tree, neighbors first. The last worker's are added as
/// backward completes them, and announced to the hooks of the step.
template <class Network>
class gradient_tree final : public nn::step_hooks {
  using number = typename Network::parameter_element_type;
  using device = typename Network::device_type;

 public:
  /// @param workers  of this rank, a power of two
  gradient_tree(Network& network, int workers) : network_{&network} {
    const auto elements = static_cast<index_t>(network.gradients().size());
    for (int all = 1; all < workers; all *= 2) {
      sums_.emplace_back(network.device(), extents<1>{elements});
    }
  }

  /// The worker whose gradients come now, and the hooks of the step.
  void expect(bool last, nn::step_hooks& hooks) noexcept {
    last_ = last;
    hooks_ = &hooks;
  }

  /// The gradients of a worker that is not the last are complete.
  void keep(int worker) {
    const std::span<number> gradients = network_->gradients();
    const auto all = static_cast<index_t>(gradients.size());
    copy_or_add(network_->device(), all, static_cast<const number*>(gradients.data()), sums_[0].data(),
                worker % 2 == 1);
    std::size_t level = 0;  // sums_[level] is to have the sum of 2^level workers
    for (; worker % 2 == 1; worker /= 2, ++level) {
      if (worker / 2 % 2 == 1) {
        copy_or_add(network_->device(), all, static_cast<const number*>(sums_[level].data()), sums_[level + 1].data(),
                    true);
      } else {
        std::swap(sums_[level], sums_[level + 1]);
      }
    }
  }

  void before_layer(std::size_t layer, nn::phase which) override { hooks_->before_layer(layer, which); }
  void after_layer(std::size_t layer, nn::phase which) override { hooks_->after_layer(layer, which); }
  void skip_layer(std::size_t layer) override { hooks_->skip_layer(layer); }
  void gradients_ready(std::size_t first, std::size_t count) override {
    if (!last_) {
      return;
    }
    if (count > 0) {
      const auto& parameters = network_->structure().trained_parameters();
      const index_t begin = parameters[first]->offset;
      const nn::parameter_description& end = *parameters[first + count - 1];
      const index_t elements = end.offset + end.shape.size() - begin;
      for (auto& sum : sums_) {
        copy_or_add(network_->device(), elements, static_cast<const number*>(sum.data()) + begin,
                    network_->gradients().data() + begin, true);
      }
    }
    hooks_->gradients_ready(first, count);
  }

 private:
  Network* network_;
  std::vector<tensor<number, 1, row_major, device>> sums_;  // of 1, 2, 4, ... workers
  bool last_ = false;
  nn::step_hooks* hooks_ = nullptr;
};

/// A rank's part of each batch, computed for one virtual worker after another.
template <class Network>
class worker_batches final : public batch_execution<Network> {
  using element = typename Network::element_type;
  using device = typename Network::device_type;
  using number = typename Network::parameter_element_type;
  using view = typename Network::const_view;
  using targets_type = nn::targets<element, device>;
  static_assert(has_host_memory<device>,
                "gradus: parallel::reproducible is for devices in host memory: sums over ranks are added there");

 public:
  using observer_type = typename batch_execution<Network>::observer_type;

  /// Of a training. @param epoch  of this rank; outlives it
  worker_batches(worker_epoch& epoch, comm::link& group, Network& network, batch_source<Network>& source)
      : worker_batches{epoch.all, &epoch, group, network, source, nullptr} {}

  /// Of an evaluation.
  /// @param workers   of all ranks; a multiple of their number
  /// @param observer  of the scores; may be null
  worker_batches(int workers, comm::link& group, Network& network, batch_source<Network>& source,
                 observer_type* observer)
      : worker_batches{workers, nullptr, group, network, source, observer} {}

  void start_epoch(std::uint64_t epoch, index_t first) override {
    batch_execution<Network>::start_epoch(epoch, first);
    statistics_.use(network_->buffer_values());
    if (first == 0) {  // else the training goes on from a state, which has the epoch so far
      epoch_->begin();
    }
  }

  bool next(batch_counts& counts) override {
    if (!batch_execution<Network>::next(counts)) {
      return false;
    }
    own_ = data::share_of(counts.global_examples, rank_);
    if (own_.count != counts.examples) {
      raise<configuration_error>(
          "trainer",
          {"a loader that gives rank ", rank_.rank, " of ", rank_.ranks, " ", own_.count, " of ",
           counts.global_examples, " examples"},
          {counts.examples},
          "reproducible training has nested shards: share_of(examples, shard) takes what take_shard "
          "was given");
    }
    return true;
  }

  kernels::loss_sums evaluate() override {
    const floating_point_scope arithmetic{flushes_denormals_on(network_->device())};
    return for_each_worker([this](int worker, const data::share& share) -> kernels::loss_sums {
      if (this->observer() != nullptr) {
        this->observer()->begin_worker(worker, own_workers_);
      }
      if (share.count == 0) {
        return {};
      }
      return this->observer() == nullptr ? network_->evaluate(images(share), targets(share))
                                         : network_->evaluate(images(share), targets(share), *this->observer());
    });
  }

  kernels::loss_sums train_step(const nn::step_options& options, nn::step_hooks& hooks) override {
    const floating_point_scope arithmetic{flushes_denormals_on(network_->device())};
    if (gradients_ == nullptr) {
      gradients_ = std::make_unique<gradient_tree<Network>>(*network_, own_workers_);
    }
    gradient_tree<Network>& tree = *gradients_;
    statistics_.begin_step(own_workers_);
    const kernels::loss_sums total = for_each_worker([&, this](int worker, const data::share& share) {
      const bool last = worker + 1 == own_workers_;
      tree.expect(last, hooks);
      statistics_.load(worker, share.count);
      const kernels::loss_sums part =
          network_->train_step(images(share), targets(share), options_of(share, options), &tree);
      statistics_.store(worker, share.count);
      if (!last) {
        tree.keep(worker);
      }
      return part;
    });
    statistics_.end_step();
    return total;
  }

  nn::non_finite first_not_finite(const nn::step_options& options) override {
    nn::non_finite first;
    static_cast<void>(for_each_worker([&, this](int /*worker*/, const data::share& share) -> kernels::loss_sums {
      if (first.where.empty() && share.count > 0) {
        first = network_->find_non_finite(images(share), targets(share), options_of(share, options));
        first.example += first.example < 0 ? 0 : share.begin - own_.begin;
      }
      return {};
    }));
    return first;
  }

  void sum_ranks(comm::link& group, loss_totals& total) override {
    const floating_point_scope scope{flushes_denormals_on(network_->device())};
    constexpr std::size_t counts = 3;  // behind the loss
    std::array<double, exact_sum::numbers + counts> numbers{};
    const auto loss = std::span{numbers}.template first<exact_sum::numbers>();
    epoch_->loss.write(loss);
    std::memcpy(numbers.data() + exact_sum::numbers, total.values + 1, counts * sizeof(double));
    if (group.size() > 1) {
      group.sum(numbers);
    }
    epoch_->loss.read(loss);
    total.values[0] = epoch_->loss.value();
    std::memcpy(total.values + 1, numbers.data() + exact_sum::numbers, counts * sizeof(double));
    statistics_.combine(group, network_->structure());
  }

 private:
  /// @param epoch  null: one of its own
  worker_batches(int workers, worker_epoch* epoch, comm::link& group, Network& network, batch_source<Network>& source,
                 observer_type* observer)
      : batch_execution<Network>{network, source, observer},
        network_{&network},
        rank_{.rank = group.rank(), .ranks = group.size(), .nested = true},
        all_workers_{workers},
        own_workers_{workers / group.size()},
        epoch_{epoch == nullptr ? &own_epoch_ : epoch},
        statistics_{*epoch_} {
    if (network.structure().communicates()) {
      raise<configuration_error>("trainer", "a network whose layers do not exchange statistics",
                                 "nn::synchronized_batch_norm and parallel::reproducible",
                                 "use nn::batch_norm: its statistics are those of a virtual worker on any number of "
                                 "ranks");
    }
  }

  /// The part of the batch of a virtual worker of this rank.
  [[nodiscard]] data::share share_of_worker(int worker) const noexcept {
    return data::share_of(this->batch().global_examples,
                          {.rank = rank_.rank * own_workers_ + worker, .ranks = all_workers_, .nested = true});
  }

  /// Calls body(worker, share), and sums the losses that it returns.
  template <class Body>
  kernels::loss_sums for_each_worker(const Body& body) {
    kernels::loss_sums total;
    for (int worker = 0; worker < own_workers_; ++worker) {
      const kernels::loss_sums part = body(worker, share_of_worker(worker));
      epoch_->loss.add(part.loss);
      total += part;
    }
    return total;
  }

  [[nodiscard]] nn::step_options options_of(const data::share& share, nn::step_options options) const noexcept {
    options.first_example += static_cast<std::uint64_t>(share.begin - own_.begin);
    options.global_examples = this->batch().global_examples;
    return options;
  }

  [[nodiscard]] view images(const data::share& share) {
    const extents<4>& all = this->batch().images.extents();
    const extents<4> part{share.count, all[1], all[2], all[3]};
    const index_t first = (share.begin - own_.begin) * all[1] * all[2] * all[3];
    return {network_->device(), aligned(this->batch().images.data() + first, part.size(), copied_images_), part};
  }

  [[nodiscard]] targets_type targets(const data::share& share) {
    targets_type part = nn::part_of_targets(this->batch().targets, network_->target_description(),
                                            share.begin - own_.begin, share.count);
    if (part.values.examples() > 0) {
      part.values = {network_->device(), aligned(part.values.data(), part.values.size(), copied_targets_),
                     part.values.extents()};
    }
    return part;
  }

  /// The elements, or a copy of them that begins at a line of the cache. Loops may add in another order where arrays
  /// begin elsewhere, and where a worker's examples begin depends on the number of ranks.
  template <class Number>
  [[nodiscard]] const Number* aligned(const Number* data, index_t count, tensor<Number, 1, row_major, device>& copy) {
    if (count == 0 || reinterpret_cast<std::uintptr_t>(data) % 64 == 0) {
      return data;
    }
    if (copy.size() < count) {
      copy = tensor<Number, 1, row_major, device>{network_->device(), extents<1>{count}};
    }
    std::memcpy(static_cast<void*>(copy.data()), data, static_cast<std::size_t>(count) * sizeof(Number));
    return copy.data();
  }

  Network* network_;
  data::shard rank_;
  int all_workers_;
  int own_workers_;
  data::share own_;         // of this rank, in the batch
  worker_epoch own_epoch_;  // of an evaluation
  worker_epoch* epoch_;
  worker_statistics<number> statistics_;
  std::unique_ptr<gradient_tree<Network>> gradients_;  // of trainings
  tensor<element, 1, row_major, device> copied_images_{network_->device(), extents<1>{0}};
  tensor<number, 1, row_major, device> copied_targets_{network_->device(), extents<1>{0}};
};

}  // namespace gradus::train::detail
