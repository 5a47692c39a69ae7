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

/// Stores adjacent sums as gradients with their epilogue, `step` elements apart, from element `offset` of dx on.
template <class Element>
void store_gradients(target /*of*/, index_t count, const computed<Element>* sums, Element* dx, index_t step,
                     const backward_epilogue<Element>& given, index_t offset) noexcept {
  const backward_epilogue<Element> epilogue = given;
  if (step == 1) {
    for_each_packet<Element>(
        0, count, [=](packet<Element> p, index_t i) { store_gradient(p, dx, p.load(sums + i), epilogue, offset + i); });
    return;
  }
  for (index_t i = 0; i < count; ++i) {
    store_gradient(packet<Element>{1}, dx, packet<Element>::broadcast(sums[i]), epilogue, offset + i * step);
  }
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
        index_t offset = output;
        for (index_t j = q.begin; j < q.end; ++j, offset += row.column_step) {
          add(packet, sum, p, j, columns.template entry<Regular>(w, j), offset);
        }
      }
#pragma GCC unroll 4
      for (int j = 0; j < Block; ++j) {
        const index_t offset = input + i + j * lanes;
        if (target.sums != nullptr) {
          packet.store(target.sums + offset, sum[j]);
        } else {
          store_gradient(packet, target.dx, sum[j], target.epilogue, offset);
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

/// Two vectors of adjacent elements, or of the elements of two columns that alternate. Instructions that cross parts of
/// 16 bytes are slow: columns have an order of their own within a vector.
template <class Element>
struct packet_pair {
  using packets = packet<Element>;
  using type = typename packets::type;
  static constexpr int lanes = packets::lanes;
  static constexpr int part = 16 / int{sizeof(typename packets::real)};
  static constexpr int parts = lanes / part;
  static constexpr std::make_integer_sequence<int, lanes> all{};

  type first;
  type second;

  /// The columns of 2 * p.count elements.
  GRADUS_ALWAYS_INLINE static packet_pair load(packets p, const Element* from) noexcept {
    return packet_pair{lower(p).load(from), upper(p).load(from + lanes)}.split(all);
  }
  /// Stores gradients of columns from element i of dx on.
  GRADUS_ALWAYS_INLINE void store(packets p, Element* dx, const backward_epilogue<Element>& epilogue,
                                  index_t i) const noexcept {
    const packet_pair adjacent = joined(all);
    store_gradient(lower(p), dx, adjacent.first, epilogue, i);
    store_gradient(upper(p), dx, adjacent.second, epilogue, i + lanes);
  }
  /// Elements in the order of columns, as they are in memory.
  template <class Vector, int... Lane>
  GRADUS_ALWAYS_INLINE static Vector ordered(const Vector& a, std::integer_sequence<int, Lane...> /*lanes*/) noexcept {
    return shuffled(a, a,
                    std::integer_sequence<int, (Lane * 2 / part % parts * part + Lane * 2 / part / parts * (part / 2) +
                                                Lane % (part / 2))...>{});
  }
  /// The reverse.
  template <class Vector, int... Lane>
  GRADUS_ALWAYS_INLINE static Vector spread(const Vector& a, std::integer_sequence<int, Lane...> /*lanes*/) noexcept {
    return shuffled(a, a,
                    std::integer_sequence<int, (Lane % part * 2 / part * (lanes / 2) + Lane / part * (part / 2) +
                                                Lane % (part / 2))...>{});
  }

 private:
  GRADUS_ALWAYS_INLINE static packets lower(packets p) noexcept {
    return {2 * p.count < lanes ? 2 * p.count : index_t{lanes}};
  }
  GRADUS_ALWAYS_INLINE static packets upper(packets p) noexcept {
    return {2 * p.count < lanes ? index_t{0} : 2 * p.count - lanes};
  }
  /// Lanes of two vectors, of which those of b have the indices from `lanes` on.
  template <class Vector, int... Index>
  GRADUS_ALWAYS_INLINE static Vector shuffled(const Vector& a, const Vector& b,
                                              std::integer_sequence<int, Index...> /*of lanes*/) noexcept {
#ifdef __CUDACC__  // nvcc does not expand a pack in __builtin_shufflevector
    return Vector{(Index < lanes ? a[Index % lanes] : b[Index % lanes])...};
#else
    return GRADUS_SHUFFLE(a, b, Index...);
#endif
  }
  template <int... Lane>
  GRADUS_ALWAYS_INLINE packet_pair split(std::integer_sequence<int, Lane...> /*lanes*/) const noexcept {
    return {
        shuffled(
            first, second,
            std::integer_sequence<int, (Lane % part * 2 / part * lanes + Lane / part * part + Lane * 2 % part)...>{}),
        shuffled(first, second,
                 std::integer_sequence<int, (Lane % part * 2 / part * lanes + Lane / part * part + Lane * 2 % part +
                                             1)...>{})};
  }
  template <int... Lane>
  GRADUS_ALWAYS_INLINE packet_pair joined(std::integer_sequence<int, Lane...> /*lanes*/) const noexcept {
    return {
        shuffled(first, second,
                 std::integer_sequence<int, (Lane % 2 * lanes + Lane / part * part + Lane % part / 2)...>{}),
        shuffled(first, second,
                 std::integer_sequence<int, (Lane % 2 * lanes + Lane / part * part + (Lane % part + part) / 2)...>{})};
  }
};

/// Calls body(packet, i) for i in [0, count). If `twice`, the last full vector overlaps the one before: a part of a
/// vector takes longer.
template <class Element, class Body>
GRADUS_ALWAYS_INLINE void for_each_in_row(index_t count, bool twice, const Body& body) noexcept {
  constexpr index_t lanes = packet<Element>::lanes;
  const index_t last = count - lanes;
  index_t i = 0;
  for (const index_t end = twice && last >= 0 ? count : last + 1; i < end; i += lanes) {
    body(packet<Element>{}, std::min(i, last));
  }
  if (i < count) {
    body(packet<Element>{count - i}, i);
  }
}

/// 2x2 pooling of a plane: y = the means of the entries, or y = the largest entries and choice = their indices; choice
/// may be null.
template <class Element>
[[gnu::flatten]] void pool_two_by_two(target /*of*/, const two_by_two_plane& plane, const Element* x, Element* y,
                                      std::uint8_t* choice, bool average) noexcept {
  using packets = packet<Element>;
  using pair = packet_pair<Element>;
  const index_t width = plane.in_width;
  const index_t outputs = plane.out_width;
  for (index_t p = plane.out_height; p > 0; --p, x += 2 * width, y += outputs) {
    if (average) {
      for_each_in_row<Element>(
          outputs, true, [=](packets some, index_t q) __attribute__((always_inline)) {
            const pair top = pair::load(some, x + 2 * q);
            const pair bottom = pair::load(some, x + width + 2 * q);
            const auto sum = (top.first + bottom.first) + (top.second + bottom.second);
            some.store(y + q, pair::ordered(sum * computed<Element>{0.25}, pair::all));
          });
      continue;
    }
    for_each_in_row<Element>(
        outputs, true, [=](packets some, index_t q) __attribute__((always_inline)) {
          const pair top = pair::load(some, x + 2 * q);
          const pair bottom = pair::load(some, x + width + 2 * q);
          typename packets::type best = top.first;
          typename packets::index_vector chosen{};
          const auto take = [&](const typename packets::type& value, int entry) {
            chosen = packets::larger_byte(chosen, (value > best) & packets::broadcast_index(entry));
            best = packets::larger(value, best);
          };
          take(top.second, 1);
          take(bottom.first, 2);
          take(bottom.second, 3);
          some.store(y + q, pair::ordered(best, pair::all));
          if (choice != nullptr) {
            some.store_bytes(choice + q, pair::ordered(chosen, pair::all));
          }
          const typename packets::type sum = (top.first + bottom.first) + (top.second + bottom.second);
          if (packets::any(sum != sum)) [[unlikely]] {
            for (index_t i = q; i < q + some.count; ++i) {
              max_windows_with_nan(window_run<Element>{.x = x + 2 * i,
                                                       .rows = 2,
                                                       .columns = 2,
                                                       .row_step = width,
                                                       .column_step = 1,
                                                       .output = i,
                                                       .kernel_width = 2},
                                   0, 1, y, choice);
            }
          }
        });
    choice += choice == nullptr ? 0 : outputs;
  }
}

/// The gradients of 2x2 pooling of a plane; a null choice: of means.
template <class Element>
[[gnu::flatten]] void gradients_of_two_by_two(target /*of*/, const two_by_two_plane& plane, const Element* dy,
                                              const std::uint8_t* choice, Element* dx,
                                              const backward_epilogue<Element>& given) noexcept {
  using packets = packet<Element>;
  using pair = packet_pair<Element>;
  const backward_epilogue<Element> epilogue = given;
  const index_t width = plane.in_width;
  const index_t outputs = plane.out_width;
  const auto clear = [=](index_t begin, index_t end) {
    for_each_packet<Element>(
        begin, end, [=](packets p, index_t i) { store_gradient(p, dx, typename packets::type{}, epilogue, i); });
  };
  for (index_t h = 0; h < 2 * plane.out_height; ++h) {
    const Element* const gradients = dy + h / 2 * outputs;
    const index_t row = h * width;
    if (choice == nullptr) {
      for_each_in_row<Element>(
          outputs, !epilogue.accumulate, [=](packets some, index_t q) __attribute__((always_inline)) {
            const auto part = pair::spread(some.load(gradients + q), pair::all) * computed<Element>{0.25};
            pair{part, part}.store(some, dx, epilogue, row + 2 * q);
          });
    } else {
      const std::uint8_t* const choices = choice + h / 2 * outputs;
      const auto entry = static_cast<int>(h % 2 * 2);
      for_each_in_row<Element>(
          outputs, !epilogue.accumulate, [=](packets some, index_t q) __attribute__((always_inline)) {
            const auto gradient = pair::spread(some.load(gradients + q), pair::all);
            const auto chosen = pair::spread(some.load_bytes(choices + q), pair::all);
            pair{packets::masked(chosen == packets::broadcast_index(entry), gradient),
                 packets::masked(chosen == packets::broadcast_index(entry + 1), gradient)}
                .store(some, dx, epilogue, row + 2 * q);
          });
    }
    clear(row + 2 * outputs, row + width);
  }
  clear(2 * plane.out_height * width, plane.in_height * width);
}

/// The gradients of 2x2 max pooling without overlap, with adjacent channels, for the inputs of row p of the outputs.
/// The last row takes the inputs below it too. @param output, input  offsets of the first pixels of rows p and 2 p
template <class Element>
[[gnu::flatten]] void max_gradients_of_outputs(target /*of*/, const pool_plan& plan, const pool_backward<Element>& call,
                                               index_t p, index_t output, index_t input) noexcept {
  using packets = packet<Element>;
  // Copies, so that they can be in registers.
  const backward_epilogue<Element> epilogue = call.target.epilogue;
  Element* const dx = call.target.dx;
  const index_t channels = plan.channels;
  const pool_strides in = plan.in;
  const auto clear = [=](index_t first, index_t pixels) {
    for (; pixels > 0; --pixels, first += in.w) {
      for_each_packet<Element>(0, channels, [=](packets c, index_t i) {
        store_gradient(c, dx, typename packets::type{}, epilogue, first + i);
      });
    }
  };
  const index_t rest = plan.columns.inputs - 2 * plan.columns.outputs;
  clear(input + 2 * plan.columns.outputs * in.w, rest);
  clear(input + 2 * plan.columns.outputs * in.w + in.h, rest);
  for (index_t h = 2 * (p + 1); p + 1 == plan.rows.outputs && h < plan.rows.inputs; ++h) {
    clear(input + (h - 2 * p) * in.h, plan.columns.inputs);
  }
  const Element* dy = call.dy + output;
  const std::uint8_t* choice = call.choice + output;
  for (index_t q = plan.columns.outputs; q > 0; --q, dy += plan.out.w, choice += plan.out.w, input += 2 * in.w) {
    for_each_packet<Element>(0, channels, [=](packets c, index_t i) {
      const typename packets::type gradient = c.load(dy + i);
      const typename packets::index_vector chosen = c.load_bytes(choice + i);
#pragma GCC unroll 4
      for (int entry = 0; entry < 4; ++entry) {
        store_gradient(c, dx, packets::masked(chosen == packets::broadcast_index(entry), gradient), epilogue,
                       input + entry / 2 * in.h + entry % 2 * in.w + i);
      }
    });
  }
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
