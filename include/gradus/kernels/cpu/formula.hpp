// SPDX-License-Identifier: BSL-1.0
//
// Formulas on the CPU: one pass over memory, in vectors of the instruction set in use, on all threads.
#pragma once

#include <algorithm>    // std::count, std::fill_n, std::max, std::min
#include <array>        // std::array
#include <cstddef>      // std::byte, std::size_t
#include <numeric>      // std::accumulate
#include <span>         // std::span
#include <type_traits>  // std::integral_constant

#include "gradus/core/element.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"
#include "gradus/kernels/cpu/elementwise.hpp"
#include "gradus/kernels/formula.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/simd/functions.hpp"
#include "gradus/tensor/formula.hpp"

namespace gradus::kernels::detail {

/// The most tasks whose sums are added up in order. Only the shape sets their number, and so the bits of the sums.
inline constexpr index_t formula_blocks = 64;
/// Partial sums of a row.
inline constexpr index_t formula_chains = 16;

/// The elements of a batch as rows: of all channels where these are adjacent, else of one channel. Without parameters
/// they are any rows.
struct formula_rows {
  index_t elements;  // of all rows
  index_t length;    // elements of a row, which the last one may have less of
  index_t channels;
  bool adjacent;  // channels of an image

  formula_rows(const formula_shape& shape, bool has_parameters) noexcept
      : elements{shape.count()},
        length{!has_parameters    ? 4096
               : shape.inner == 1 ? shape.channels
                                  : shape.inner},
        channels{shape.channels},
        adjacent{has_parameters && shape.inner == 1} {}
  [[nodiscard]] index_t count() const noexcept { return elements == 0 ? 0 : (elements - 1) / length + 1; }
};

}  // namespace gradus::kernels::detail

#define GRADUS_TARGET_BODY "gradus/kernels/cpu/detail/formula/formula_body.hpp"
#include "gradus/simd/for_each_target.hpp"

namespace gradus::kernels {

/// Implements has_formula on the CPU.
template <class Node, int Variables, network_element Element, int Inputs, int Parameters>
void formula_forward(cpu& device, const formula_shape& shape, const formula<Node, Variables>& function,
                     const formula_arguments<Element, Inputs, Parameters>& arguments, Element* y) {
  static_assert(Variables == Inputs + Parameters);
  const detail::formula_rows rows{shape, Parameters > 0};
  const auto run = [&](auto target, index_t begin, index_t end) {
    evaluate_formula(target, rows, begin, end, function, arguments, y);
  };
  detail::for_each_range(device, rows.count(), run, rows.length);
}

/// See has_formula. Enough for a smaller batch, too, which may have more blocks: 75 rows are 38 blocks, and 50 rows 50.
[[nodiscard]] inline std::size_t formula_workspace_bytes(cpu& /*device*/, const formula_shape& shape, int parameters) {
  const index_t blocks = std::min(shape.outer, detail::formula_blocks);
  return static_cast<std::size_t>(blocks * parameters * shape.channels) * sizeof(double);
}

/// Implements has_formula on the CPU.
template <class Node, int Variables, network_element Element, int Inputs, int Parameters>
void formula_backward(cpu& device, const formula_shape& shape, const formula<Node, Variables>& function,
                      const formula_arguments<Element, Inputs, Parameters>& arguments, const Element* dy,
                      const Element* y, const formula_gradients<Element, Inputs, Parameters>& gradients,
                      [[maybe_unused]] std::span<std::byte> workspace) {
  static_assert(Variables == Inputs + Parameters);
  const detail::formula_rows rows{shape, Parameters > 0};
  if constexpr (Parameters == 0) {
    if (std::count(gradients.inputs.begin(), gradients.inputs.end(), nullptr) == Inputs) {
      return;
    }
    const auto run = [&](auto target, index_t begin, index_t end) {
      double* const sums = nullptr;
      differentiate_formula(target, rows, begin, end, 1, function, arguments, dy, y, gradients, sums);
    };
    detail::for_each_range(device, rows.count(), run, rows.length);
  } else {
    const floating_point_scope arithmetic{device.flush_denormals()};
    // The sums of a block of outer rows, as (block, parameter, channel).
    auto* const partial = reinterpret_cast<double*>(workspace.data());
    const index_t channels = shape.channels;
    const index_t block_rows =
        std::max(index_t{1}, (shape.outer + detail::formula_blocks - 1) / detail::formula_blocks);
    const index_t blocks = (shape.outer + block_rows - 1) / block_rows;
    const index_t parts = rows.adjacent ? 1 : channels;
    const auto run = [&](auto target, index_t begin, index_t end) {
      constexpr index_t chains = detail::formula_chains;
      for (index_t task = begin; task < end; ++task) {
        const index_t block = task / parts;
        const index_t part = task % parts;
        double* const mine = partial + block * Parameters * channels;
        std::array<double, static_cast<std::size_t>(Parameters * chains)> sums{};
        if (rows.adjacent) {
          std::fill_n(mine, Parameters * channels, 0.0);
        }
        differentiate_formula(target, rows, block * block_rows * parts + part,
                              std::min(shape.outer, (block + 1) * block_rows) * parts, parts, function, arguments, dy,
                              y, gradients, rows.adjacent ? mine : sums.data());
        for (index_t p = 0; p < Parameters && !rows.adjacent; ++p) {
          mine[p * channels + part] = std::accumulate(sums.data() + p * chains, sums.data() + (p + 1) * chains, 0.0);
        }
      }
    };
    detail::for_each_range(device, blocks * parts, run, block_rows * rows.length);
    for (int p = 0; p < Parameters; ++p) {
      const auto k = static_cast<std::size_t>(p);
      double all = 0;
      for (index_t channel = 0; channel < channels; ++channel) {
        double sum = 0;
        for (index_t block = 0; block < blocks; ++block) {
          sum += partial[(block * Parameters + p) * channels + channel];
        }
        all += sum;
        if (arguments.per_channel[k]) {
          gradients.parameters[k][channel] = static_cast<detail::computed<Element>>(sum);
        }
      }
      if (!arguments.per_channel[k]) {
        *gradients.parameters[k] = static_cast<detail::computed<Element>>(all);
      }
    }
  }
}

/// See has_formula_loss. One pass; the same bits for any number of threads.
template <class Node, bool Mean, network_element Element>
[[nodiscard]] loss_sums formula_loss(cpu& device, index_t examples, index_t per_example,
                                     const loss_formula<Node, Mean>& loss, const Element* scores,
                                     const parameter_element_t<Element>* targets,
                                     const parameter_element_t<Element>* weights, double scale, Element* gradient) {
  const floating_point_scope arithmetic{device.flush_denormals()};
  using real = detail::computed<Element>;
  const double part = Mean ? 1.0 / static_cast<double>(per_example) : 1.0;
  // Rows of one example, or all elements as one row; tasks of `size` elements of a row.
  const index_t rows = weights == nullptr ? 1 : examples;
  const index_t length = weights == nullptr ? examples * per_example : per_example;
  const index_t pieces =
      weights == nullptr ? std::min(detail::formula_blocks, length / detail::elementwise_grain + 1) : 1;
  const index_t size = (length + pieces - 1) / pieces;
  const index_t rows_of_block = std::max(index_t{1}, (rows + detail::formula_blocks - 1) / detail::formula_blocks);
  const index_t row_blocks = (rows + rows_of_block - 1) / rows_of_block;
  std::array<double, static_cast<std::size_t>(detail::formula_blocks)> sums{};
  const auto run = [&](index_t begin, index_t end, double weight) {
    double sum = 0;
    detail::on_target([&](auto target) {
      sum =
          evaluate_loss(target, begin, end, loss, scores, targets, static_cast<real>(scale * part * weight), gradient);
    });
    return part * weight * sum;
  };
  device.parallel_for(row_blocks * pieces, 1, [&](index_t first, index_t last) {
    for (index_t task = first; task < last; ++task) {
      double sum = 0;
      if (weights == nullptr) {
        sum = run(std::min(length, task * size), std::min(length, (task + 1) * size), 1.0);
      } else {
        for (index_t row = task * rows_of_block; row < std::min(rows, (task + 1) * rows_of_block); ++row) {
          sum += run(row * length, (row + 1) * length, static_cast<double>(weights[row]));
        }
      }
      sums[static_cast<std::size_t>(task)] = sum;
    }
  });
  double total = 0;
  for (const double sum : sums) {
    total += sum;
  }
  return {.loss = total};
}

}  // namespace gradus::kernels
