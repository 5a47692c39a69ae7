// SPDX-License-Identifier: BSL-1.0
//
// Common parts of products around their tiles: tile heights, packed panels, tasks, scratch memory.
#pragma once

#include <algorithm>    // std::max, std::min
#include <array>        // std::array
#include <atomic>       // std::atomic
#include <cstddef>      // std::byte, std::size_t
#include <type_traits>  // std::is_same_v

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu/detail/simd/operands.hpp"
#include "gradus/kernels/cpu/detail/simd/pairs.hpp"
#include "gradus/kernels/cpu/detail/simd/storage.hpp"
#include "gradus/kernels/cpu/detail/simd/tile.hpp"
#include "gradus/simd/isa.hpp"

namespace gradus::kernels::detail {

[[nodiscard]] constexpr index_t ceil_div(index_t count, index_t size) noexcept {
  return (count + size - 1) / size;
}
[[nodiscard]] constexpr index_t round_up(index_t count, index_t unit) noexcept {
  return ceil_div(count, unit) * unit;
}

/// The beginning of part `i` when [0, count) is divided into `parts` of nearly equal size.
[[nodiscard]] constexpr index_t part_begin(index_t count, index_t parts, index_t i) noexcept {
  return count / parts * i + std::min(i, count % parts);
}

/// The height of the lowest tile that holds `rows` rows.
template <class Element>
[[nodiscard]] index_t tile_height(const tile_table<Element>& tiles, index_t rows) noexcept {
  while (tiles[static_cast<std::size_t>(rows)] == nullptr) {
    ++rows;
  }
  return rows;
}

/// The rows of the next tile when `remaining` rows are left: tiles of even height instead of high ones and a low rest.
template <class Element>
[[nodiscard]] index_t next_tile_rows(const tile_kernels<Element>& kernels, index_t remaining) noexcept {
  if (remaining >= 3 * kernels.rows) {
    return kernels.rows;
  }
  const index_t rows = ceil_div(remaining, ceil_div(remaining, kernels.rows));
  return std::min(remaining, tile_height(kernels.wide, rows));
}

/// True if the rows of a tile, `step_bytes` apart, share so few sets of the first-level cache that they evict each
/// other. A power of two between rows causes that: the cache has 8 lines for all addresses that are 4 KiB apart.
[[nodiscard]] constexpr bool rows_collide(index_t rows, index_t step_bytes) noexcept {
  constexpr index_t period = 4096;
  constexpr index_t most = 6;                      // of the 8 lines: panels need the cache too
  const index_t power = step_bytes & -step_bytes;  // the largest power of two that divides it
  return rows * std::min(power, period) > most * period;
}

/// Columns of the panel that begins when `remaining` columns are left.
template <class Element>
[[nodiscard]] index_t next_panel_width(const tile_kernels<Element>& kernels, index_t remaining) noexcept {
  return remaining <= kernels.lanes ? kernels.lanes : kernels.width;
}

/// The columns of all panels together for `columns` columns, including padding.
template <class Element>
[[nodiscard]] index_t padded_columns(const tile_kernels<Element>& kernels, index_t columns) noexcept {
  const index_t rest = columns % kernels.width;
  return columns - rest + (rest == 0 ? 0 : next_panel_width(kernels, rest));
}

/// The same output, `offset` elements later.
template <class Element>
[[nodiscard]] tile_output<Element> shifted(tile_output<Element> output, index_t offset) noexcept {
  output.c += offset;
  output.residual = output.residual == nullptr ? nullptr : output.residual + offset;
  output.mask = output.mask == nullptr ? nullptr : output.mask + offset;
  return output;
}

/// Stores sums that are not whole rows of c: column j of row m at c[c_row[m] + c_column[j]] (null c_column: at j).
template <class Element>
void store_scattered(const computed<Element>* sums, index_t rows, index_t columns, index_t width, const index_t* c_row,
                     const index_t* c_column, const tile_output<Element>& output) {
  // Scattered columns are far apart, and their rows are adjacent.
  const bool by_rows = c_column == nullptr;
  for (index_t outer = 0; outer < (by_rows ? rows : columns); ++outer) {
    for (index_t inner = 0; inner < (by_rows ? columns : rows); ++inner) {
      const index_t m = by_rows ? outer : inner;
      const index_t j = by_rows ? inner : outer;
      output.store(sums[m * width + j], output.bias_of_rows ? m : j, c_row[m] + (by_rows ? j : c_column[j]));
    }
  }
}

/// Stores `count` sums (null: zeros) at c[offset + j * step]. If `bias_of_rows`, all of them have the first bias.
template <class Element>
void store_strided(const computed<Element>* sums, index_t count, index_t offset, index_t step,
                   const tile_output<Element>& output) {
  Element* const c = output.c + offset;
  if (sums == nullptr && output.simple() && output.bias == nullptr) {
    for (index_t j = 0; j < count; ++j) {
      c[j * step] = Element{};
    }
  } else if (output.simple() && output.bias == nullptr && !output.act.relu) {
    for (index_t j = 0; j < count; ++j) {
      c[j * step] = static_cast<Element>(sums[j]);
    }
  } else {
    for (index_t j = 0; j < count; ++j) {
      output.store(sums == nullptr ? computed<Element>{} : sums[j], output.bias_of_rows ? 0 : j, offset + j * step);
    }
  }
}

/// The terms of a product that one pass over a panel takes: several whole segments, or a part of one.
struct term_block {
  index_t first = 0;  ///< index over all segments
  index_t terms = 0;
  index_t segment = 0;  ///< the first segment
  index_t segments = 0;
  index_t offset = 0;  ///< of its terms in the segment
  index_t length = 0;  ///< terms of each segment
};

/// Divides segments of `length` terms into blocks of about `limit` terms, so that a block of a panel stays in the
/// first-level cache.
class term_blocks {
 public:
  term_blocks(index_t segments, index_t length, index_t limit) : segments_{segments}, length_{length} {
    if (length <= limit) {
      blocks_ = std::max<index_t>(1, ceil_div(segments * length, limit));
      blocks_ = std::min(blocks_, std::max<index_t>(1, segments));
    } else {
      parts_ = ceil_div(length, limit);
      blocks_ = segments * parts_;
    }
  }
  [[nodiscard]] index_t count() const noexcept { return blocks_; }
  [[nodiscard]] term_block operator[](index_t i) const noexcept {
    if (parts_ > 1) {
      const index_t offset = part_begin(length_, parts_, i % parts_);
      const index_t length = part_begin(length_, parts_, i % parts_ + 1) - offset;
      return {.first = i / parts_ * length_ + offset,
              .terms = length,
              .segment = i / parts_,
              .segments = 1,
              .offset = offset,
              .length = length};
    }
    const index_t begin = part_begin(segments_, blocks_, i);
    const index_t count = part_begin(segments_, blocks_, i + 1) - begin;
    return {.first = begin * length_,
            .terms = count * length_,
            .segment = begin,
            .segments = count,
            .offset = 0,
            .length = length_};
  }

 private:
  index_t segments_;
  index_t length_;
  index_t parts_ = 1;  // of a segment
  index_t blocks_ = 1;
};

/// Assigns parts of a block of memory, each aligned to 64 bytes. Without memory it only counts bytes.
class scratch {
 public:
  explicit scratch(std::byte* memory = nullptr) noexcept : memory_{memory} {}
  template <class Element>
  [[nodiscard]] Element* take(index_t count) noexcept {
    return reinterpret_cast<Element*>(take_bytes(static_cast<std::size_t>(count) * sizeof(Element)));
  }
  [[nodiscard]] std::size_t used() const noexcept { return used_; }

 private:
  [[nodiscard]] std::byte* take_bytes(std::size_t bytes) noexcept {
    std::byte* const here = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (bytes + 63) / 64 * 64;
    return here;
  }

  std::byte* memory_;
  std::size_t used_ = 0;
};

/// The body of a loop over tasks, without its type.
class task_body {
 public:
  template <class Body>
  explicit task_body(const Body& body) noexcept
      : object_{&body}, call_{[](const void* object, index_t worker, index_t task) {
          (*static_cast<const Body*>(object))(worker, task);
        }} {}
  void operator()(index_t worker, index_t task) const { call_(object_, worker, task); }

 private:
  const void* object_;
  void (*call_)(const void*, index_t, index_t);
};

inline void run_tasks(cpu& device, index_t tasks, const task_body& body) {
  const index_t workers = std::min<index_t>(device.threads(), tasks);
  std::atomic<index_t> next{0};
  device.parallel_tasks(workers, [&](index_t worker) {
    for (index_t task = next.fetch_add(1, std::memory_order_relaxed); task < tasks;
         task = next.fetch_add(1, std::memory_order_relaxed)) {
      body(worker, task);
    }
  });
}

/// Calls body(worker, task) for every task on all threads. There is at most one worker for each thread, and a worker
/// runs its tasks one after another, so it can have its own memory.
template <class Body>
void for_each_task(cpu& device, index_t tasks, const Body& body) {
  run_tasks(device, tasks, task_body{body});
}

/// The largest value of plan(kernels) over the instruction sets of this processor: the one in use may change between
/// planning and running.
template <class Element, class Plan>
[[nodiscard]] std::size_t largest_workspace(const Plan& plan) {
  std::size_t bytes = 0;
  for (const instruction_set which : all_instruction_sets) {
    const bool other = storage_element<Element> || which < instruction_set::avx512_bf16;  // other kernels than avx512
    if (other && is_available(which)) {
      bytes = std::max(bytes, plan(storage_kernels_for<Element>(which)));
    }
  }
  return bytes;
}

/// Runs one tile of `rows` rows. A higher tile repeats its last row; its sums go through `spare` (rows of the highest
/// tile x columns).
template <class Element>
void run_tile(const tile_kernels<Element>& kernels, const tile_call<Element>& call, index_t rows, index_t width,
              Element* spare) {
  const auto& tiles = width == kernels.width ? kernels.wide : kernels.narrow;
  // Tiles of lines have all heights, and only they ask for the number of rows.
  if (const auto tile = tiles[static_cast<std::size_t>(rows)]; tile != nullptr) {
    tile(call);
    return;
  }
  const index_t height = tile_height(tiles, rows);
  tile_call<Element> higher = call;
  std::array<index_t, most_tile_rows> a_row{};
  for (index_t m = 0; m < height; ++m) {
    a_row[static_cast<std::size_t>(m)] = call.a_row[std::min(m, rows - 1)];
  }
  higher.a_row = a_row.data();
  higher.sums_step = call.panels * width;
  higher.partial = spare;
  if (call.initial != nullptr) {
    for (index_t m = 0; m < height; ++m) {
      std::copy_n(call.initial + std::min(m, rows - 1) * call.sums_step, higher.sums_step,
                  spare + m * higher.sums_step);
    }
    higher.initial = spare;
  }
  tiles[static_cast<std::size_t>(height)](higher);
  if (call.partial == nullptr) {
    kernels.finish(spare, rows, higher.sums_step, higher.sums_step, call.c_row, call.output);
  } else {
    for (index_t m = 0; m < rows; ++m) {
      std::copy_n(spare + m * higher.sums_step, higher.sums_step, call.partial + m * call.sums_step);
    }
  }
}

/// Adjacent panels of a product: the arguments of `multiply_rows` besides the call.
template <class Element>
struct panel_rows {
  index_t rows = 0;         ///< of all tiles
  index_t columns = 0;      ///< without padding; all panels but the last are full
  index_t terms = 0;        ///< of a panel, which are adjacent
  Element* sums = nullptr;  ///< of all rows, each with the columns of all panels; kept between blocks of terms
  Element* tile = nullptr;  ///< twice the highest tile x the columns of all panels
  const index_t* c_column = nullptr;  ///< null: the columns of a row are adjacent in c
  bool first = true;                  ///< first block of terms
  bool last = true;
  index_t packed_terms = 0;  ///< not 0: `a` has tile after tile, each with these terms x its rows; a_row counts up
  index_t skipped = 0;       ///< terms of each panel before those of the segments
  index_t b_step = 0;        ///< not 0: one full panel that is not packed; elements between its terms
  /// Not 0: elements between the rows; the next tile's rows are prefetched. 0: the next tile's initial sums are.
  index_t ahead = 0;
  const Element* next = nullptr;  ///< or, if not null, all tiles prefetch these cache lines, some each
  index_t next_lines = 0;
};

/// The use of the registers of tiles by a thread, if the tiles need that.
template <class Element>
class register_use {
 public:
  register_use(const tile_kernels<Element>& kernels, index_t segment_length) : end_{kernels.end} {
    if (kernels.begin != nullptr) {
      kernels.begin(segment_length);
    }
  }
  register_use(const register_use&) = delete;
  register_use& operator=(const register_use&) = delete;
  ~register_use() {
    if (end_ != nullptr) {
      end_();
    }
  }

 private:
  void (*end_)();
};

/// Multiplies all rows by some panels over one block of terms.
/// @param call  all fields except its output
template <class Element>
void multiply_rows(const tile_kernels<computed<Element>>& kernels, tile_call<computed<Element>> call,
                   const panel_rows<computed<Element>>& panel, const tile_output<Element>& output) {
  using real = computed<Element>;
  constexpr index_t line = 64 / static_cast<index_t>(sizeof(real));
  constexpr bool stores = std::is_same_v<Element, real>;  // tiles can store results themselves
  const index_t padded = padded_columns(kernels, panel.columns);
  const index_t wide_panels = padded / kernels.width;
  const index_t wide_columns = wide_panels * kernels.width;
  const bool direct = stores && kernels.group == 1 && panel.last && panel.c_column == nullptr &&
                      padded == panel.columns && output.simple();
  real* const spare = panel.tile + kernels.rows * padded;
  const real* const b = call.b;
  real* sums = panel.sums;
  index_t rows = 0;
  index_t fetched = 0;  // elements of panel.next
  const register_use<real> use{kernels, call.segment_length};
  placed_rows placed;
  call.placed = &placed;
  call.whole_lines = kernels.place_rows != nullptr && panel.last;
  for (index_t row = 0; row < panel.rows; row += rows) {
    if (kernels.place_rows != nullptr) {
      kernels.place_rows(call.a_row, panel.rows - row, call.line_step, placed);
      rows = placed.count;
    } else {
      rows = next_tile_rows(kernels, panel.rows - row);
    }
    call.rows = rows;
    if (panel.packed_terms != 0) {
      call.a_step = rows;
    }
    real* const partial = !panel.last ? sums : direct ? nullptr : panel.tile;
    call.initial = panel.first ? nullptr : sums;
    call.partial = partial;
    call.sums_step = padded;
    if constexpr (stores) {
      call.output = output;
    }
    if (wide_panels > 0) {
      call.b = b + panel.skipped * kernels.width;
      call.b_skip = wide_panels > 1 ? (panel.terms - call.segment_count * call.segment_length) * kernels.width : 0;
      call.b_step = panel.b_step != 0 ? panel.b_step : kernels.width;
      call.panels = wide_panels;
      const index_t next_rows = std::min(rows, panel.rows - row - rows);
      const index_t times = std::max<index_t>(
          1, wide_panels * call.segment_count * ceil_div(call.segment_length, tile_call<real>::ahead_terms));
      if (panel.next != nullptr) {
        const index_t lines = fetched < panel.next_lines * line ? panel.next_lines : 0;
        call.ahead_lines = ceil_div(lines * rows, times * panel.rows);
        call.ahead = panel.next + fetched;
        fetched += call.ahead_lines * times * line;
      } else if (panel.ahead != 0) {
        call.ahead = call.a + call.a_row[0] + panel.ahead * rows;
        call.ahead_lines = ceil_div(panel.ahead * next_rows, times * line);
      } else if (!panel.first) {
        call.ahead = sums + rows * padded;
        call.ahead_lines = ceil_div(padded * next_rows, times * line);
      }
      run_tile(kernels, call, rows, kernels.width, spare);
    }
    if (wide_columns < padded) {
      call.b = b + wide_columns * panel.terms + panel.skipped * kernels.lanes;
      call.b_step = kernels.lanes;
      call.panels = 1;
      call.ahead_lines = 0;
      call.initial = call.initial == nullptr ? nullptr : call.initial + wide_columns;
      call.partial = partial == nullptr ? nullptr : partial + wide_columns;
      if constexpr (stores) {
        call.output = shifted(output, wide_columns);
        call.output.bias = output.bias == nullptr ? nullptr : output.bias + wide_columns;
      }
      run_tile(kernels, call, rows, kernels.lanes, spare);
    }
    if (panel.last && partial != nullptr) {
      index_t count = rows;  // of rows in adjacent lines
      for (index_t first = 0; first < rows; first += count) {
        const index_t line_of_first = call.whole_lines ? placed.line[static_cast<std::size_t>(first)] : 0;
        if (call.whole_lines) {
          count = placed.adjacent(first);
        }
        const real* const sums_of_first = panel.tile + line_of_first * padded;
        tile_output<Element> finished = output;
        if (output.bias != nullptr && output.bias_of_rows) {
          finished.bias = output.bias + row + first;
        }
        if (panel.c_column != nullptr) {
          store_scattered(sums_of_first, count, panel.columns, padded, call.c_row + first, panel.c_column, finished);
        } else {
          store_rows(kernels, sums_of_first, count, padded, panel.columns, call.c_row + first, finished);
        }
      }
    }
    if (panel.packed_terms != 0) {
      call.a += rows * panel.packed_terms;
    } else {
      call.a_row += rows;
    }
    call.c_row += rows;
    sums += rows * padded;
  }
}

}  // namespace gradus::kernels::detail
