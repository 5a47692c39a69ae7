// SPDX-License-Identifier: BSL-1.0
//
// The code of simd_winograd.hpp for one instruction set; included several times, each time into another namespace.
// Module: kernels. Depends on: core.

// No `#pragma once`: GRADUS_WINOGRAD_NAMESPACE is that of the tiles of the instruction set, and is undefined at the
// end. The includer's function target applies to what is here, so nothing is included.
#if defined(GRADUS_WINOGRAD_NAMESPACE)

namespace gradus::kernels::detail::GRADUS_WINOGRAD_NAMESPACE {

/// B^T: six places of the input.
template <class Element>
struct winograd_input {
  using vector = typename vector_of<Element>::type;
  using points = winograd_points<Element>;
  static constexpr int from = 6;
  static constexpr int to = 6;
  GRADUS_ALWAYS_INLINE static void apply(const vector* d, vector* v) {
    constexpr Element both = points::a2 + points::b2;
    constexpr Element product = points::a2 * points::b2;
    const vector even_a = d[4] - points::b2 * d[2];
    const vector odd_a = points::a * (d[3] - points::b2 * d[1]);
    const vector even_b = d[4] - points::a2 * d[2];
    const vector odd_b = points::b * (d[3] - points::a2 * d[1]);
    v[0] = product * d[0] + (d[4] - both * d[2]);
    v[1] = even_a + odd_a;
    v[2] = even_a - odd_a;
    v[3] = even_b + odd_b;
    v[4] = even_b - odd_b;
    v[5] = product * d[1] + (d[5] - both * d[3]);
  }
};

/// G: three weights.
template <class Element>
struct winograd_weights {
  using vector = typename vector_of<Element>::type;
  using points = winograd_points<Element>;
  static constexpr int from = 3;
  static constexpr int to = 6;
  GRADUS_ALWAYS_INLINE static void apply(const vector* g, vector* u) {
    const vector even_a = points::of_a * (g[0] + points::a2 * g[2]);
    const vector odd_a = points::of_a * points::a * g[1];
    const vector even_b = points::of_b * (g[0] + points::b2 * g[2]);
    const vector odd_b = points::of_b * points::b * g[1];
    u[0] = points::of_zero * g[0];
    u[1] = even_a + odd_a;
    u[2] = even_a - odd_a;
    u[3] = even_b + odd_b;
    u[4] = even_b - odd_b;
    u[5] = g[2];
  }
};

/// A^T: six sums.
template <class Element>
struct winograd_sums {
  using vector = typename vector_of<Element>::type;
  using points = winograd_points<Element>;
  static constexpr int from = 6;
  static constexpr int to = 4;
  GRADUS_ALWAYS_INLINE static void apply(const vector* m, vector* y) {
    const vector even_a = m[1] + m[2];
    const vector odd_a = points::a * (m[1] - m[2]);
    const vector even_b = m[3] + m[4];
    const vector odd_b = points::b * (m[3] - m[4]);
    y[0] = m[0] + even_a + even_b;
    y[1] = odd_a + odd_b;
    y[2] = points::a2 * even_a + points::b2 * even_b;
    y[3] = m[5] + points::a2 * odd_a + points::b2 * odd_b;
  }
};

/// A: four places of the gradient of the output.
template <class Element>
struct winograd_gradient {
  using vector = typename vector_of<Element>::type;
  using points = winograd_points<Element>;
  static constexpr int from = 4;
  static constexpr int to = 6;
  GRADUS_ALWAYS_INLINE static void apply(const vector* y, vector* z) {
    const vector even_a = y[0] + points::a2 * y[2];
    const vector odd_a = points::a * (y[1] + points::a2 * y[3]);
    const vector even_b = y[0] + points::b2 * y[2];
    const vector odd_b = points::b * (y[1] + points::b2 * y[3]);
    z[0] = y[0];
    z[1] = even_a + odd_a;
    z[2] = even_a - odd_a;
    z[3] = even_b + odd_b;
    z[4] = even_b - odd_b;
    z[5] = y[3];
  }
};

/// G^T: six sums of gradients of weights.
template <class Element>
struct winograd_weight_sums {
  using vector = typename vector_of<Element>::type;
  using points = winograd_points<Element>;
  static constexpr int from = 6;
  static constexpr int to = 3;
  GRADUS_ALWAYS_INLINE static void apply(const vector* m, vector* w) {
    const vector even_a = points::of_a * (m[1] + m[2]);
    const vector odd_a = points::of_a * (m[1] - m[2]);
    const vector even_b = points::of_b * (m[3] + m[4]);
    const vector odd_b = points::of_b * (m[3] - m[4]);
    w[0] = points::of_zero * m[0] + even_a + even_b;
    w[1] = points::a * odd_a + points::b * odd_b;
    w[2] = m[5] + points::a2 * even_a + points::b2 * even_b;
  }
};

/// As winograd_transform: the columns of the square, then its rows.
template <class Axis, class Element>
void transform_square(const Element* const* from, index_t from_offset, Element* const* to, index_t to_offset,
                      index_t count) {
  using vector = typename vector_of<Element>::type;
  using stored = typename vector_of<Element>::stored;
  for (index_t k = 0; k < count; k += vector_of<Element>::lanes) {
    vector half[Axis::to][Axis::from];
#pragma GCC unroll 6
    for (int j = 0; j < Axis::from; ++j) {
      vector column[Axis::from];
      vector transformed[Axis::to];
#pragma GCC unroll 6
      for (int i = 0; i < Axis::from; ++i) {
        column[i] = *reinterpret_cast<const stored*>(from[i * Axis::from + j] + from_offset + k);
      }
      Axis::apply(column, transformed);
#pragma GCC unroll 6
      for (int i = 0; i < Axis::to; ++i) {
        half[i][j] = transformed[i];
      }
    }
#pragma GCC unroll 6
    for (int i = 0; i < Axis::to; ++i) {
      vector transformed[Axis::to];
      Axis::apply(half[i], transformed);
#pragma GCC unroll 6
      for (int j = 0; j < Axis::to; ++j) {
        *reinterpret_cast<stored*>(to[i * Axis::to + j] + to_offset + k) = transformed[j];
      }
    }
  }
}

template <class Element>
inline constexpr winograd_kernels<Element> winograd_kernels_of{
    .transform_input = &transform_square<winograd_input<Element>, Element>,
    .transform_weights = &transform_square<winograd_weights<Element>, Element>,
    .transform_sums = &transform_square<winograd_sums<Element>, Element>,
    .transform_gradient = &transform_square<winograd_gradient<Element>, Element>,
    .transform_weight_sums = &transform_square<winograd_weight_sums<Element>, Element>};

}  // namespace gradus::kernels::detail::GRADUS_WINOGRAD_NAMESPACE

#undef GRADUS_WINOGRAD_NAMESPACE
#endif
