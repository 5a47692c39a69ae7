// SPDX-License-Identifier: BSL-1.0
//
// The matrix product on the CPU.
#pragma once

#include <algorithm>    // std::clamp, std::fill_n, std::max, std::min
#include <cstddef>      // std::byte, std::size_t
#include <span>         // std::span
#include <type_traits>  // std::is_same_v
#include <utility>      // std::pair

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu/detail/matmul/matrix_vector.hpp"
#include "gradus/kernels/cpu/detail/simd/panels.hpp"
#include "gradus/kernels/matmul.hpp"

namespace gradus::kernels {

namespace detail {

/// A product as tiles compute it. One factor gives the rows of the tiles; it is read in place or packed in small parts.
/// The other factor gives the columns and is packed in panels. The columns of the tiles may be the rows of C: a weight
/// matrix whose rows are adjacent terms is fastest as rows, and then the tiles are stored transposed.
template <class Element>
class product {
  using real = computed<Element>;  // of sums and of what tiles read

 public:
  GRADUS_COLD product(const tile_kernels<real>& kernels, const matmul_shape& s, index_t threads)
      : kernels_{kernels}, terms_{units_of<Element>(kernels, s.k)}, all_terms_{s.k}, threads_{threads} {
    const side a{
        .count = s.m, .step = s.transpose_a ? 1 : s.k, .term_step = s.transpose_a ? s.m : 1, .result_step = s.n};
    const side b{.count = s.n, .step = s.transpose_b ? s.k : 1, .term_step = s.transpose_b ? 1 : s.n, .result_step = 1};
    swapped_ = cost(b, a) + 3.0 * static_cast<double>(s.m * s.n) < cost(a, b);
    rows_ = swapped_ ? b : a;
    columns_ = swapped_ ? a : b;
    thin_ = s.k >= matrix_vector_product<Element>::least_terms &&
            std::min(rows_.count, columns_.count) <= matrix_vector_product<Element>::most_vectors;
    packs_rows_ = rows_.term_step != 1 && (rows_.count > 1 || !in_place_) && kernels.place_rows == nullptr;
    copies_rows_ = !packs_rows_ && !in_place_;
    copies_rows_ = copies_rows_ || (!packs_rows_ && rows_.count > kernels.rows && columns_.count > 2 * kernels.width &&
                                    rows_.step * static_cast<index_t>(sizeof(real)) % 1024 == 0);
    shared_ = rows_.count > most_rows;
    // Panels of a block of terms that fit the second-level cache together, with fewer terms if necessary: all rows use
    // them.
    const index_t together = group_bytes / static_cast<index_t>(sizeof(real));
    const index_t panels = ceil_div(columns_.count, kernels.width);
    const index_t terms_of_all = together / std::max<index_t>(1, panels * kernels.width);
    most_terms_ = terms_of_all < least_terms ? most_terms(kernels) : std::min(terms_of_all, most_terms(kernels));
    const index_t terms = std::max<index_t>(1, std::min(terms_, most_terms_));
    group_ = std::clamp<index_t>(together / (kernels.width * terms), 1, most_panels);
    // Blocks: all rows, and enough columns for all threads; or parts of both.
    row_parts_ = ceil_div(rows_.count, most_rows);
    column_parts_ = ceil_div(panels * kernels.width, terms_ > most_terms_ ? most_columns : most_free_columns);
    const index_t wanted = 4 * threads;
    if (row_parts_ * column_parts_ < wanted) {
      const index_t most_parts = shared_ ? std::max(row_parts_, rows_.count / (4 * kernels.rows)) : row_parts_;
      row_parts_ = std::clamp(ceil_div(wanted, std::max<index_t>(1, column_parts_)), row_parts_, most_parts);
    }
    if (row_parts_ * column_parts_ < wanted) {
      column_parts_ =
          std::clamp(ceil_div(wanted, std::max<index_t>(1, row_parts_)), column_parts_, std::max<index_t>(1, panels));
    }
  }

  /// Enough for this shape and for every smaller one; a smaller batch may exchange rows and columns.
  [[nodiscard]] static std::size_t workspace_bytes(const tile_kernels<real>& kernels, const matmul_shape& s,
                                                   index_t threads) {
    std::size_t bytes = matrix_vector_product<Element>::workspace_bytes(std::max(s.m, s.n), s.k, threads);
    for (const auto& [rows, columns] : {std::pair{s.m, s.n}, {s.n, s.m}}) {
      scratch shared;
      static_cast<void>(shared.take<real>(rows > most_rows ? round_up(columns, kernels.width) * s.k : 0));
      scratch worker;
      static_cast<void>(take(kernels, std::min(rows, most_rows), round_up(columns, kernels.width), s.k, worker));
      bytes = std::max(bytes, shared.used() + static_cast<std::size_t>(threads) * worker.used());
    }
    return bytes;
  }

  template <class Result>
  GRADUS_COLD void run(cpu& device, const Element* a, const Element* b, const tile_output<Result>& output,
                       std::byte* workspace) const {
    const Element* const row_side = swapped_ ? b : a;
    const Element* const column_side = swapped_ ? a : b;
    if (thin_) {
      const bool few_rows = rows_.count <= columns_.count;
      tile_output<Result> stored = output;
      stored.bias_of_rows = few_rows == swapped_;  // the bias belongs to the columns of C
      const matrix_vector_product<Element> thin{kernels_, few_rows ? rows_ : columns_, few_rows ? columns_ : rows_,
                                                all_terms_};
      thin.run(device, few_rows ? row_side : column_side, few_rows ? column_side : row_side, stored, workspace);
      return;
    }
    auto* const shared = reinterpret_cast<real*>(workspace);
    const index_t panels = ceil_div(columns_.count, kernels_.width);
    if (shared_) {
      const term_blocks blocks = blocks_of_terms();
      const index_t groups = ceil_div(panels, group_);
      for_each_task(device, groups * blocks.count(), [&, this](index_t, index_t task) {
        const index_t begin = task % groups * group_;
        const term_block part = blocks[task / groups];
        pack_panels(column_side, begin, std::min(begin + group_, panels), part, shared + shared_offset(begin, part));
      });
    }
    std::byte* const workers = workspace + shared_bytes();
    const std::size_t worker_size = worker_bytes();
    for_each_task(device, rows_.count > 0 ? row_parts_ * column_parts_ : 0, [&, this](index_t worker, index_t task) {
      run_block(task / column_parts_, task % column_parts_, row_side, column_side, shared, output,
                scratch{workers + static_cast<std::size_t>(worker) * worker_size});
    });
  }

 private:
  static constexpr bool in_place_ = std::is_same_v<Element, real>;  // tiles can read the factors in place
  static constexpr index_t most_rows = 240;                         // of a block
  static constexpr index_t most_columns = 192;        // of a block whose sums are kept between blocks of terms
  static constexpr index_t most_free_columns = 4096;  // of other blocks
  static constexpr index_t group_bytes = 256 * 1024;  // of a group of panels, in the second-level cache
  static constexpr index_t most_panels = 16;          // of a group
  static constexpr index_t least_terms = 512;         // of a block that is shortened so that all panels fit a group
  static constexpr index_t row_gap = 16;              // elements between copied rows

  using side = product_side;

  /// Estimated cost, in multiply-adds of vectors and packed elements.
  [[nodiscard]] double cost(const side& rows, const side& columns) const {
    const auto k = static_cast<double>(terms_);
    const auto m = static_cast<double>(rows.count);
    const auto n = static_cast<double>(columns.count);
    const auto padded = static_cast<double>(padded_columns(kernels_, columns.count));
    const double multiply = m * padded * k / static_cast<double>(2 * kernels_.lanes);
    const double pack_columns = n * k * (columns.step == 1 ? 0.25 : 0.5);
    const double pack_rows = rows.term_step == 1 ? 0.0 : m * k * 0.5;
    return multiply + pack_columns + pack_rows;
  }

  [[nodiscard]] static index_t most_terms(const tile_kernels<real>& kernels) {
    constexpr index_t panel_bytes = 96 * 1024;  // of the second-level cache
    return panel_bytes / (kernels.width * static_cast<index_t>(sizeof(real)));
  }
  [[nodiscard]] term_blocks blocks_of_terms() const { return {1, terms_, most_terms_}; }
  /// The first term of a block, as an index in the factors.
  [[nodiscard]] index_t first_term(const term_block& part) const { return kernels_.group * part.offset; }
  [[nodiscard]] index_t count_terms(const term_block& part) const {
    return std::min(kernels_.group * part.length, all_terms_ - first_term(part));
  }
  [[nodiscard]] std::size_t shared_bytes() const {
    const index_t elements = shared_ ? padded_columns(kernels_, columns_.count) * terms_ : 0;
    return (static_cast<std::size_t>(elements) * sizeof(real) + 63) / 64 * 64;
  }

  struct worker_memory {
    index_t* a_row;
    index_t* c_row;
    index_t* c_column;
    real* rows;
    real* panels;
    real* sums;
    real* tile;
  };
  /// Memory for a block of at most `rows` rows and `columns` columns, for every division of the terms.
  /// @param all_terms  number of terms of the product
  [[nodiscard]] static worker_memory take(const tile_kernels<real>& kernels, index_t rows, index_t columns,
                                          index_t all_terms, scratch& memory) {
    const index_t terms = std::min(all_terms, most_terms(kernels));
    const index_t panel = kernels.width * terms;
    const index_t group = std::min(columns, most_panels * kernels.width);
    worker_memory m{};
    m.a_row = memory.template take<index_t>(std::max(rows, kernels.rows));
    m.c_row = memory.template take<index_t>(rows);
    m.c_column = memory.template take<index_t>(group);
    m.tile = memory.template take<real>(2 * kernels.rows * group);
    m.rows = memory.template take<real>((rows + kernels.spare_lines()) * (terms + row_gap));
    m.panels = memory.template take<real>(
        std::max(panel, std::min(group * terms, group_bytes / static_cast<index_t>(sizeof(real)))));
    m.sums = memory.template take<real>(
        all_terms > least_terms ? rows * std::min(columns, round_up(most_columns, kernels.width)) : 0);
    return m;
  }
  [[nodiscard]] worker_memory take(scratch& memory) const {
    const index_t rows = ceil_div(rows_.count, std::max<index_t>(1, row_parts_));
    const index_t panels = ceil_div(ceil_div(columns_.count, kernels_.width), std::max<index_t>(1, column_parts_));
    return take(kernels_, rows, panels * kernels_.width, terms_, memory);
  }
  [[nodiscard]] std::size_t worker_bytes() const {
    scratch memory;
    static_cast<void>(take(memory));
    return memory.used();
  }

  /// Packs the panels [begin, end) of a block of terms one after another.
  void pack_panels(const Element* from, index_t begin, index_t end, const term_block& part, real* to) const {
    // Distant terms are read a few at a time: the next panel then finds their cache lines in the cache.
    const index_t few = columns_.step == 1 ? index_t{4} : std::max<index_t>(1, part.length);
    for (index_t term = 0; term < part.length; term += few) {
      const term_block some{.offset = part.offset + term, .length = std::min(few, part.length - term)};
      for (index_t p = begin; p < end; ++p) {
        const index_t column = p * kernels_.width;
        const index_t left = columns_.count - column;
        const index_t width = next_panel_width(kernels_, left);
        pack_panel(kernels_, from + column * columns_.step + first_term(some) * columns_.term_step, columns_.step,
                   columns_.term_step, std::min(left, kernels_.width), count_terms(some), width,
                   to + (p - begin) * kernels_.width * part.length + term * width);
      }
    }
  }
  /// Offset of a panel of a block of terms if all panels are packed first; the panels of a block follow each other.
  [[nodiscard]] index_t shared_offset(index_t panel, const term_block& part) const {
    return part.offset * padded_columns(kernels_, columns_.count) + panel * kernels_.width * part.length;
  }

  template <class Result>
  void run_block(index_t row_part, index_t column_part, const Element* row_side, const Element* column_side,
                 const real* shared, const tile_output<Result>& output, scratch memory) const {
    const worker_memory m = take(memory);
    const index_t row = part_begin(rows_.count, row_parts_, row_part);
    const index_t rows = part_begin(rows_.count, row_parts_, row_part + 1) - row;
    const index_t all_panels = ceil_div(columns_.count, kernels_.width);
    const index_t panel_begin = part_begin(all_panels, column_parts_, column_part);
    const index_t panel_end = part_begin(all_panels, column_parts_, column_part + 1);
    for (index_t i = 0; i < rows; ++i) {
      m.c_row[i] = (row + i) * rows_.result_step;
    }
    for (index_t i = 0; i < std::max(rows, kernels_.rows); ++i) {
      m.a_row[i] = packs_rows_ ? i : (row + i) * rows_.step;
    }
    for (index_t j = 0; j < std::min(group_, panel_end - panel_begin) * kernels_.width; ++j) {
      m.c_column[j] = j * columns_.result_step;
    }
    const index_t no_segment = 0;
    const term_blocks blocks = blocks_of_terms();
    for (index_t i = 0; i < blocks.count(); ++i) {
      const term_block part = blocks[i];
      if (packs_rows_) {
        for (index_t tile = 0; tile < rows;) {
          const index_t height = next_tile_rows(kernels_, rows - tile);
          pack_panel(kernels_, row_side + (row + tile) * rows_.step + first_term(part) * rows_.term_step, rows_.step,
                     rows_.term_step, height, count_terms(part), height, m.rows + tile * part.length);
          tile += height;
        }
      } else if (copies_rows_) {
        // Copies with a gap: rows whose distance is a power of two would share few cache sets.
        const index_t pitch = part.length + row_gap;
        for (index_t r = 0; r < rows; ++r) {
          m.a_row[r] = r * pitch;
        }
        const Element* const from = row_side + row * rows_.step + first_term(part) * rows_.term_step;
        if (rows_.term_step == 1) {
          read_rows_of_terms(kernels_, from, rows_.step, rows, count_terms(part), pitch, m.rows);
        } else {
          read_planes_of_terms(kernels_, from, rows_.term_step, rows, count_terms(part), pitch, m.rows);
        }
      }
      for (index_t p = panel_begin; p < panel_end; p += group_) {
        const index_t end = std::min(p + group_, panel_end);
        const index_t column = p * kernels_.width;
        panel_rows<real> panel;
        panel.rows = rows;
        panel.columns = std::min(columns_.count, end * kernels_.width) - column;
        panel.terms = part.length;
        panel.sums = m.sums + (p - panel_begin) * kernels_.width * rows;
        panel.tile = m.tile;
        panel.c_column = columns_.result_step == 1 ? nullptr : m.c_column;
        panel.first = i == 0;
        panel.last = i + 1 == blocks.count();
        panel.packed_terms = packs_rows_ ? part.length : 0;
        tile_call<real> call;
        call.a = m.rows;
        if constexpr (in_place_) {
          call.a = packs_rows_ || copies_rows_ ? m.rows : row_side + part.offset * rows_.term_step;
        }
        call.a_row = m.a_row;
        call.a_step = copies_rows_ ? 1 : rows_.term_step;
        call.line_step = part.length + row_gap;
        call.segments = &no_segment;
        call.segment_count = 1;
        call.segment_length = part.length;
        if (shared_) {
          call.b = shared + shared_offset(p, part);
        } else {
          pack_panels(column_side, p, end, part, m.panels);
          call.b = m.panels;
        }
        call.c_row = m.c_row;
        tile_output<Result> stored = shifted(output, column * columns_.result_step);
        if (output.bias != nullptr) {
          stored.bias = output.bias + (swapped_ ? row : column);
          stored.bias_of_rows = swapped_;
        }
        multiply_rows(kernels_, call, panel, stored);
      }
    }
  }

  const tile_kernels<real>& kernels_;
  index_t terms_;      // of tiles: units_of()
  index_t all_terms_;  // single ones
  index_t threads_;
  bool swapped_;  // the rows of the tiles are the columns of C
  bool thin_;     // matrix-vector product: few vectors, no tiles
  side rows_;
  side columns_;
  bool packs_rows_;     // tile by tile, terms outermost
  bool copies_rows_;    // unchanged, with a smaller distance
  bool shared_;         // all panels are packed first, because several blocks use them
  index_t most_terms_;  // of a block
  index_t group_;       // panels that a tile of rows uses one after another
  index_t row_parts_;
  index_t column_parts_;
};

/// The epilogue and the output of the product.
template <class Element>
[[nodiscard]] tile_output<Element> output_of(Element* c, const matmul_epilogue<Element>& epilogue) noexcept {
  return {.c = c,
          .mask = epilogue.relu_output,
          .bias = epilogue.bias,
          .accumulate = epilogue.accumulate,
          .act = held_activation<computed<Element>>{epilogue.act},
          .derivative = held_derivative<computed<Element>>{epilogue.mask}};
}

/// Bytes of the factor B rounded to Element.
template <class Element>
[[nodiscard]] std::size_t rounded_bytes(const matmul_shape& shape) noexcept {
  return (static_cast<std::size_t>(shape.k * shape.n) * sizeof(Element) + 63) / 64 * 64;
}

}  // namespace detail

/// Implements has_matmul_workspace_bytes on the CPU.
template <real_element Element>
[[nodiscard]] std::size_t matmul_workspace_bytes(cpu& device, const matmul_shape& shape) {
  return detail::largest_workspace<Element>([&](const detail::tile_kernels<Element>& kernels) {
    return detail::product<Element>::workspace_bytes(kernels, shape, device.threads());
  });
}

/// Implements has_matmul on the CPU.
template <real_element Element>
void matmul(cpu& device, const matmul_shape& shape, const Element* a, const Element* b, Element* c,
            const matmul_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  const detail::product<Element> product{detail::current_tile_kernels<Element>(), shape, device.threads()};
  product.run(device, a, b, detail::output_of(c, epilogue), workspace.data());
}

/// Implements has_matmul_workspace_bytes on the CPU.
template <storage_element Element>
[[nodiscard]] std::size_t matmul_workspace_bytes(cpu& device, const matmul_shape& shape) {
  using real = parameter_element_t<Element>;
  return detail::rounded_bytes<Element>(shape) +
         detail::largest_workspace<Element>([&](const detail::tile_kernels<real>& kernels) {
           return detail::product<Element>::workspace_bytes(kernels, shape, device.threads());
         });
}

/// The product of images and a parameter; the parameter is rounded to Element first. See has_matmul_of_parameters.
template <storage_element Element>
void matmul(cpu& device, const matmul_shape& shape, const Element* a, const parameter_element_t<Element>* b, Element* c,
            const matmul_epilogue<Element>& epilogue, std::span<std::byte> workspace) {
  auto* const rounded = reinterpret_cast<Element*>(workspace.data());
  const auto& kernels = detail::current_storage_kernels<Element>();
  device.parallel_for(shape.k * shape.n, index_t{1} << 14U, [&](index_t begin, index_t end) {
    detail::store_rows<Element>(kernels, b + begin, 1, 0, end - begin, &begin, {.c = rounded});
  });
  const detail::product<Element> product{kernels, shape, device.threads()};
  product.run(device, a, rounded, detail::output_of(c, epilogue),
              workspace.data() + detail::rounded_bytes<Element>(shape));
}

/// The product of images and gradients of images, which is the gradient of a parameter. See has_matmul_to_parameters.
template <storage_element Element>
void matmul(cpu& device, const matmul_shape& shape, const Element* a, const Element* b, parameter_element_t<Element>* c,
            const matmul_epilogue<parameter_element_t<Element>>& epilogue, std::span<std::byte> workspace) {
  const detail::product<Element> product{detail::current_storage_kernels<Element>(), shape, device.threads()};
  product.run(device, a, b, detail::output_of(c, epilogue), workspace.data());
}

/// Implements has_column_sums on the CPU.
template <network_element Element>
void column_sums(cpu& device, index_t rows, index_t columns, const Element* a, parameter_element_t<Element>* sums) {
  using real = parameter_element_t<Element>;
  const auto& kernels = detail::current_tile_kernels<real>();
  device.parallel_for(columns, 256, [&](index_t begin, index_t end) {
    std::fill_n(sums + begin, end - begin, real{});
    for (index_t i = 0; i < rows; ++i) {
      detail::add_run(kernels, a + i * columns + begin, end - begin, sums + begin);
    }
  });
}

}  // namespace gradus::kernels
