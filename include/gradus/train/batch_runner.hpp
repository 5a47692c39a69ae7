// SPDX-License-Identifier: BSL-1.0
//
// The batches of a fit or of an evaluation, and what a rank does with each: the base class behind execution.hpp.
#pragma once

#include <cstddef>  // std::byte
#include <cstdint>  // std::uint64_t
#include <span>     // std::span

#include "gradus/comm/link.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/nn/network/memory.hpp"
#include "gradus/nn/network/step_hooks.hpp"
#include "gradus/nn/network/step_options.hpp"

namespace gradus::train {

/// The examples of a batch.
struct batch_counts {
  std::uint64_t first_example = 0;  ///< the number in the training of the first one of this rank
  index_t global_examples = 0;      ///< over all ranks
  index_t examples = 0;             ///< of this rank
};

/// Losses and right answers, summed over examples.
struct loss_totals {
  double values[4] = {};  ///< loss, right answers, examples, labels

  /// Adds those of a batch.
  void add(const kernels::loss_sums& part, index_t examples) noexcept {
    values[0] += part.loss;
    values[1] += static_cast<double>(part.correct);
    values[2] += static_cast<double>(examples);
    values[3] += static_cast<double>(part.labels);
  }
  /// The mean over the examples; 0 without examples.
  [[nodiscard]] double loss() const noexcept { return values[2] > 0 ? values[0] / values[2] : 0.0; }
  /// The right answers over the labels; 0 without labels.
  [[nodiscard]] double accuracy() const noexcept { return values[3] > 0 ? values[1] / values[3] : 0.0; }
  /// How many examples were added.
  [[nodiscard]] double examples() const noexcept { return values[2]; }
  /// How many labels they had.
  [[nodiscard]] double labels() const noexcept { return values[3]; }
};

/// The batches of a fit or of an evaluation on this rank, one after another, and what is done with each. See
/// batch_execution, which does it with a network.
class batch_runner {
 public:
  batch_runner() = default;
  batch_runner(const batch_runner&) = delete;
  batch_runner& operator=(const batch_runner&) = delete;

  /// Begins an epoch. @param first  batches that are left out
  virtual void start_epoch(std::uint64_t epoch, index_t first) = 0;
  /// Goes to the next batch; false after the last.
  [[nodiscard]] virtual bool next(batch_counts& batch) = 0;
  /// The loss of the batch, without a step.
  [[nodiscard]] virtual kernels::loss_sums evaluate() = 0;
  /// Forward, loss and backward of the batch. @param observer  gets gradients_ready as they are complete
  virtual kernels::loss_sums train_step(const nn::step_options& options, nn::step_hooks& observer) = 0;
  /// Where the batch first makes something that is not finite.
  [[nodiscard]] virtual nn::non_finite first_not_finite(const nn::step_options& options) = 0;
  /// Before an evaluation: the statistics of the network become the same on all ranks that have them.
  virtual void share_statistics(comm::link& group, std::span<std::byte> statistics) {
    if (group.size() > 1 && !statistics.empty()) {
      group.broadcast(statistics, 0);
    }
  }
  /// Ends an epoch or an evaluation: its sums on this rank become those of all ranks.
  virtual void sum_ranks(comm::link& group, loss_totals& total) {
    if (group.size() > 1) {
      group.sum(total.values);
    }
  }

 protected:
  ~batch_runner() = default;
};

}  // namespace gradus::train
