// SPDX-License-Identifier: BSL-1.0
//
// The sum of the squares of all gradients of a step, on the CPU.
#pragma once

#include <algorithm>  // std::min
#include <array>      // std::array
#include <cstddef>    // std::size_t
#include <span>       // std::span

#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/cpu_passes.hpp"
#include "gradus/optim/elementwise_pass.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/simd/transform.hpp"

namespace gradus::optim {

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
        squares[i] = simd::sum_of_squares(blocks[i].elements, blocks[i].first);
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

}  // namespace gradus::optim
