// SPDX-License-Identifier: BSL-1.0
//
// Products of a matrix with a few vectors. The matrix is read once, in place.
#pragma once

#include <algorithm>    // std::clamp, std::fill_n, std::max, std::min
#include <array>        // std::array
#include <cstddef>      // std::byte, std::size_t
#include <type_traits>  // std::is_same_v

#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu/detail/simd/panels.hpp"

namespace gradus::kernels::detail {

/// One factor of a product: its rows or columns, each with the common number of terms.
struct product_side {
  index_t count;        ///< rows or columns
  index_t step;         ///< elements from one row or column to the next
  index_t term_step;    ///< elements from one term to the next
  index_t result_step;  ///< elements from one row or column to the next in C
};

/// A product in which one factor has at most `most_vectors` rows or columns, and the other, `matrix`, any number;
/// reading the matrix dominates the cost. If the matrix has rows of terms, the results are dot products; if it has rows
/// of columns, they are sums of multiples of rows. Only the shape sets how the work is divided, so the sums do not
/// depend on the number of threads.
template <class Element>
class matrix_vector_product {
  using real = computed<Element>;  // of sums and factors

 public:
  static constexpr index_t most_vectors = 6;  ///< with more, tiles are faster
  static constexpr index_t least_terms = 64;  ///< with fewer, summing a vector's SIMD lanes costs too much

  matrix_vector_product(const tile_kernels<real>& kernels, const product_side& vectors, const product_side& matrix,
                        index_t terms)
      : kernels_{kernels}, vectors_{vectors}, matrix_{matrix}, terms_{terms} {
    blocks_ = ceil_div(matrix.count, matrix.term_step == 1 ? most_rows : most_columns);
    if (matrix.term_step != 1) {
      parts_ = std::clamp<index_t>(wanted_tasks / std::max<index_t>(1, blocks_), 1, 1 + terms / least_terms);
    }
  }

  /// Enough for every product of at most this size.
  [[nodiscard]] static std::size_t workspace_bytes(index_t matrix_count, index_t terms, index_t threads) {
    scratch memory;
    static_cast<void>(memory.take<real>(most_vectors * terms));
    static_cast<void>(memory.take<real>(widens_ ? threads * few * std::max(terms, most_columns) : 0));
    static_cast<void>(memory.take<real>(
        most_vectors * std::max(matrix_count, std::min(wanted_tasks * matrix_count, wanted_tasks * most_columns))));
    return memory.used();
  }

  /// @param output  its bias is one value for each vector if bias_of_rows, else one for each row of the matrix
  template <class Result>
  void run(cpu& device, const Element* vectors, const Element* matrix, const tile_output<Result>& output,
           std::byte* workspace) const {
    scratch memory{workspace};
    auto* const packed = memory.take<real>(vectors_.count * terms_);
    auto* const widened = memory.take<real>(widens_ ? device.threads() * few * std::max(terms_, most_columns) : 0);
    auto* const sums = memory.take<real>(parts_ * vectors_.count * matrix_.count);
    const bool packs = widens_ || vectors_.term_step != 1;
    if (packs) {
      for (index_t i = 0; i < vectors_.count; ++i) {
        for (index_t k = 0; k < terms_; ++k) {
          packed[i * terms_ + k] = vectors[i * vectors_.step + k * vectors_.term_step];
        }
      }
    }
    const real* x = packed;
    if constexpr (!widens_) {
      x = packs ? packed : vectors;
    }
    for_each_task(device, blocks_ * parts_, [&, this](index_t worker, index_t task) {
      real* const wide = widened + worker * few * std::max(terms_, most_columns);
      const index_t begin = part_begin(matrix_.count, blocks_, task / parts_);
      const index_t count = part_begin(matrix_.count, blocks_, task / parts_ + 1) - begin;
      if (matrix_.term_step == 1) {
        multiply_rows_of_terms(x, matrix + begin * matrix_.step, count, wide, sums + begin);
      } else {
        add_terms(x, matrix + begin, task % parts_, count, wide,
                  sums + task % parts_ * vectors_.count * matrix_.count + begin);
      }
    });
    for (index_t part = 1; part < parts_; ++part) {
      kernels_.add(sums + part * vectors_.count * matrix_.count, vectors_.count * matrix_.count, sums);
    }
    store(sums, output);
  }

 private:
  static constexpr bool widens_ = !std::is_same_v<Element, real>;
  static constexpr index_t most_rows = 128;      // of a task, for rows of terms
  static constexpr index_t most_columns = 2048;  // of a task: long runs of memory
  static constexpr index_t wanted_tasks = 4;
  static constexpr index_t few = 4;  // rows that stay in the cache until all vectors have used them

  /// sums[i * matrix_.count + j] = dot product of vector i and row j.
  void multiply_rows_of_terms(const real* x, const Element* rows, index_t count, real* wide, real* sums) const {
    for (index_t j = 0; j < count; j += few) {
      const index_t some = std::min(few, count - j);
      index_t step = matrix_.step;
      const real* const few_rows = widen(rows + j * matrix_.step, some, terms_, step, wide);
      for (index_t i = 0; i < vectors_.count; ++i) {
        kernels_.dot_rows(x + i * terms_, few_rows, step, some, terms_, sums + i * matrix_.count + j);
      }
    }
  }

  /// The same over a part of the terms, each of which is a row of columns.
  void add_terms(const real* x, const Element* columns, index_t part, index_t count, real* wide, real* sums) const {
    for (index_t i = 0; i < vectors_.count; ++i) {
      std::fill_n(sums + i * matrix_.count, count, real{});
    }
    const index_t end = part_begin(terms_, parts_, part + 1);
    for (index_t k = part_begin(terms_, parts_, part); k < end; k += few) {
      const index_t some = std::min(few, end - k);
      index_t step = matrix_.term_step;
      const real* const few_terms = widen(columns + k * matrix_.term_step, some, count, step, wide);
      for (index_t i = 0; i < vectors_.count; ++i) {
        kernels_.add_rows(x + i * terms_ + k, few_terms, step, some, count, sums + i * matrix_.count);
      }
    }
  }

  /// Rows in the type of the factors: in place, or widened to `wide`; sets their new step.
  static const real* widen(const Element* rows, [[maybe_unused]] index_t count, [[maybe_unused]] index_t length,
                           [[maybe_unused]] index_t& step, [[maybe_unused]] real* wide) {
    if constexpr (widens_) {
      for (index_t i = 0; i < count; ++i) {
        read_run(rows + i * step, length, wide + i * length);
      }
      step = length;
      return wide;
    } else {
      return rows;
    }
  }

  template <class Result>
  void store(const real* sums, const tile_output<Result>& output) const {
    std::array<index_t, most_vectors> c_row{};
    for (index_t i = 0; i < vectors_.count; ++i) {
      c_row[static_cast<std::size_t>(i)] = i * vectors_.result_step;
    }
    if (matrix_.result_step == 1) {
      store_rows(kernels_, sums, vectors_.count, matrix_.count, matrix_.count, c_row.data(), output);
      return;
    }
    // The vectors are columns of C, and the bias has a value for each: stores one row of C at a time.
    const index_t column = 0;
    for (index_t j = 0; j < matrix_.count; ++j) {
      store_scattered(sums + j, vectors_.count, 1, matrix_.count, c_row.data(), &column,
                      shifted(output, j * matrix_.result_step));
    }
  }

  const tile_kernels<real>& kernels_;
  product_side vectors_;
  product_side matrix_;
  index_t terms_;
  index_t blocks_;     // of the matrix's rows or columns
  index_t parts_ = 1;  // of the terms
};

}  // namespace gradus::kernels::detail
