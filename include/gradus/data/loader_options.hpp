// SPDX-License-Identifier: BSL-1.0
//
// The options of a loader.
#pragma once

#include <cstdint>  // std::uint64_t

#include "gradus/core/index.hpp"
#include "gradus/data/sampler.hpp"

namespace gradus::data {

/// How a loader makes batches.
struct loader_options {
  index_t global_batch_size = 0;  ///< examples of a step, over all ranks; must be given
  bool shuffle = true;            ///< a new order for each epoch, or always the order of the set
  std::uint64_t seed = 0;         ///< of the orders; the same on all ranks
  /// Which part of each batch is ours. Without ranks the trainer says so: that of its rank among those that train. Said
  /// here, the loader keeps memory for that part alone, and a trainer refuses a loader of another part than its own.
  data::shard shard = {.rank = 0, .ranks = 0};
  bool drop_last = false;  ///< leave out the last batch of an epoch if it is smaller than the others
  int prefetch = 2;        ///< batches prepared ahead, besides the one in use; 1 to 1024
};

}  // namespace gradus::data
