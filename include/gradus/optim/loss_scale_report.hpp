// SPDX-License-Identifier: BSL-1.0
//
// What is reported of a loss that is scaled.
#pragma once

#include "gradus/core/index.hpp"

namespace gradus::optim {

/// The scale of the loss and how often it made gradients overflow.
struct loss_scale_report {
  double scale = 1;           ///< factor of the next step's loss
  index_t good_steps = 0;     ///< since the scale was changed or a step was skipped
  index_t skipped_steps = 0;  ///< since training began
};

}  // namespace gradus::optim
