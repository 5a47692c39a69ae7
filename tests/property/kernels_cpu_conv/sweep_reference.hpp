// SPDX-License-Identifier: BSL-1.0
//
// One pass of a convolution by plain loops, fast enough for millions of small cases. Values are multiples of 1/8, so
// sums are exact in float.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gradus/core/extents.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "shape.hpp"
#include "sweep_case.hpp"

namespace conv {

using numbers = std::vector<float>;  // in the order n, c, h, w

/// Multiples of 1/8 from -1 to 1.
[[nodiscard]] inline numbers small_eighths(index_t count, std::uint32_t& seed) {
  numbers values(static_cast<std::size_t>(count));
  for (float& value : values) {
    seed = seed * 1664525U + 1013904223U;
    value = static_cast<float>(static_cast<int>((seed >> 16U) % 17U) - 8) / 8.0F;
  }
  return values;
}

/// What a pass reads, and what it should give.
struct sweep_problem {
  conv2d_geometry geometry;
  numbers x, dy, w, bias, residual, mask;  ///< those that the pass does not read are empty
  numbers before;                          ///< of the result: NaN where nothing is accumulated
  numbers result, dbias;
  double size = 0;  ///< typical magnitude of a result, from the number of terms of its sum

  explicit sweep_problem(const sweep_case& c) : geometry{c.shape.geometry()} {
    using gradus::kernels::convolution_algorithm;
    using gradus::kernels::pass;
    geometry.algorithm = c.winograd ? convolution_algorithm::automatic : convolution_algorithm::direct;
    const conv2d_geometry& g = geometry;
    const index_t batch = c.shape.batch;
    std::uint32_t seed = c.numbers;
    const index_t x_size = g.input(batch).size();
    const index_t y_size = g.output(batch).size();
    if (c.which != pass::backward_data) {
      x = small_eighths(x_size, seed);
    }
    if (c.which != pass::forward) {
      dy = small_eighths(y_size, seed);
    }
    if (c.which != pass::backward_weights) {
      w = small_eighths(g.weights().size(), seed);
    }
    const index_t result_size = c.which == pass::forward ? y_size : x_size;
    if (has_forward_epilogue(c) && c.bias) {
      bias = small_eighths(c.transposed ? g.in_channels : g.out_channels, seed);
    }
    if (c.residual) {
      residual = small_eighths(result_size, seed);
    }
    if (!has_forward_epilogue(c) && c.relu) {
      mask = small_eighths(result_size, seed);
    }
    before.assign(static_cast<std::size_t>(c.which == pass::forward         ? y_size
                                           : c.which == pass::backward_data ? x_size
                                                                            : g.weights().size()),
                  NAN);
    if (c.accumulate) {
      before = small_eighths(result_size, seed);
    }
    result.assign(before.size(), 0.0F);
    compute(c.which, batch);
    finish(c);
  }

  /// Puts NaN where the results of the pass read nothing.
  void spoil_what_is_not_read(const sweep_case& c);
  /// Changes what is read: sums are rounded then, and the results are others.
  void roughen() {
    for (numbers* const factors : {&x, &dy, &w}) {
      for (float& value : *factors) {
        value *= 1.1F;
      }
    }
  }

 private:
  void compute(gradus::kernels::pass which, index_t batch);

  void finish(const sweep_case& c) {
    using gradus::kernels::pass;
    const gradus::image_extents of_bias = c.transposed ? geometry.input(1) : geometry.output(1);
    const auto plane = static_cast<std::size_t>(of_bias.h * of_bias.w);
    const auto channels = static_cast<std::size_t>(of_bias.c);
    if (c.which == pass::backward_weights) {
      const numbers& gradient = c.transposed ? x : dy;
      dbias.assign(c.bias ? channels : 0, 0.0F);
      for (std::size_t i = 0; i < gradient.size() && c.bias; ++i) {
        dbias[i / plane % channels] += gradient[i];
      }
      return;
    }
    for (std::size_t i = 0; i < result.size(); ++i) {
      float& value = result[i];
      value += has_forward_epilogue(c) && c.bias ? bias[i / plane % channels] : 0.0F;
      value += c.residual ? residual[i] : 0.0F;
      value += c.accumulate ? before[i] : 0.0F;
      if (!c.relu) {
        continue;
      }
      const gradus::kernels::activation act = activation_of(c);
      const auto cap = static_cast<float>(act.cap);
      const float low = act.slope == 0 ? 0.0F : static_cast<float>(act.slope) * value;
      if (has_forward_epilogue(c)) {
        value = value > 0 ? std::min(value, cap) : low;
      } else {
        value = !(mask[i] > 0) ? low : mask[i] < cap ? value : 0.0F;
      }
    }
  }
};

}  // namespace conv
