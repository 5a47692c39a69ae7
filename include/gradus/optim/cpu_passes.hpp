// SPDX-License-Identifier: BSL-1.0
//
// Loops of update rules over parameters, gradients and velocities on the CPU.
#pragma once

#include <algorithm>  // std::max, std::min
#include <array>      // std::array
#include <cmath>      // std::sqrt
#include <cstddef>    // std::size_t
#include <span>       // std::span

#include "gradus/core/config.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/simd/transform.hpp"

namespace gradus::optim {

/// The coefficients of one step of stochastic gradient descent with momentum:
///
///   g' = gradient_scale * (g + weight_decay * p);  v <- momentum * v + g';
///   p <- p - learning_rate * (nesterov ? g' + momentum * v : v)
///
/// where g is the gradient divided by the loss scale. Without velocities (a null pointer) p <- p - learning_rate * g'.
struct momentum_pass {
  double learning_rate = 0;         ///< at least 0; times segment::learning_rate_factor
  double momentum = 0;              ///< in [0, 1)
  double weight_decay = 0;          ///< applies to segments with `decay`
  double gradient_scale = 1;        ///< a factor of all gradients
  bool nesterov = false;            ///< needs velocities
  gradus::loss_scale loss_scale{};  ///< factor of the loss by which gradients are divided
};

namespace detail {

/// A step of momentum_pass.
template <class Element>
struct momentum_step {
  Element rate, momentum, decay, scale;
  bool nesterov;

  template <class Number>
  GRADUS_ALWAYS_INLINE void operator()(Number& value, const Number& gradient) const noexcept {
    value -= rate * (scale * gradient + decay * value);
  }
  template <class Number>
  GRADUS_ALWAYS_INLINE void operator()(Number& value, Number& velocity, const Number& g) const noexcept {
    const Number gradient = scale * g + decay * value;
    velocity = momentum * velocity + gradient;
    value -= rate * (nesterov ? gradient + momentum * velocity : velocity);
  }
};

/// Elements per task of a loop.
inline constexpr index_t pass_grain = index_t{1} << 14U;

/// Calls body(segment, offset of a range, elements of the range) so that each element of the segments is in exactly one
/// range. Uses all threads and one parallel loop, because most networks have many small parameters.
template <class Body>
void for_each_range(cpu& device, std::span<const segment> segments, const Body& body) {
  index_t total = 0;
  for (const segment& part : segments) {
    total += part.size;
  }
  device.parallel_for(total, pass_grain, [&](index_t begin, index_t end) {
    index_t first = 0;  // first element of the segment, numbered over all segments one after another
    for (const segment& part : segments) {
      const index_t from = std::max(begin, first);
      const index_t to = std::min(end, first + part.size);
      if (from < to) {
        body(part, part.offset + (from - first), to - from);
      }
      first += part.size;
      if (first >= end) {
        break;
      }
    }
  });
}

}  // namespace detail

/// Runs one step for the parameters of `segments`; see momentum_pass. Segment offsets index all buffers.
template <class Element>
void apply_momentum(cpu& device, std::span<const segment> segments, const momentum_pass& pass, Element* values,
                    const Element* gradients, Element* velocities) {
  const auto momentum = static_cast<Element>(pass.momentum);
  // Decay is apart from the scale, which is 0 where gradients are divided by infinity.
  const auto scale = static_cast<Element>(pass.gradient_scale / pass.loss_scale.factor);
  detail::for_each_range(device, segments, [=, &pass](const segment& part, index_t offset, index_t count) {
    const auto decay = static_cast<Element>(part.decay ? pass.gradient_scale * pass.weight_decay : 0.0);
    const auto rate = static_cast<Element>(pass.learning_rate * part.learning_rate_factor);
    const detail::momentum_step<Element> step{rate, momentum, decay, scale, pass.nesterov};
    const simd::arrays<const Element, 1> read{gradients + offset};
    if (velocities == nullptr) {
      simd::transform(count, step, simd::arrays<Element, 1>{values + offset}, read);
    } else {
      simd::transform(count, step, simd::arrays<Element, 2>{values + offset, velocities + offset}, read);
    }
  });
}

/// The factor by which gradients have been multiplied.
[[nodiscard]] inline double factor_of(cpu& /*device*/, const loss_scale& scale) noexcept {
  return scale.factor;
}

/// The Euclidean norm of `count` elements. Sums are in double precision and do not depend on the number of threads.
template <class Element>
[[nodiscard]] double norm(cpu& device, index_t count, const Element* x) {
  const floating_point_scope arithmetic{device.flush_denormals()};
  constexpr index_t most_pieces = 64;
  const index_t grain = std::max(detail::pass_grain, (count + most_pieces - 1) / most_pieces);
  std::array<double, most_pieces> partial{};
  device.parallel_for(count, grain, [&](index_t begin, index_t end) {
    partial[static_cast<std::size_t>(begin / grain)] = simd::sum_of_squares(end - begin, x + begin);
  });
  double sum = 0;
  for (const double piece : partial) {
    sum += piece;
  }
  return std::sqrt(sum);
}

}  // namespace gradus::optim
