// SPDX-License-Identifier: BSL-1.0
//
// What is decided when all gradients of a step are known: whether it is skipped, and what they are divided by.
#pragma once

#include <limits>  // std::numeric_limits
#include <span>    // std::span

#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/elementwise_pass.hpp"
#include "gradus/optim/gradient_norm_report.hpp"
#include "gradus/optim/loss_scaling.hpp"

namespace gradus::optim::detail {

/// The numbers of an update, stored as doubles in this order.
enum class update_number : int {
  scale,             ///< of the next step's loss: these four are those of loss_scale_number
  good_steps,        ///< likewise
  skipped_steps,     ///< likewise
  not_finite,        ///< likewise
  step_scale,        ///< what the gradients of this step are divided by: these four too
  step_good,         ///< not used
  step_skipped,      ///< the steps skipped before
  step_not_finite,   ///< not 0: this step is skipped
  total_not_finite,  ///< above 0 if a gradient that was tested is not finite: these two are totals
  total_squares,     ///< the sum of the squares of the gradients that were tested
  last,              ///< the norm of the last step: these five are stored in checkpoints
  sum,               ///< of the norms since the last report
  largest,           ///< of the norms since the last report
  clipped_steps,     ///< steps that were clipped since the last report
  steps,             ///< steps since the last report
  count              ///< not a number of the update, but how many there are
};

/// The index of a number.
[[nodiscard]] constexpr int index_of(update_number which) noexcept {
  return static_cast<int>(which);
}

/// The factor for all gradients, min(1, max_norm / (norm + 1e-6)) as torch.nn.utils.clip_grad_norm_. Notes the norm.
/// Also compiled for GPUs.
/// @param numbers  in the order of update_number
/// @param scale    what the gradients have been multiplied by
constexpr double clip_factor(double max_norm, double scale, double* numbers) noexcept {
  const double norm = square_root(numbers[index_of(update_number::total_squares)]) / scale;
  numbers[index_of(update_number::last)] = norm;
  numbers[index_of(update_number::sum)] += norm;
  numbers[index_of(update_number::steps)] += 1;
  double& largest = numbers[index_of(update_number::largest)];
  largest = norm <= largest ? largest : norm;
  if (max_norm > std::numeric_limits<double>::max()) {
    return 1;  // also where the norm is infinite or NaN
  }
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) {
    return 1;
  }
  numbers[index_of(update_number::clipped_steps)] += 1;
  return factor;
}

/// Uses the totals of all gradients of a step, and sets them to 0. A skipped step has no norm. Also compiled for GPUs.
/// @param max_norm  the largest norm of the gradients
/// @param scaling   how the scale of the next step's loss follows
/// @param numbers   in the order of update_number
constexpr void decide_step(double max_norm, const loss_scaling& scaling, double* numbers) noexcept {
  const double scale = numbers[index_of(update_number::scale)];
  double& infinite = numbers[index_of(update_number::total_not_finite)];
  numbers[index_of(update_number::step_skipped)] = numbers[index_of(update_number::skipped_steps)];
  numbers[index_of(update_number::step_not_finite)] = infinite;
  numbers[index_of(update_number::step_scale)] = infinite != 0 ? scale : scale / clip_factor(max_norm, scale, numbers);
  if (scaling.enabled) {
    numbers[index_of(update_number::not_finite)] = infinite;
    next_loss_scale(scaling, numbers);
  }
  infinite = 0;
  numbers[index_of(update_number::total_squares)] = 0;
}

/// Runs the decision in order with the device's other work.
inline void decide_step_on(cpu& /*device*/, double max_norm, const loss_scaling& scaling, double* numbers) noexcept {
  decide_step(max_norm, scaling, numbers);
}

/// What the numbers say of norms; those since the last report begin anew.
[[nodiscard]] inline gradient_norm_report take_norm_report(double* numbers) noexcept {
  const auto at = [&](update_number which) -> double& { return numbers[index_of(which)]; };
  const double steps = at(update_number::steps);
  const gradient_norm_report report{.last = at(update_number::last),
                                    .mean = steps > 0 ? at(update_number::sum) / steps : 0.0,
                                    .largest = at(update_number::largest),
                                    .clipped_steps = static_cast<index_t>(at(update_number::clipped_steps)),
                                    .steps = static_cast<index_t>(steps)};
  for (const update_number each :
       {update_number::sum, update_number::largest, update_number::clipped_steps, update_number::steps}) {
    at(each) = 0;
  }
  return report;
}

}  // namespace gradus::optim::detail
