// SPDX-License-Identifier: BSL-1.0
//
// The plain loops of the sweep.
#include "sweep_reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace conv {
namespace {

/// The results along one axis that meet the source with a tap: from `begin` up to `end`.
struct met {
  index_t begin;
  index_t end;
};
[[nodiscard]] met results_that_meet(index_t tap, index_t stride, index_t pad, index_t size, index_t results) {
  const index_t first = tap - pad;  // what the first result meets
  const index_t begin = first >= 0 ? 0 : (-first + stride - 1) / stride;
  const index_t end = first >= size ? 0 : (size - 1 - first) / stride + 1;
  return {begin, std::max(begin, std::min(end, results))};
}

/// The rows of results of a pair of channels that meet a tap, and what they meet.
struct run {
  index_t y;       ///< the first result, in y
  index_t x;       ///< what it meets, in x
  index_t weight;  ///< in w
  index_t rows;
  index_t columns;
  index_t y_row;   ///< elements from a row to the next, in y
  index_t x_row;   ///< in x
  index_t x_step;  ///< from a column to the next, in x
};

/// Calls body(run) for every image, pair of channels and tap.
template <class Body>
void for_each_run(const conv2d_geometry& g, index_t batch, const Body& body) {
  const index_t in = g.in_channels / g.groups;
  const index_t out = g.out_channels / g.groups;
  for (index_t r = 0; r < g.kernel_height; ++r) {
    const met rows = results_that_meet(r * g.dilation_height, g.stride_height, g.pad_top, g.in_height, g.out_height);
    for (index_t s = 0; s < g.kernel_width; ++s) {
      const met columns = results_that_meet(s * g.dilation_width, g.stride_width, g.pad_left, g.in_width, g.out_width);
      if (rows.begin == rows.end || columns.begin == columns.end) {
        continue;
      }
      const index_t h = rows.begin * g.stride_height - g.pad_top + r * g.dilation_height;
      const index_t v = columns.begin * g.stride_width - g.pad_left + s * g.dilation_width;
      for (index_t n = 0; n < batch; ++n) {
        for (index_t o = 0; o < g.out_channels; ++o) {
          for (index_t i = 0; i < in; ++i) {
            body(run{.y = ((n * g.out_channels + o) * g.out_height + rows.begin) * g.out_width + columns.begin,
                     .x = ((n * g.in_channels + o / out * in + i) * g.in_height + h) * g.in_width + v,
                     .weight = ((o * in + i) * g.kernel_height + r) * g.kernel_width + s,
                     .rows = rows.end - rows.begin,
                     .columns = columns.end - columns.begin,
                     .y_row = g.out_width,
                     .x_row = g.stride_height * g.in_width,
                     .x_step = g.stride_width});
          }
        }
      }
    }
  }
}

/// Along one axis, which positions of the source some result meets, or which results meet the source.
[[nodiscard]] std::vector<bool> positions_that_meet(bool of_results, index_t taps, index_t dilation, index_t stride,
                                                    index_t pad, index_t size, index_t results) {
  std::vector<bool> positions(static_cast<std::size_t>(of_results ? results : size));
  for (index_t tap = 0; tap < taps; ++tap) {
    const met some = results_that_meet(tap * dilation, stride, pad, size, results);
    for (index_t p = some.begin; p < some.end; ++p) {
      positions[static_cast<std::size_t>(of_results ? p : p * stride - pad + tap * dilation)] = true;
    }
  }
  return positions;
}

}  // namespace

void sweep_problem::compute(gradus::kernels::pass which, index_t batch) {
  using gradus::kernels::pass;
  const conv2d_geometry& g = geometry;
  const index_t channels = which == pass::forward         ? g.in_channels / g.groups
                           : which == pass::backward_data ? g.out_channels / g.groups
                                                          : batch * g.out_height * g.out_width;
  const index_t taps = which == pass::backward_weights ? 1 : g.kernel_height * g.kernel_width;
  size = 0.4 * std::sqrt(static_cast<double>(channels * taps));
  float* const to = result.data();
  const float* const source = x.data();
  const float* const gradient = dy.data();
  const float* const factors = w.data();
  if (which == pass::forward) {
    for_each_run(g, batch, [=](const run& of) {
      const float factor = factors[of.weight];
      for (index_t p = 0; p < of.rows; ++p) {
        float* const row = to + of.y + p * of.y_row;
        const float* const from = source + of.x + p * of.x_row;
        for (index_t q = 0; q < of.columns; ++q) {
          row[q] += factor * from[q * of.x_step];
        }
      }
    });
  } else if (which == pass::backward_data) {
    for_each_run(g, batch, [=](const run& of) {
      const float factor = factors[of.weight];
      for (index_t p = 0; p < of.rows; ++p) {
        float* const row = to + of.x + p * of.x_row;
        const float* const from = gradient + of.y + p * of.y_row;
        for (index_t q = 0; q < of.columns; ++q) {
          row[q * of.x_step] += factor * from[q];
        }
      }
    });
  } else {
    for_each_run(g, batch, [=](const run& of) {
      float sum = 0;
      for (index_t p = 0; p < of.rows; ++p) {
        const float* const row = gradient + of.y + p * of.y_row;
        const float* const from = source + of.x + p * of.x_row;
        for (index_t q = 0; q < of.columns; ++q) {
          sum += row[q] * from[q * of.x_step];
        }
      }
      to[of.weight] += sum;
    });
  }
}

void sweep_problem::spoil_what_is_not_read(const sweep_case& c) {
  const conv2d_geometry& g = geometry;
  const bool results = c.which == gradus::kernels::pass::backward_data;
  const std::vector<bool> rows = positions_that_meet(results, g.kernel_height, g.dilation_height, g.stride_height,
                                                     g.pad_top, g.in_height, g.out_height);
  const std::vector<bool> columns = positions_that_meet(results, g.kernel_width, g.dilation_width, g.stride_width,
                                                        g.pad_left, g.in_width, g.out_width);
  if (c.which == gradus::kernels::pass::backward_weights && c.transposed && c.bias) {
    return;  // the gradient of the bias reads all of them
  }
  numbers& source = results ? dy : x;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const bool read = rows[i / columns.size() % rows.size()] && columns[i % columns.size()];
    source[i] = read ? source[i] : NAN;
  }
}

}  // namespace conv
