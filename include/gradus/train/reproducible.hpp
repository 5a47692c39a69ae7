// SPDX-License-Identifier: BSL-1.0
//
// A trainer whose weights, losses and statistics do not depend on the number of ranks: parallel::reproducible.
#pragma once

#include "gradus/comm/link.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/parallel/reproducible.hpp"
#include "gradus/train/detail/reproducible/worker_batches.hpp"
#include "gradus/train/detail/reproducible/worker_epoch.hpp"
#include "gradus/train/detail/trainer/trainer_base.hpp"

namespace gradus::train {

namespace detail {

/// How a rank computes its part of a batch by parallel::reproducible.
struct worker_parts {
  worker_epoch epoch;

  [[nodiscard]] static data::shard shard(const comm::link& group) noexcept {
    return {.rank = group.rank(), .ranks = group.size(), .nested = true};
  }
  template <class Network, class Communicator>
  void prepare(Network& /*network*/, Communicator& /*communicator*/) const noexcept {}

  /// Of a training.
  template <class Network, class Loader>
  [[nodiscard]] worker_batches<Network, Loader> batches(comm::link& group, Network& network, Loader& loader) {
    return {epoch, group, network, loader};
  }
  /// Of an evaluation, also within an epoch of a training.
  template <class Network, class Loader>
  [[nodiscard]] worker_batches<Network, Loader> batches(
      comm::link& group, Network& network, Loader& loader,
      typename worker_batches<Network, Loader>::observer_type* observer) const {
    return {epoch.all, group, network, loader, observer};
  }
};

template <class Strategy>
struct parts_of_strategy<parallel::reproducible<Strategy>> {
  using type = worker_parts;
  [[nodiscard]] static type make(const parallel::reproducible<Strategy>& options) noexcept {
    type parts;
    parts.epoch.all = options.virtual_workers;
    return parts;
  }
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
