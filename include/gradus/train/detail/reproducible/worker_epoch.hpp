// SPDX-License-Identifier: BSL-1.0
//
// What the virtual workers of a rank have in the course of an epoch.
#pragma once

#include <cstddef>  // std::byte
#include <cstdint>  // std::uint8_t

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/exact_sum.hpp"

namespace gradus::train::detail {

/// The part of the state of a reproducible training that an epoch begins anew. A trainer has it, so that checkpoints
/// can be made within an epoch.
struct worker_epoch {
  int all = 1;                          ///< virtual workers, of all ranks
  exact_sum loss = {};                  ///< of the epoch so far, on this rank
  bool began = false;                   ///< the workers have statistics of their own
  dynamic_array<std::byte> statistics;  ///< (workers of this rank, the network's buffers)
  dynamic_array<std::uint8_t> trained;  ///< 1 for each worker of this rank that had examples in this epoch

  /// A new epoch.
  void begin() noexcept {
    loss = {};
    began = false;
  }
};

}  // namespace gradus::train::detail
