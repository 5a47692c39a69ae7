// SPDX-License-Identifier: BSL-1.0
//
// The ranks of replicas of a pipeline: what they send each other, over any communicator.
#pragma once

#include <utility>  // std::move

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/subset.hpp"
#include "gradus/pipeline/channel.hpp"
#include "gradus/pipeline/strategy.hpp"

namespace gradus::parallel {

/// What a rank sends to the other ranks of parallel::hybrid besides gradients.
class pipeline_ranks {
 public:
  /// Called by all ranks.
  /// @param all  what it refers to outlives this object
  /// @throws configuration_error when the options and the number of ranks do not go together
  pipeline_ranks(const hybrid& options, comm::any_communicator all)
      : all_{(options.check(all.size()), std::move(all))},
        replicas_{comm::split(all_, detail::ranks_of_stage(options, all_.rank(), all_.size()))},
        channel_{all_, detail::ranks_of_replica(options, all_.rank())} {}

  /// All ranks.
  [[nodiscard]] comm::link& all() noexcept { return all_.link(); }
  /// The ranks with the stages of this one, in all replicas.
  [[nodiscard]] comm::link& replicas() noexcept { return replicas_.link(); }
  /// To the other ranks of this replica.
  [[nodiscard]] pipeline_channel& channel() noexcept { return channel_; }

 private:
  comm::any_communicator all_;
  comm::any_communicator replicas_;
  pipeline_channel channel_;
};

}  // namespace gradus::parallel
