// SPDX-License-Identifier: BSL-1.0
//
// Loops of update rules over parameters, gradients and velocities on the CPU.
#pragma once

#include <algorithm>  // std::max, std::min
#include <array>      // std::array
#include <cmath>      // std::sqrt
#include <cstddef>    // std::size_t
#include <span>       // std::span

#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/segment.hpp"

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

/// A SIMD vector of 16 bytes, which every x86-64 and Arm processor has. These loops are limited by memory, so wider
/// vectors would not be faster.
template <class Element>
struct packet {
  static constexpr index_t width = 16 / static_cast<index_t>(sizeof(Element));
  typedef Element type __attribute__((vector_size(16)));  // NOLINT: an alias template takes no such attribute

  /// The vector with the alignment of an element. It may alias only elements.
  typedef Element unaligned __attribute__((vector_size(16), aligned(alignof(Element))));

  static type load(const Element* from) noexcept { return *reinterpret_cast<const unaligned*>(from); }
  static void store(Element* to, type value) noexcept { *reinterpret_cast<unaligned*>(to) = value; }
};

template <bool HasVelocity, bool Nesterov, class Element>
void momentum_range(index_t count, Element* p, const Element* g, Element* v, Element rate, Element momentum,
                    Element decay, Element scale) noexcept {
  const auto step = [=](auto& value, auto gradient, auto& velocity) {
    gradient = scale * gradient + decay * value;
    if constexpr (HasVelocity) {
      velocity = momentum * velocity + gradient;
      if constexpr (Nesterov) {
        value -= rate * (gradient + momentum * velocity);
      } else {
        value -= rate * velocity;
      }
    } else {
      value -= rate * gradient;
    }
  };
  using pack = packet<Element>;
  index_t i = 0;
  for (; i + 2 * pack::width <= count; i += 2 * pack::width) {
    auto value0 = pack::load(p + i);
    auto value1 = pack::load(p + i + pack::width);
    typename pack::type velocity0{};
    typename pack::type velocity1{};
    if constexpr (HasVelocity) {
      velocity0 = pack::load(v + i);
      velocity1 = pack::load(v + i + pack::width);
    }
    step(value0, pack::load(g + i), velocity0);
    step(value1, pack::load(g + i + pack::width), velocity1);
    pack::store(p + i, value0);
    pack::store(p + i + pack::width, value1);
    if constexpr (HasVelocity) {
      pack::store(v + i, velocity0);
      pack::store(v + i + pack::width, velocity1);
    }
  }
  for (; i < count; ++i) {
    Element unused = 0;
    if constexpr (HasVelocity) {
      step(p[i], g[i], v[i]);
    } else {
      step(p[i], g[i], unused);
    }
  }
}

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
    Element* const p = values + offset;
    const Element* const g = gradients + offset;
    Element* const v = velocities == nullptr ? nullptr : velocities + offset;
    if (v == nullptr) {
      detail::momentum_range<false, false>(count, p, g, v, rate, momentum, decay, scale);
    } else if (pass.nesterov) {
      detail::momentum_range<true, true>(count, p, g, v, rate, momentum, decay, scale);
    } else {
      detail::momentum_range<true, false>(count, p, g, v, rate, momentum, decay, scale);
    }
  });
}

/// The factor by which gradients have been multiplied.
[[nodiscard]] inline double factor_of(cpu& /*device*/, const loss_scale& scale) noexcept {
  return scale.factor;
}

namespace detail {

/// The sum of the squares of `count` elements, in double precision.
template <class Element>
[[nodiscard]] double sum_of_squares(index_t count, const Element* x) noexcept {
  std::array<double, 8> sums{};  // independent chains of additions
  index_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (index_t j = 0; j < 8; ++j) {
      const auto value = static_cast<double>(x[i + j]);
      sums[static_cast<std::size_t>(j)] += value * value;
    }
  }
  double sum = 0;
  for (; i < count; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  for (const double chain : sums) {
    sum += chain;
  }
  return sum;
}

}  // namespace detail

/// The Euclidean norm of `count` elements. Sums are in double precision and do not depend on the number of threads.
template <class Element>
[[nodiscard]] double norm(cpu& device, index_t count, const Element* x) {
  const floating_point_scope arithmetic{device.flush_denormals()};
  constexpr index_t most_pieces = 64;
  const index_t grain = std::max(detail::pass_grain, (count + most_pieces - 1) / most_pieces);
  std::array<double, most_pieces> partial{};
  device.parallel_for(count, grain, [&](index_t begin, index_t end) {
    partial[static_cast<std::size_t>(begin / grain)] = detail::sum_of_squares(end - begin, x + begin);
  });
  double sum = 0;
  for (const double piece : partial) {
    sum += piece;
  }
  return std::sqrt(sum);
}

}  // namespace gradus::optim
