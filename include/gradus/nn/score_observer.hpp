// SPDX-License-Identifier: BSL-1.0
//
// The interface that receives the scores of an evaluation.
#pragma once

#include "gradus/nn/network/image_batch.hpp"
#include "gradus/nn/targets.hpp"

namespace gradus::nn {

/// Receives the scores of an evaluation, which runs a batch in parts of at most micro_batch_size examples.
template <class Element, class Device>
class score_observer {
 public:
  score_observer() = default;
  score_observer(const score_observer&) = delete;
  score_observer& operator=(const score_observer&) = delete;

  /// Called after the loss of each part. Scores and targets are valid during the call, in the memory of the device.
  virtual void scored(const image_batch<const Element, Device>& scores,
                      const targets<Element, Device>& part_targets) = 0;
  /// The scores that follow are those of worker `worker` of `workers`, which are to be summed apart: so that sums do
  /// not depend on who computes which of them (parallel::reproducible). Never called otherwise.
  virtual void begin_worker(int /*worker*/, int /*workers*/) {}

 protected:
  ~score_observer() = default;
};

}  // namespace gradus::nn
