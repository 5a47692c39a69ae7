// SPDX-License-Identifier: BSL-1.0
//
// The factor by which the loss of a step is multiplied, so that small 16-bit gradients do not become zero.
#pragma once

#include "gradus/core/config.hpp"

namespace gradus {

/// The state of a loss scale, stored as doubles in this order.
enum class loss_scale_number : int {
  scale,          ///< factor of the next step's loss
  good_steps,     ///< steps since the last change of the scale or the last skipped step
  skipped_steps,  ///< steps skipped since training began
  not_finite,     ///< 0 unless a gradient of this step is infinite or NaN
  count           ///< not a number of the state, but how many there are
};

/// The factor by which the gradients of a step are multiplied, and divided again when parameters are updated. On a
/// device that works asynchronously, numbers[scale] holds it as well as `factor`. There, a step with
/// numbers[not_finite] != 0 updates nothing.
struct loss_scale {
  double factor = 1;                ///< the factor by which gradients are multiplied
  const double* numbers = nullptr;  ///< in device memory, in the order of loss_scale_number; null: not used

  /// True if all members are equal.
  friend bool operator==(const loss_scale&, const loss_scale&) = default;
};

namespace detail {
/// The index of a number in loss_scale::numbers.
[[nodiscard]] constexpr int index_of(loss_scale_number which) noexcept {
  return static_cast<int>(which);
}
}  // namespace detail

}  // namespace gradus
