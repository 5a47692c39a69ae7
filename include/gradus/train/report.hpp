// SPDX-License-Identifier: BSL-1.0
//
// What training tells its callbacks.
#pragma once

#include <cstdint>   // std::uint64_t
#include <optional>  // std::optional
#include <string>    // std::string

#include "gradus/core/index.hpp"
#include "gradus/optim/gradient_norm_report.hpp"
#include "gradus/optim/loss_scale_report.hpp"

namespace gradus::train {

/// What a callback may answer after an epoch: whether training goes on. Training stops on all ranks if one of them says
/// so. A callback that answers after a step does not compile: ranks compare no answers there.
enum class flow : unsigned char { go_on, stop };

/// The training that begins.
struct run_information {
  int rank = 0;                    ///< of this process, among the ranks that train
  int ranks = 1;                   ///< number of ranks that train
  int epochs = 0;                  ///< that this call of fit trains, unless a callback stops it
  index_t steps_per_epoch = 0;     ///< the same on all ranks
  index_t examples_per_epoch = 0;  ///< over all ranks
  index_t parameters = 0;          ///< elements of all parameters
};

/// What a call of trainer.train_steps or trainer.train_for has done.
struct steps_report {
  index_t steps = 0;      ///< that it has made, the same on all ranks
  double local_loss = 0;  ///< mean over their examples on this rank; 0 without examples
  double seconds = 0;     ///< that the call took on this rank
  bool over = false;      ///< the training has ended: with the last of its epochs, or by a callback
};

/// One step. The loss is that of this rank only: a report needs no communication.
struct step_report {
  int epoch = 0;                ///< from 0
  index_t step_in_epoch = 0;    ///< from 0
  index_t steps_per_epoch = 0;  ///< run_information::steps_per_epoch
  std::uint64_t step = 0;       ///< from 0, over the whole training
  index_t global_examples = 0;  ///< of this step, over all ranks
  index_t local_examples = 0;   ///< of this step, on this rank
  double local_loss = 0;        ///< mean over local_examples, in nats; 0 without examples
  double learning_rate = 0;     ///< of this step
  /// The norm of the gradients before they were clipped, where they are clipped by it: optim::update. None of a step
  /// that is skipped, and none on a GPU, where a step does not wait for it: see epoch_report.
  std::optional<double> gradient_norm = {};
};

/// The mean loss and the share of right answers over a data set.
struct evaluation_report {
  double loss = 0;       ///< mean over the examples; of softmax_cross_entropy in nats
  double accuracy = 0;   ///< in [0, 1]: labels that were the largest score, of examples or of pixels; 0 without labels
  index_t labels = 0;    ///< that were compared, over all ranks; 0 where the targets are real numbers
  index_t examples = 0;  ///< of the data set, over all ranks
  double seconds = 0;    ///< that it took on this rank
  /// The metrics, if there are some, with a number each: "top-5 0.9990, mean IoU 0.7100".
  std::string metrics = {};
};

/// One epoch, over all ranks.
struct epoch_report {
  int epoch = 0;                       ///< from 0
  int epochs = 0;                      ///< run_information::epochs
  index_t steps = 0;                   ///< of this epoch
  index_t examples = 0;                ///< of this epoch
  double loss = 0;                     ///< mean over the epoch's examples while the weights changed
  double accuracy = 0;                 ///< likewise, in [0, 1]; 0 without labels
  index_t labels = 0;                  ///< that were compared; 0 where the targets are real numbers
  double seconds = 0;                  ///< of this rank, evaluation not included
  double images_per_second = 0;        ///< examples / seconds; 0 if seconds is 0
  double input_seconds = 0;            ///< this rank waited for the loader
  double synchronization_seconds = 0;  ///< this rank waited for other ranks and their gradients, and updated
  std::optional<evaluation_report> evaluation = {};               ///< set by evaluate_every
  std::optional<optim::loss_scale_report> loss_scale = {};        ///< of this rank, where the loss is scaled
  std::optional<optim::gradient_norm_report> gradient_norm = {};  ///< of this epoch, where it is measured
};

}  // namespace gradus::train
