// SPDX-License-Identifier: BSL-1.0
//
// The norm of all gradients of a step: its sum of squares on the CPU, and the factor that clips them.
#pragma once

#include <algorithm>  // std::max, std::min
#include <array>      // std::array
#include <cstddef>    // std::size_t
#include <limits>     // std::numeric_limits
#include <span>       // std::span

#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/cpu_passes.hpp"
#include "gradus/optim/elementwise_pass.hpp"
#include "gradus/optim/gradient_norm_report.hpp"
#include "gradus/optim/segment.hpp"

namespace gradus::optim {

/// The state of a rule that clips by the norm, stored as doubles in this order.
enum class norm_number : int {
  scale,          ///< what the gradients of this step are divided by: these four are those of loss_scale_number
  good_steps,     ///< not used
  skipped_steps,  ///< of the scaled loss around the rule
  not_finite,     ///< likewise
  squares,        ///< the sum of the squares of this step's gradients so far
  last,           ///< the norm of the last step
  total,          ///< the sum of the norms since the last report
  largest,        ///< of the norms since the last report
  clipped_steps,  ///< steps that were clipped since the last report
  steps,          ///< steps since the last report
  count           ///< not a number of the state, but how many there are
};

namespace detail {

/// The index of a number.
[[nodiscard]] constexpr int index_of(norm_number which) noexcept {
  return static_cast<int>(which);
}

/// Ends a sum of squares: stores the norm, and returns the factor for all gradients, min(1, max_norm / (norm + 1e-6))
/// as torch.nn.utils.clip_grad_norm_. Also compiled for GPUs.
/// @param numbers  in the order of norm_number
/// @param scale    what the gradients have been multiplied by
constexpr double clip_factor(double max_norm, double scale, double* numbers) noexcept {
  const double norm = square_root(numbers[index_of(norm_number::squares)]) / scale;
  numbers[index_of(norm_number::squares)] = 0;
  numbers[index_of(norm_number::last)] = norm;
  numbers[index_of(norm_number::total)] += norm;
  numbers[index_of(norm_number::steps)] += 1;
  double& largest = numbers[index_of(norm_number::largest)];
  largest = norm <= largest ? largest : norm;
  if (max_norm > std::numeric_limits<double>::max()) {
    return 1;  // also where the norm is infinite or NaN
  }
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) {
    return 1;
  }
  numbers[index_of(norm_number::clipped_steps)] += 1;
  return factor;
}

/// What the numbers say; those since the last report begin anew.
[[nodiscard]] inline gradient_norm_report take_norm_report(double* numbers) noexcept {
  const auto at = [&](norm_number which) -> double& { return numbers[index_of(which)]; };
  const double steps = at(norm_number::steps);
  const gradient_norm_report report{.last = at(norm_number::last),
                                    .mean = steps > 0 ? at(norm_number::total) / steps : 0.0,
                                    .largest = at(norm_number::largest),
                                    .clipped_steps = static_cast<index_t>(at(norm_number::clipped_steps)),
                                    .steps = static_cast<index_t>(steps)};
  for (const norm_number each :
       {norm_number::total, norm_number::largest, norm_number::clipped_steps, norm_number::steps}) {
    at(each) = 0;
  }
  return report;
}

}  // namespace detail

/// Adds the squares of the gradients of `segments` to *sum. Sums are in double precision. Segments are added in their
/// order, a block of each after another: the result depends neither on the number of threads nor on how the segments
/// are divided into calls.
template <class Element>
void add_squares(cpu& device, std::span<const segment> segments, const Element* gradients, double* sum) {
  const floating_point_scope arithmetic{device.flush_denormals()};
  struct block {
    const Element* first;
    index_t elements;
  };
  constexpr std::size_t most_blocks = 512;
  std::array<block, most_blocks> blocks;
  std::array<double, most_blocks> squares;
  std::size_t count = 0;
  index_t elements = 0;
  const auto add_blocks = [&] {
    // Small networks are not worth the threads.
    const auto all = static_cast<index_t>(count);
    const index_t grain = elements <= detail::pass_grain ? all : (all - 1) / (4 * index_t{device.threads()}) + 1;
    device.parallel_for(all, grain, [&](index_t begin, index_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        squares[i] = detail::sum_of_squares(blocks[i].elements, blocks[i].first);
      }
    });
    for (std::size_t i = 0; i < count; ++i) {
      *sum += squares[i];
    }
    count = 0;
    elements = 0;
  };
  for (const segment& part : segments) {
    for (index_t begin = 0; begin < part.size; begin += detail::pass_grain) {
      const index_t size = std::min(detail::pass_grain, part.size - begin);
      blocks[count++] = {gradients + part.offset + begin, size};
      elements += size;
      if (count == most_blocks) {
        add_blocks();
      }
    }
  }
  if (count != 0) {
    add_blocks();
  }
}

/// Ends a sum of squares. @return  what to divide the gradients by, so that their norm is at most max_norm
/// @param scale    what they have been multiplied by
/// @param numbers  in the order of norm_number
[[nodiscard]] inline loss_scale clip_by_norm(cpu& /*device*/, double max_norm, const loss_scale& scale,
                                             double* numbers) noexcept {
  return {.factor = scale.factor / detail::clip_factor(max_norm, scale.factor, numbers), .numbers = nullptr};
}

}  // namespace gradus::optim
