// SPDX-License-Identifier: BSL-1.0
//
// The loss of the cosine similarity on the CPU.
#pragma once

#include <algorithm>  // std::min
#include <array>      // std::array
#include <cmath>      // std::sqrt
#include <cstddef>    // std::size_t

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cosine.hpp"
#include "gradus/kernels/cpu/softmax.hpp"
#include "gradus/kernels/softmax.hpp"

namespace gradus::kernels {

namespace detail {

inline constexpr index_t cosine_width = 64;  // pixels of a block
inline constexpr index_t cosine_lanes = 8;   // partial sums of a vector

/// Products and squares of the vectors of a block; then the factors of targets and scores in the gradient.
struct cosine_block {
  using numbers = std::array<double, static_cast<std::size_t>(cosine_width)>;
  numbers products;
  numbers scores;   // squares
  numbers targets;  // squares

  /// Returns the sum of 1 - cosine; afterwards the gradient is scores(p) * y - targets(p) * t.
  double finish(index_t count, double epsilon, double factor) noexcept {
    double loss = 0;
    for (std::size_t p = 0; p < static_cast<std::size_t>(count); ++p) {
      const double norm = std::sqrt(scores[p]);
      const double divisor = norm < epsilon ? epsilon : norm;  // NaN stays NaN
      const double other = std::sqrt(targets[p]);
      const double both = divisor * (other < epsilon ? epsilon : other);
      const double cosine = products[p] / both;
      loss += 1 - cosine;
      scores[p] = norm == 0 ? 0.0 : factor * cosine / divisor / norm;
      targets[p] = factor / both;
    }
    return loss;
  }
};

template <class Element>
[[nodiscard]] GRADUS_ALWAYS_INLINE double cosine_number(Element value) noexcept {
  return static_cast<double>(static_cast<parameter_element_t<Element>>(value));
}

/// Sums over the channels of `count` pixels: vectors whose numbers are adjacent.
template <class Element>
void sum_cosine_rows(index_t count, index_t channels, const Element* y, const parameter_element_t<Element>* t,
                     cosine_block& sums) noexcept {
  for (index_t p = 0; p < count; ++p) {
    std::array<double, static_cast<std::size_t>(cosine_lanes)> product{};
    auto own = product;
    auto other = product;
    for (index_t first = 0; first < channels; first += cosine_lanes) {
      const index_t lanes = std::min(cosine_lanes, channels - first);
      for (index_t lane = 0; lane < lanes; ++lane) {
        const double a = cosine_number(y[p * channels + first + lane]);
        const auto b = static_cast<double>(t[p * channels + first + lane]);
        const auto i = static_cast<std::size_t>(lane);
        product[i] += a * b;
        own[i] += a * a;
        other[i] += b * b;
      }
    }
    const auto at = static_cast<std::size_t>(p);
    sums.products[at] = sums.scores[at] = sums.targets[at] = 0;
    for (std::size_t i = 0; i < product.size(); ++i) {
      sums.products[at] += product[i];
      sums.scores[at] += own[i];
      sums.targets[at] += other[i];
    }
  }
}

/// Sums over the channels of `count` pixels: planes.
template <class Element>
void sum_cosine_planes(index_t count, index_t channels, index_t pixels, const Element* y,
                       const parameter_element_t<Element>* t, cosine_block& sums) noexcept {
  const auto number = static_cast<std::size_t>(count);
  for (std::size_t p = 0; p < number; ++p) {
    sums.products[p] = sums.scores[p] = sums.targets[p] = 0;
  }
  for (index_t c = 0; c < channels; ++c) {
    for (std::size_t p = 0; p < number; ++p) {
      const double a = cosine_number(y[c * pixels + static_cast<index_t>(p)]);
      const auto b = static_cast<double>(t[c * pixels + static_cast<index_t>(p)]);
      sums.products[p] += a * b;
      sums.scores[p] += a * a;
      sums.targets[p] += b * b;
    }
  }
}

/// Writes the gradient of a block, from its factors.
template <class Element>
void write_cosine_gradient(index_t count, index_t channels, index_t channel_stride, index_t pixel_stride,
                           const Element* y, const parameter_element_t<Element>* t, const cosine_block& factors,
                           Element* to) noexcept {
  const auto write = [&](index_t c, index_t p) {
    const index_t at = c * channel_stride + p * pixel_stride;
    const auto i = static_cast<std::size_t>(p);
    const double value = factors.scores[i] * cosine_number(y[at]) - factors.targets[i] * static_cast<double>(t[at]);
    to[at] = static_cast<Element>(static_cast<parameter_element_t<Element>>(value));
  };
  if (channel_stride == 1) {
    for (index_t p = 0; p < count; ++p) {
      for (index_t c = 0; c < channels; ++c) {
        write(c, p);
      }
    }
  } else {
    for (index_t c = 0; c < channels; ++c) {
      for (index_t p = 0; p < count; ++p) {
        write(c, p);
      }
    }
  }
}

}  // namespace detail

/// See has_cosine_loss. The same bits for any number of threads.
template <network_element Element>
[[nodiscard]] loss_sums cosine_loss(cpu& device, const cosine_vectors<parameter_element_t<Element>>& shape,
                                    const Element* scores, const parameter_element_t<Element>* targets, double scale,
                                    Element* gradient) {
  const floating_point_scope arithmetic{device.flush_denormals()};
  const index_t blocks = (shape.pixels + detail::cosine_width - 1) / detail::cosine_width;  // of an example
  const bool rows = shape.channels_last || shape.pixels == 1;
  const index_t channel_stride = rows ? 1 : shape.pixels;
  const index_t pixel_stride = rows ? shape.channels : 1;
  const index_t block_cost = shape.channels * std::min(shape.pixels, detail::cosine_width);
  const index_t grain = detail::softmax_grain(shape.examples * blocks, block_cost);
  std::array<double, 64> partial{};
  device.parallel_for(shape.examples * blocks, grain, [&](index_t begin, index_t end) {
    detail::cosine_block sums;
    double loss = 0;
    for (index_t at = begin; at < end; ++at) {
      const index_t example = at / blocks;
      const index_t first = at % blocks * detail::cosine_width;
      const index_t count = std::min(detail::cosine_width, shape.pixels - first);
      const index_t offset = example * shape.pixels * shape.channels + first * pixel_stride;
      const double weight =
          (shape.example_weights == nullptr ? 1.0 : static_cast<double>(shape.example_weights[example])) /
          static_cast<double>(shape.pixels);
      if (rows) {
        detail::sum_cosine_rows(count, shape.channels, scores + offset, targets + offset, sums);
      } else {
        detail::sum_cosine_planes(count, shape.channels, shape.pixels, scores + offset, targets + offset, sums);
      }
      loss += weight * sums.finish(count, shape.epsilon, scale * weight);
      if (gradient != nullptr) {
        detail::write_cosine_gradient(count, shape.channels, channel_stride, pixel_stride, scores + offset,
                                      targets + offset, sums, gradient + offset);
      }
    }
    partial[static_cast<std::size_t>(begin / grain)] = loss;
  });
  loss_sums result;
  for (const double each : partial) {
    result.loss += each;
  }
  return result;
}

}  // namespace gradus::kernels
