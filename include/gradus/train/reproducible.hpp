// SPDX-License-Identifier: BSL-1.0
//
// A trainer whose weights, losses and statistics do not depend on the number of ranks: parallel::reproducible.
#pragma once

#include <memory>  // std::make_unique, std::unique_ptr
#include <string>  // std::string

#include "gradus/comm/link.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/parallel/reproducible.hpp"
#include "gradus/train/detail/reproducible/worker_batches.hpp"
#include "gradus/train/detail/reproducible/worker_epoch.hpp"
#include "gradus/train/execution.hpp"

namespace gradus::train {

namespace detail {

/// How a rank computes its part of a batch by parallel::reproducible: for one virtual worker after another.
template <class Network>
class worker_execution final : public execution<Network> {
  using observer_type = typename execution<Network>::observer_type;

 public:
  template <class Strategy>
  explicit worker_execution(const parallel::reproducible<Strategy>& options) {
    epoch_.all = options.virtual_workers;
  }

  [[nodiscard]] data::shard shard(const comm::link& group) const override {
    return {.rank = group.rank(), .ranks = group.size(), .nested = true};
  }
  std::unique_ptr<batch_execution<Network>> training(comm::link& group, Network& network,
                                                     batch_source<Network>& source) override {
    return std::make_unique<worker_batches<Network>>(epoch_, group, network, source);
  }
  std::unique_ptr<batch_execution<Network>> evaluation(comm::link& group, Network& network,
                                                       batch_source<Network>& source,
                                                       observer_type* observer) override {
    return std::make_unique<worker_batches<Network>>(epoch_.all, group, network, source, observer);
  }
  [[nodiscard]] std::string describe() const override {
    return gradus::join({"reproducible for ", epoch_.all, " virtual workers, "});
  }
  [[nodiscard]] worker_epoch* workers() noexcept override { return &epoch_; }

 private:
  worker_epoch epoch_;
};

}  // namespace detail

/// The largest number of examples of a virtual worker in a batch: the max_batch_size for which a network is compiled
/// that is trained by parallel::reproducible.
/// @param global_batch_size  examples of a batch over all ranks
/// @param virtual_workers    as parallel::reproducible::virtual_workers
/// @throws configuration_error if a number is below 1
[[nodiscard]] inline index_t worker_batch_size(index_t global_batch_size, int virtual_workers = 8,
                                               error_location where = error_location::current()) {
  if (global_batch_size < 1 || virtual_workers < 1) {
    raise<configuration_error>("train::worker_batch_size", "a batch and virtual workers of at least 1",
                               {global_batch_size, " and ", virtual_workers}, {}, where);
  }
  return (global_batch_size - 1) / virtual_workers + 1;
}

}  // namespace gradus::train
