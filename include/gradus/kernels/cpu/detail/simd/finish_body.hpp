// SPDX-License-Identifier: BSL-1.0
//
// What becomes of sums, and conversions of bfloat16, for one instruction set. Part of tile_body.hpp, and like it
// included several times.

// No `#pragma once`: for_each_target.hpp says what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::kernels::detail::GRADUS_TARGET {

// As the functions of held_activation and held_derivative, for vectors of this instruction set.
template <class Element, class Value>
GRADUS_ALWAYS_INLINE Value with_parameters(const held_activation<Element>& act, Value value) {
  const Value low = act.slope == 0 ? Value{} : act.slope * value;
  const Value high = act.cap - Value{};
  value = Value{} > value ? low : value;
  return value > high ? high : value;
}
template <class Element, class Value>
GRADUS_ALWAYS_INLINE Value with_parameters(const held_derivative<Element>& derivative, Value output, Value value) {
  const Value low = derivative.slope == 0 ? Value{} : derivative.slope * value;
  value = output > Value{} ? value : low;
  return output > derivative.below_cap - Value{} ? Value{} : value;
}

// Vectors are passed by reference: without AVX-512, GCC warns that others have another convention.

/// Reads and writes a vector of results.
template <class Element>
struct results_of {
  using vector = typename vector_of<Element>::type;
  using stored = typename vector_of<Element>::stored;
  GRADUS_ALWAYS_INLINE static void load(const Element* from, vector& to) noexcept {
    to = *reinterpret_cast<const stored*>(from);
  }
  GRADUS_ALWAYS_INLINE static void store(const vector& value, Element* to) noexcept {
    *reinterpret_cast<stored*>(to) = value;
  }
};

/// bfloat16 is the upper half of a float.
template <>
struct results_of<bfloat16> {
  using vector = vector_of<float>::type;
  typedef std::uint32_t words __attribute__((vector_size(sizeof(vector))));
  typedef std::uint16_t halves __attribute__((vector_size(sizeof(vector) / 2)));
  typedef std::uint16_t stored __attribute__((vector_size(sizeof(vector) / 2), aligned(2), may_alias));

  GRADUS_ALWAYS_INLINE static void load(const bfloat16* from, vector& to) noexcept {
    const auto& memory = *reinterpret_cast<const stored*>(from);
    words whole;
#if GRADUS_TARGET_BYTES > 16  // the compiler widens in several instructions
    __asm__("vpmovzxwd {%1, %0|%0, %1}" : "=v"(whole) : "m"(memory));
#else
    whole = __builtin_convertvector(memory, words);
#endif
    to = reinterpret_cast<vector>(whole << 16U);
  }
  /// Rounds to nearest, ties to even; a NaN stays one.
  GRADUS_ALWAYS_INLINE static void store(const vector& value, bfloat16* to) noexcept {
    const words bits = reinterpret_cast<words>(value);
    const words number = bits + 0x7FFFU + ((bits >> 16U) & 1U);
    const words rounded = value != value ? bits | 0x400000U : number;
#if GRADUS_TARGET_BYTES == 64
    typedef std::uint16_t both __attribute__((vector_size(64)));
    const both shorts = reinterpret_cast<both>(rounded);
    *reinterpret_cast<stored*>(to) =
        GRADUS_SHUFFLE(shorts, shorts, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#else
    *reinterpret_cast<stored*>(to) = __builtin_convertvector(rounded >> 16U, halves);
#endif
  }
};

/// As finish, for outputs with a bias, one addend, a ReLU and the mask of one, or some of these: what most rows of
/// 16 bits have. What is the same for all rows is decided before them.
template <bool Adds, bool Masks, class Real, class Element>
void finish_common(const Real* sums, index_t rows, index_t pitch, index_t count, const index_t* c_row,
                   const tile_output<Element>& output) {
  using vector = typename vector_of<Real>::type;
  using stored = typename vector_of<Real>::stored;
  using results = results_of<Element>;
  constexpr index_t lanes = vector_of<Real>::lanes;
  const tile_output<Element> o = output;
  const Real* const bias = o.bias_of_rows ? nullptr : o.bias;  // of columns
  const Element* const added = o.accumulate ? o.c : o.residual;
  const vector least = (o.act.relu ? Real{} : -std::numeric_limits<Real>::infinity()) - vector{};
  for (index_t m = 0; m < rows; ++m) {
    const vector of_row = o.bias != nullptr && o.bias_of_rows ? o.bias[m] - vector{} : -vector{};
    const index_t first = c_row[m];
    for (index_t j = 0; j + lanes <= count; j += lanes) {
      vector value = *reinterpret_cast<const stored*>(sums + m * pitch + j);
      value += bias == nullptr ? of_row : vector(*reinterpret_cast<const stored*>(bias + j));
      vector other;
      if constexpr (Adds) {
        results::load(added + first + j, other);
        value += other;
      }
      value = least > value ? least : value;  // keeps a NaN
      if constexpr (Masks) {
        results::load(o.mask + first + j, other);
        value = other > vector{} ? value : vector{};
      }
      results::store(value, o.c + first + j);
    }
    for (index_t j = count / lanes * lanes; j < count; ++j) {
      o.store(sums[m * pitch + j], o.bias_of_rows ? m : j, first + j);
    }
  }
}

/// Implements tile_kernels::finish and finish_bfloat16.
template <class Real, class Element>
void finish(const Real* sums, index_t rows, index_t pitch, index_t count, const index_t* c_row,
            const tile_output<Element>& output) {
  using vector = typename vector_of<Real>::type;
  using stored = typename vector_of<Real>::stored;
  using results = results_of<Element>;
  constexpr index_t lanes = vector_of<Real>::lanes;
  if constexpr (!std::is_same_v<Real, Element>) {
    const bool adds = output.residual != nullptr || output.accumulate;
    const bool masks = output.mask != nullptr;
    if (!output.act.other && !(masks && output.derivative.other) &&
        !(output.residual != nullptr && output.accumulate)) {
      const auto run =
          adds ? (masks ? &finish_common<true, true, Real, Element> : &finish_common<true, false, Real, Element>)
               : (masks ? &finish_common<false, true, Real, Element> : &finish_common<false, false, Real, Element>);
      run(sums, rows, pitch, count, c_row, output);
      return;
    }
  }
  const tile_output<Element> o = output;
  for (index_t m = 0; m < rows; ++m) {
    index_t j = 0;
    for (; j + lanes <= count; j += lanes) {
      const index_t at = c_row[m] + j;
      vector value = *reinterpret_cast<const stored*>(sums + m * pitch + j);
      vector other;
      if (o.bias != nullptr) {
        value += o.bias_of_rows ? o.bias[m] - vector{} : vector(*reinterpret_cast<const stored*>(o.bias + j));
      }
      if (o.residual != nullptr) {
        results::load(o.residual + at, other);
        value += other;
      }
      if (o.accumulate) {
        results::load(o.c + at, other);
        value += other;
      }
      if (o.act.relu) {
        value = vector{} > value ? vector{} : value;  // keeps a NaN
      } else if (o.act.other) {
        value = with_parameters(o.act, value);
      }
      if (o.mask != nullptr) {
        results::load(o.mask + at, other);
        value = o.derivative.other ? with_parameters(o.derivative, other, value) : other > vector{} ? value : vector{};
      }
      results::store(value, o.c + at);
    }
    for (; j < count; ++j) {
      o.store(sums[m * pitch + j], o.bias_of_rows ? m : j, c_row[m] + j);
    }
  }
}

/// Implements tile_kernels::widen.
template <class Real>
void widen_run(const bfloat16* from, index_t count, Real* to) {
  constexpr index_t lanes = vector_of<Real>::lanes;
  index_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    typename vector_of<Real>::type value;
    results_of<bfloat16>::load(from + i, value);
    results_of<Real>::store(value, to + i);
  }
  for (; i < count; ++i) {
    to[i] = static_cast<Real>(from[i]);
  }
}

}  // namespace gradus::kernels::detail::GRADUS_TARGET

#endif
