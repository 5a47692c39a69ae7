// SPDX-License-Identifier: BSL-1.0
//
// The ranks of a communicator as a group that shares the statistics of batch normalization.
#pragma once

#include <memory>   // std::make_unique, std::unique_ptr
#include <span>     // std::span
#include <utility>  // std::move

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/nn/network/statistics_group.hpp"

namespace gradus::parallel {

/// Shares the statistics of nn::synchronized_batch_norm between the ranks of a communicator.
///
/// @code
///   parallel::synchronized_statistics statistics{world};
///   x = net.add("norm", nn::synchronized_batch_norm{.group = &statistics}, x);
/// @endcode
///
/// All ranks construct it, and all ranks add the same layers in the same order. Each layer sends on a duplicate of the
/// communicator, apart from the strategy's gradients. The communicator sends memory of the host: for ranks of
/// comm::nccl, give another one of the same ranks. It may have fewer ranks than those that train, such as those of a
/// node: then each of these groups has statistics of its own.
class synchronized_statistics final : public nn::statistics_group {
 public:
  /// Duplicates `communicator`. Called by all ranks.
  explicit synchronized_statistics(comm::any_communicator communicator) : communicator_{communicator.duplicate()} {}

  [[nodiscard]] std::unique_ptr<nn::statistics_sum> make_sum() override {
    return std::make_unique<sum_of_layer>(communicator_.duplicate());
  }

 private:
  class sum_of_layer final : public nn::statistics_sum {
   public:
    explicit sum_of_layer(comm::any_communicator channel) : channel_{std::move(channel)} {}

    void sum(std::span<double> values) override {
      if (channel_.size() > 1) {
        channel_.link().sum(values);
      }
    }

   private:
    comm::any_communicator channel_;
  };

  comm::any_communicator communicator_;
};

}  // namespace gradus::parallel
