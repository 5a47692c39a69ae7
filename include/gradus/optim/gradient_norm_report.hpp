// SPDX-License-Identifier: BSL-1.0
//
// What is reported of the norms of gradients.
#pragma once

#include "gradus/core/index.hpp"

namespace gradus::optim {

/// The norms of the gradients of some steps, before they were clipped. Of gradients divided by the loss scale; steps
/// that are skipped do not count.
struct gradient_norm_report {
  double last = 0;            ///< of the last step
  double mean = 0;            ///< over the steps; 0 without steps
  double largest = 0;         ///< of all steps
  index_t clipped_steps = 0;  ///< steps whose norm was above the limit
  index_t steps = 0;          ///< number of steps
};

}  // namespace gradus::optim
