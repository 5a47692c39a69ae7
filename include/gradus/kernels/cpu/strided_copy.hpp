// SPDX-License-Identifier: BSL-1.0
//
// Strided copies on the CPU.
#pragma once

#include <algorithm>  // std::max
#include <array>      // std::array
#include <cstddef>    // std::byte, std::size_t

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu/detail/copy/move.hpp"
#include "gradus/kernels/cpu/detail/copy/plan.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"
#include "gradus/kernels/cpu/elementwise.hpp"
#include "gradus/kernels/strided_copy.hpp"

namespace gradus::kernels {

namespace detail {

/// Copies elements of `Size` bytes in the steps [begin, end) of the outer loops.
template <int Size>
void copy_blocks(const copy_plan& plan, index_t begin, index_t end, const std::byte* source,
                 std::byte* destination) noexcept {
  copy_walk walk{plan.outer, begin};
  switch (plan.how) {
    case copy_plan::kind::runs: {
      // Processors do not foresee short runs with gaps between them.
      const index_t ahead = plan.length * Size > 256 ? index_t{0} : 16 * plan.outer[plan.outer.count - 1].from;
      for (index_t block = begin; block < end; ++block, walk.next()) {
        const index_t length = std::min(plan.length, plan.total - walk.at(plan.chunk_axis) * plan.length);
        const std::byte* const from = source + walk.from * Size;
        for (index_t line = 0; ahead > 0 && line < length * Size; line += 64) {
          __builtin_prefetch(from + ahead * Size + line);
        }
        move_bytes(destination + walk.to * Size, from, static_cast<std::size_t>(length * Size));
      }
      break;
    }
    case copy_plan::kind::transpositions:
      for (index_t block = begin; block < end; ++block, walk.next()) {
        // The next columns of each row.
        for (index_t d = 0; plan.source.count * Size >= 128 && d < plan.destination.count; ++d) {
          const std::byte* const next =
              source + (walk.from + plan.destination.offsets[static_cast<std::size_t>(d)] + plan.source.count) * Size;
          for (index_t line = 0; line < plan.source.count * Size; line += 64) {
            __builtin_prefetch(next + line);
          }
        }
        transpose_elements<Size>(plan.source.part(walk.at(plan.source.chunk_axis)),
                                 plan.destination.part(walk.at(plan.destination.chunk_axis)), source + walk.from * Size,
                                 plan.destination.offsets.data(), destination + walk.to * Size,
                                 plan.source.offsets.data());
      }
      break;
    case copy_plan::kind::elements:
      for (index_t block = begin; block < end; ++block, walk.next()) {
        for (index_t i = 0; i < plan.inner.extent; ++i) {
          move_fixed<Size>(destination + (walk.to + i * plan.inner.to) * Size,
                           source + (walk.from + i * plan.inner.from) * Size);
        }
      }
      break;
  }
}

/// Adds in the steps [begin, end) of the outer loops.
template <class Element>
void add_blocks(const copy_plan& plan, index_t begin, index_t end, const Element* source, Element* destination) {
  constexpr int size = sizeof(Element);
  copy_walk walk{plan.outer, begin};
  for (index_t block = begin; block < end; ++block, walk.next()) {
    const Element* const from = source + walk.from;
    Element* const to = destination + walk.to;
    if (plan.how == copy_plan::kind::runs) {
      add_elements(std::min(plan.length, plan.total - walk.at(plan.chunk_axis) * plan.length), from, to);
    } else if (plan.how == copy_plan::kind::transpositions) {
      const index_t columns = plan.source.part(walk.at(plan.source.chunk_axis));
      const index_t rows = plan.destination.part(walk.at(plan.destination.chunk_axis));
      std::array<Element, static_cast<std::size_t>(copy_tile * copy_tile)> transposed;
      std::array<index_t, static_cast<std::size_t>(copy_tile)> row_of;
      for (index_t s = 0; s < columns; ++s) {
        row_of[static_cast<std::size_t>(s)] = s * rows;
      }
      transpose_elements<size>(columns, rows, reinterpret_cast<const std::byte*>(from), plan.destination.offsets.data(),
                               reinterpret_cast<std::byte*>(transposed.data()), row_of.data());
      for (index_t s = 0; s < columns; ++s) {
        add_elements(rows, transposed.data() + s * rows, to + plan.source.offsets[static_cast<std::size_t>(s)]);
      }
    } else {
      for (index_t i = 0; i < plan.inner.extent; ++i) {
        using real = computed<Element>;
        Element& sum = to[i * plan.inner.to];
        sum = static_cast<Element>(static_cast<real>(sum) + static_cast<real>(from[i * plan.inner.from]));
      }
    }
  }
}

}  // namespace detail

/// Implements has_strided_copy on the CPU.
template <network_element Element>
void strided_copy(cpu& device, const strided_copy_shape& shape, const Element* from, Element* to, bool accumulate) {
  const detail::copy_plan plan = detail::plan_copy(shape);
  const index_t grain = std::max(index_t{1}, detail::copy_run / plan.block_size);
  device.parallel_for(plan.blocks, grain, [&](index_t begin, index_t end) {
    if (accumulate) {
      detail::add_blocks(plan, begin, end, from, to);
    } else {
      detail::copy_blocks<sizeof(Element)>(plan, begin, end, reinterpret_cast<const std::byte*>(from),
                                           reinterpret_cast<std::byte*>(to));
    }
  });
}

}  // namespace gradus::kernels
