// SPDX-License-Identifier: BSL-1.0
//
// The code of winograd.hpp for one instruction set. The file is included several times, each time into another
// namespace.

// No `#pragma once`: for_each_target.hpp says what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::kernels::detail::GRADUS_TARGET {

/// The sum over i of factors[i] * x[First + 2 * i].
template <class Element, int First, std::size_t Count>
GRADUS_ALWAYS_INLINE typename vector_of<Element>::type every_second(const std::array<double, Count>& factors,
                                                                    const typename vector_of<Element>::type* x) {
  typename vector_of<Element>::type sum = static_cast<Element>(factors[0]) * x[First];
#pragma GCC unroll 8
  for (std::size_t i = 1; i < Count; ++i) {
    sum += static_cast<Element>(factors[i]) * x[First + 2 * static_cast<int>(i)];
  }
  return sum;
}

/// B^T: transforms the input.
template <class Element, class Axis>
struct winograd_input {
  using vector = typename vector_of<Element>::type;
  static constexpr int from = Axis::positions;
  static constexpr int to = Axis::positions;
  GRADUS_ALWAYS_INLINE static void apply(const vector* d, vector* v) {
    v[0] = every_second<Element, 0>(Axis::all, d);
#pragma GCC unroll 4
    for (std::size_t k = 0; k < Axis::pairs; ++k) {
      const vector even = every_second<Element, 2>(Axis::others[k], d);
      const vector odd = static_cast<Element>(Axis::points[k]) * every_second<Element, 1>(Axis::others[k], d);
      v[1 + 2 * k] = even + odd;
      v[2 + 2 * k] = even - odd;
    }
    v[Axis::positions - 1] = every_second<Element, 1>(Axis::all, d);
  }
};

/// Evaluates a polynomial of `Count` coefficients at every point: A for the gradient of the output, and, if Divided, G
/// for the weights.
template <class Element, class Axis, int Count, bool Divided>
struct winograd_evaluation {
  using vector = typename vector_of<Element>::type;
  static constexpr int from = Count;
  static constexpr int to = Axis::positions;
  GRADUS_ALWAYS_INLINE static void apply(const vector* x, vector* v) {
    v[0] = Divided ? static_cast<Element>(Axis::of_zero) * x[0] : x[0];
#pragma GCC unroll 4
    for (std::size_t k = 0; k < Axis::pairs; ++k) {
      vector even = x[0];
      vector odd = x[1];
#pragma GCC unroll 8
      for (int i = 2; i < Count; ++i) {
        const vector term = static_cast<Element>(Axis::powers[k][static_cast<std::size_t>(i - i % 2)]) * x[i];
        (i % 2 == 0 ? even : odd) += term;
      }
      odd *= static_cast<Element>(Divided ? Axis::of_pair[k] * Axis::points[k] : Axis::points[k]);
      even *= static_cast<Element>(Divided ? Axis::of_pair[k] : 1.0);
      v[1 + 2 * k] = even + odd;
      v[2 + 2 * k] = even - odd;
    }
    v[Axis::positions - 1] = x[Count - 1];
  }
};

/// The transpose of that: A^T for sums, and G^T for sums of gradients of weights.
template <class Element, class Axis, int Count, bool Divided>
struct winograd_combination {
  using vector = typename vector_of<Element>::type;
  static constexpr int from = Axis::positions;
  static constexpr int to = Count;
  GRADUS_ALWAYS_INLINE static void apply(const vector* m, vector* x) {
    vector even[Axis::pairs];
    vector odd[Axis::pairs];
#pragma GCC unroll 4
    for (std::size_t k = 0; k < Axis::pairs; ++k) {
      const auto factor = static_cast<Element>(Divided ? Axis::of_pair[k] : 1.0);
      even[k] = factor * (m[1 + 2 * k] + m[2 + 2 * k]);
      odd[k] = static_cast<Element>(Axis::points[k]) * factor * (m[1 + 2 * k] - m[2 + 2 * k]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < Count; ++i) {
      vector sum = i == Count - 1 ? m[Axis::positions - 1] : vector{};
      if (i == 0) {
        sum = (Divided ? static_cast<Element>(Axis::of_zero) : Element{1}) * m[0];
      }
#pragma GCC unroll 4
      for (std::size_t k = 0; k < Axis::pairs; ++k) {
        sum += static_cast<Element>(Axis::powers[k][static_cast<std::size_t>(i - i % 2)]) *
               (i % 2 == 0 ? even[k] : odd[k]);
      }
      x[i] = sum;
    }
  }
};

/// Transforms one column of squares from memory into `half`.
template <class Element, class Axis>
GRADUS_ALWAYS_INLINE void transform_column(const Element* const* from, index_t offset, int column,
                                           typename vector_of<Element>::type (*half)[Axis::from]) {
  using stored = typename vector_of<Element>::stored;
  typename vector_of<Element>::type positions[Axis::from];
  typename vector_of<Element>::type transformed[Axis::to];
#pragma GCC unroll 16
  for (int i = 0; i < Axis::from; ++i) {
    positions[i] = *reinterpret_cast<const stored*>(from[i * Axis::from + column] + offset);
  }
  Axis::apply(positions, transformed);
#pragma GCC unroll 16
  for (int i = 0; i < Axis::to; ++i) {
    half[i][column] = transformed[i];
  }
}

/// Transforms one row of `half` into memory.
template <class Element, class Axis>
GRADUS_ALWAYS_INLINE void transform_row(const typename vector_of<Element>::type (*half)[Axis::from], int row,
                                        Element* const* to, index_t offset) {
  using stored = typename vector_of<Element>::stored;
  typename vector_of<Element>::type transformed[Axis::to];
  Axis::apply(half[row], transformed);
#pragma GCC unroll 16
  for (int j = 0; j < Axis::to; ++j) {
    *reinterpret_cast<stored*>(to[row * Axis::to + j] + offset) = transformed[j];
  }
}

/// A winograd_transform for squares: transforms columns, then rows.
template <class Element, class Axis>
void transform_squares(const Element* const* from, index_t from_offset, Element* const* to, index_t to_offset,
                       index_t count) {
  for (index_t k = 0; k < count; k += vector_of<Element>::lanes) {
    typename vector_of<Element>::type half[Axis::to][Axis::from];
    if constexpr (Axis::from <= 6 && Axis::to <= 6) {
#pragma GCC unroll 6
      for (int j = 0; j < Axis::from; ++j) {
        transform_column<Element, Axis>(from, from_offset + k, j, half);
      }
#pragma GCC unroll 6
      for (int i = 0; i < Axis::to; ++i) {
        transform_row<Element, Axis>(half, i, to, to_offset + k);
      }
    } else {  // needs more than the registers anyway
      for (int j = 0; j < Axis::from; ++j) {
        transform_column<Element, Axis>(from, from_offset + k, j, half);
      }
      for (int i = 0; i < Axis::to; ++i) {
        transform_row<Element, Axis>(half, i, to, to_offset + k);
      }
    }
  }
}

/// A winograd_transform for lines.
template <class Element, class Axis>
void transform_lines(const Element* const* from, index_t from_offset, Element* const* to, index_t to_offset,
                     index_t count) {
  using vector = typename vector_of<Element>::type;
  using stored = typename vector_of<Element>::stored;
  for (index_t k = 0; k < count; k += vector_of<Element>::lanes) {
    vector line[Axis::from];
    vector transformed[Axis::to];
#pragma GCC unroll 16
    for (int i = 0; i < Axis::from; ++i) {
      line[i] = *reinterpret_cast<const stored*>(from[i] + from_offset + k);
    }
    Axis::apply(line, transformed);
#pragma GCC unroll 16
    for (int i = 0; i < Axis::to; ++i) {
      *reinterpret_cast<stored*>(to[i] + to_offset + k) = transformed[i];
    }
  }
}

template <class Element, int Taps>
constexpr winograd_transforms<Element> winograd_squares() {
  using axis = winograd_axis<Taps>;
  constexpr int results = axis::results;
  return {.input = &transform_squares<Element, winograd_input<Element, axis>>,
          .weights = &transform_squares<Element, winograd_evaluation<Element, axis, Taps, true>>,
          .sums = &transform_squares<Element, winograd_combination<Element, axis, results, false>>,
          .gradient = &transform_squares<Element, winograd_evaluation<Element, axis, results, false>>,
          .weight_sums = &transform_squares<Element, winograd_combination<Element, axis, Taps, true>>};
}
template <class Element, int Taps>
constexpr winograd_transforms<Element> winograd_lines() {
  using axis = winograd_axis<Taps>;
  constexpr int results = axis::results;
  return {.input = &transform_lines<Element, winograd_input<Element, axis>>,
          .weights = &transform_lines<Element, winograd_evaluation<Element, axis, Taps, true>>,
          .sums = &transform_lines<Element, winograd_combination<Element, axis, results, false>>,
          .gradient = &transform_lines<Element, winograd_evaluation<Element, axis, results, false>>,
          .weight_sums = &transform_lines<Element, winograd_combination<Element, axis, Taps, true>>};
}

template <class Element>
inline constexpr winograd_table<Element> winograd_transforms_of{.square_3 = winograd_squares<Element, 3>(),
                                                                .square_5 = winograd_squares<Element, 5>(),
                                                                .line_3 = winograd_lines<Element, 3>(),
                                                                .line_7 = winograd_lines<Element, 7>()};

}  // namespace gradus::kernels::detail::GRADUS_TARGET

#endif
