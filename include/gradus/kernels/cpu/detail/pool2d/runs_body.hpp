// SPDX-License-Identifier: BSL-1.0
//
// Pooling of runs, for one instruction set.

// No `#pragma once`: for_each_target.hpp says what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::kernels::detail::GRADUS_TARGET {

// The packets of a block are computed together: their sums and maxima stay in registers and hide each other's latency.

/// y = the largest entries, choice = their indices; choice may be null.
template <class Element>
[[gnu::flatten]] void max_windows(const window_run<Element>& runs, Element* y, std::uint8_t* choice) noexcept {
  using packets = packet<Element>;
  constexpr index_t lanes = packets::lanes;
  window_run<Element> run = runs;  // a copy, so that it can be in registers
  const auto window = [&]<int Block>(packets p, std::integral_constant<int, Block>, index_t i) {
    typename packets::type best[std::size_t{Block}];
    typename packets::type sum[std::size_t{Block}];
    typename packets::index_vector chosen[std::size_t{Block}];
    const Element* row = run.x + i;
    typename packets::index_vector entry = packets::broadcast_index(run.entry);
#pragma GCC unroll 4
    for (int j = 0; j < Block; ++j) {
      best[j] = p.load(row + j * lanes);
      sum[j] = typename packets::type{};
      chosen[j] = entry;
    }
    const auto skipped = static_cast<typename packets::index_type>(run.kernel_width - run.columns);
    for (index_t r = 0; r < run.rows; ++r, row += run.row_step, entry += skipped) {
      const Element* from = row;
      for (index_t s = 0; s < run.columns; ++s, from += run.column_step, entry += 1) {
        __builtin_prefetch(from + Block * lanes);
#pragma GCC unroll 4
        for (int j = 0; j < Block; ++j) {
          const typename packets::type value = p.load(from + j * lanes);
          // The last entry that was larger than all before has the largest index among them.
          chosen[j] = packets::larger_byte(chosen[j], (value > best[j]) & entry);
          best[j] = packets::larger(value, best[j]);
          sum[j] += value;
        }
      }
    }
    typename packets::index_vector nan{};
#pragma GCC unroll 4
    for (int j = 0; j < Block; ++j) {
      const index_t lane = run.output + i + j * lanes;
      p.store(y + lane, best[j]);
      if (choice != nullptr) {
        p.store_bytes(choice + lane, chosen[j]);
      }
      nan |= sum[j] != sum[j];
    }
    // A sum is NaN if a term is NaN, or if there are infinities of both signs.
    if (packets::any(nan)) [[unlikely]] {
      max_windows_with_nan(window_run<Element>{run}, i, Block == 1 ? p.count : Block * lanes, y, choice);
    }
  };
  for (; run.pixels > 0; --run.pixels, run.x += run.input_step, run.output += run.output_step) {
    for_each_block<Element>(run.lanes, window);
  }
}

/// y = the means of the entries.
template <class Element>
[[gnu::flatten]] void average_windows(const window_run<Element>& runs, Element* y, std::uint8_t* /*choice*/) noexcept {
  using packets = packet<Element>;
  constexpr index_t lanes = packets::lanes;
  window_run<Element> run = runs;  // a copy, so that it can be in registers
  const auto window = [&]<int Block>(packets p, std::integral_constant<int, Block>, index_t i) {
    typename packets::type sum[std::size_t{Block}]{};
    const Element* row = run.x + i;
    for (index_t r = 0; r < run.rows; ++r, row += run.row_step) {
      const Element* from = row;
      for (index_t s = 0; s < run.columns; ++s, from += run.column_step) {
        __builtin_prefetch(from + Block * lanes);
#pragma GCC unroll 4
        for (int j = 0; j < Block; ++j) {
          sum[j] += p.load(from + j * lanes);
        }
      }
    }
#pragma GCC unroll 4
    for (int j = 0; j < Block; ++j) {
      p.store(y + run.output + i + j * lanes, sum[j] * run.share);
    }
  };
  for (; run.pixels > 0; --run.pixels, run.x += run.input_step, run.output += run.output_step) {
    for_each_block<Element>(run.lanes, window);
  }
}

/// Stores gradients with their epilogue.
template <class Element>
GRADUS_ALWAYS_INLINE void store_gradient(packet<Element> p, Element* dx, typename packet<Element>::type value,
                                         const backward_epilogue<Element>& epilogue, index_t i) noexcept {
  if (epilogue.accumulate) {
    value += p.load(dx + i);
  }
  if (epilogue.relu_output != nullptr) {
    value =
        p.load(epilogue.relu_output + i) > typename packet<Element>::type{} ? value : typename packet<Element>::type{};
  }
  p.store(dx + i, value);
}

/// Computes the gradients of a row of inputs. add(packet, sum, p, q, entry, i) adds to the Block packets of `sum` what
/// output (p, q), at offset i, contributes to the inputs that are this entry under its kernel.
/// @tparam Regular  the columns are
template <bool Regular, class Element, class Add>
GRADUS_ALWAYS_INLINE void gradients_of_row(const input_row& given, const gradient_target<Element>& to,
                                           const Add& add_window) noexcept {
  using packets = packet<Element>;
  constexpr index_t lanes = packets::lanes;
  // Copies, so that they can be in registers.
  const input_row row = given;
  const gradient_target<Element> target = to;
  const Add add = add_window;
  const pool_axis& columns = row.columns;
  pool_range q{0, 0};
  [[maybe_unused]] index_t end_of_first = columns.kernel - columns.pad;  // one past the kernel of output q.begin
  [[maybe_unused]] index_t start_of_last = -columns.pad;                 // of the kernel of output q.end
  for (index_t w = 0; w < columns.inputs; ++w) {
    if constexpr (Regular) {  // windows_with(w), without a division
      for (; q.begin < columns.outputs && end_of_first <= w; ++q.begin) {
        end_of_first += columns.stride;
      }
      for (; q.end < columns.outputs && start_of_last <= w; ++q.end) {
        start_of_last += columns.stride;
      }
    } else {
      q = columns.windows_with(w);
    }
    const index_t input = row.input + w * row.input_step;
    for_each_block<Element>(row.lanes, [&]<int Block>(packets packet, std::integral_constant<int, Block>, index_t i) {
      typename packets::type sum[std::size_t{Block}]{};
      index_t output = row.output + q.begin * row.column_step + i;
      for (index_t p = row.p.begin; p < row.p.end; ++p, output += row.row_step) {
        index_t place = output;
        for (index_t j = q.begin; j < q.end; ++j, place += row.column_step) {
          add(packet, sum, p, j, columns.template entry<Regular>(w, j), place);
        }
      }
#pragma GCC unroll 4
      for (int j = 0; j < Block; ++j) {
        const index_t place = input + i + j * lanes;
        if (target.sums != nullptr) {
          packet.store(target.sums + place, sum[j]);
        } else {
          store_gradient(packet, target.dx, sum[j], target.epilogue, place);
        }
      }
    });
  }
}

/// The gradients of a row of inputs of max pooling.
/// @tparam Regular  rows and columns are
template <class Element, bool Regular>
[[gnu::flatten]] void max_gradients_of_row(const pool_plan& plan, const pool_backward<Element>& call,
                                           const input_row& row, index_t h) noexcept {
  using packets = packet<Element>;
  constexpr index_t lanes = packets::lanes;
  gradients_of_row<Regular>(
      row, call.target,
      [=, rows = plan.rows, width = plan.columns.kernel, dy = call.dy, choice = call.choice]<std::size_t Block>(
          packets packet, typename packets::type(&sum)[Block], index_t p, index_t, index_t s, index_t i) {
        const index_t r = rows.template entry<Regular>(h, p);
        if (!Regular && (r | s) < 0) {  // between the entries of a dilated kernel
          return;
        }
        const auto entry = packets::broadcast_index(static_cast<int>(r * width + s));
        constexpr int block{Block};
#pragma GCC unroll 4
        for (int j = 0; j < block; ++j) {
          const index_t at = i + j * lanes;
          sum[j] += packets::masked(packet.load_bytes(choice + at) == entry, packet.load(dy + at));
        }
      });
}

/// The gradients of a row of inputs of average pooling.
/// @tparam Regular  rows and columns are
template <class Element, bool Regular>
[[gnu::flatten]] void average_gradients_of_row(const pool_plan& plan, const pool_backward<Element>& call,
                                               const input_row& row, index_t /*h*/) noexcept {
  using packets = packet<Element>;
  constexpr index_t lanes = packets::lanes;
  const pool_range rows = plan.rows.whole_divisors(plan.count_padding);
  const pool_range columns = plan.columns.whole_divisors(plan.count_padding);
  using real = computed<Element>;
  const real usual = real{1} / static_cast<real>(plan.rows.kernel * plan.columns.kernel);
  gradients_of_row<Regular>(
      row, call.target,
      [=, &plan, dy = call.dy]<std::size_t Block>(packets packet, typename packets::type(&sum)[Block], index_t p,
                                                  index_t q, index_t, index_t i) {
        real share = usual;
        if (!rows.holds(p) || !columns.holds(q)) [[unlikely]] {
          share = real{1} / static_cast<real>(plan.rows.template divisor<Regular>(p, plan.count_padding) *
                                              plan.columns.template divisor<Regular>(q, plan.count_padding));
        }
        constexpr int block{Block};
#pragma GCC unroll 4
        for (int j = 0; j < block; ++j) {
          sum[j] += packet.load(dy + i + j * lanes) * share;
        }
      });
}

// The functions of pool_forward and pool_backward.

template <class Element>
[[nodiscard]] auto max_windows_of(target /*of*/) noexcept {
  return &max_windows<Element>;
}
template <class Element>
[[nodiscard]] auto average_windows_of(target /*of*/) noexcept {
  return &average_windows<Element>;
}
// Kernels that are dilated or adapted to the image are rare: they have the portable functions.
template <class Element>
[[nodiscard]] auto max_gradients_of(target /*of*/, bool regular) noexcept {
  return regular ? &max_gradients_of_row<Element, true> : &portable::max_gradients_of_row<Element, false>;
}
template <class Element>
[[nodiscard]] auto average_gradients_of(target /*of*/, bool regular) noexcept {
  return regular ? &average_gradients_of_row<Element, true> : &portable::average_gradients_of_row<Element, false>;
}

}  // namespace gradus::kernels::detail::GRADUS_TARGET

#endif
