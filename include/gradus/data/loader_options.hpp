// SPDX-License-Identifier: BSL-1.0
//
// The options of a loader.
#pragma once

#include <cstdint>  // std::uint64_t

#include "gradus/core/index.hpp"
#include "gradus/data/sampler.hpp"

namespace gradus::data {

/// Options of a loader.
struct loader_options {
  index_t global_batch_size = 0;  ///< examples of a step over all ranks; all of the set if it has fewer; required
  bool shuffle = true;            ///< true: a new order for each epoch; false: the order of the set
  std::uint64_t seed = 0;         ///< of the random orders; the same on all ranks
  /// The shard of each batch that this loader yields. By default the trainer sets it to the shard of its rank. If it is
  /// set here, the loader allocates memory only for that shard, and a trainer refuses a loader with another shard than
  /// its own.
  data::shard shard = {.rank = 0, .ranks = 0};
  bool drop_last = false;  ///< leave out the last batch of an epoch if it is smaller than the others
  int prefetch = 2;        ///< batches prepared ahead, in addition to the one in use; 1 to 1024
  /// Read another variant of each example in each epoch, if the data set has them (see dataset); false for evaluation.
  bool augment = true;
};

}  // namespace gradus::data
