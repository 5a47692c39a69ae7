// SPDX-License-Identifier: BSL-1.0
//
// What the loss of a step is multiplied by, so that gradients of 16 bits keep their small numbers.
#pragma once

#include "gradus/core/config.hpp"

namespace gradus {

/// The numbers that are kept about the scale of a loss, in this order, as doubles.
enum class loss_scale_number : int {
  scale,          ///< what the loss of the next step is multiplied by
  good_steps,     ///< since the scale was changed or a step was skipped
  skipped_steps,  ///< since training began
  not_finite,     ///< 0 unless a gradient of this step is infinite or no number
  count
};

/// What the gradients of a step are multiplied by, and divided by again when parameters are updated:
/// `factor`, and on a device whose work goes on while the host does also numbers[scale]. Where numbers[not_finite] is
/// not 0 there, nothing is updated.
struct loss_scale {
  double factor = 1;
  const double* numbers = nullptr;  ///< in the memory of the device, in the order of loss_scale_number; null: none

  friend bool operator==(const loss_scale&, const loss_scale&) = default;
};

namespace detail {
/// The index of a number in loss_scale::numbers.
[[nodiscard]] constexpr int index_of(loss_scale_number which) noexcept {
  return static_cast<int>(which);
}
}  // namespace detail

}  // namespace gradus
