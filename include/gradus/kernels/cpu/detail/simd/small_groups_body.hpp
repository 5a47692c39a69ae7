// SPDX-License-Identifier: BSL-1.0
//
// Convolutions whose groups have fewer channels than a vector, for one instruction set. Part of tile_body.hpp, and like
// it included several times.

// No `#pragma once`: GRADUS_TARGET says what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::kernels::detail::GRADUS_TARGET {

template <class Element, int Pixels, int Vectors>
void multiply_taps_of(const depthwise_call<Element>& call, const Element* x, const Element* w, const Element* bias,
                      Element* to) {
  using vector = typename vector_of<Element>::type;
  using stored = typename vector_of<Element>::stored;
  constexpr index_t lanes = vector_of<Element>::lanes;
  vector sum[std::size_t{Pixels}][std::size_t{Vectors}] = {};
  for (index_t r = 0; r < call.rows; ++r) {
    const Element* from = x + r * call.x_row;
    const Element* tap = w + r * call.w_row;
    for (index_t s = call.columns; s > 0; --s) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        const vector factor = *reinterpret_cast<const stored*>(tap + v * lanes);
#pragma GCC unroll 8
        for (int p = 0; p < Pixels; ++p) {
          sum[p][v] += factor * *reinterpret_cast<const stored*>(from + p * call.x_pixel + v * lanes);
        }
      }
      from += call.x_column;
      tap += call.w_column;
    }
  }
  if (bias != nullptr) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      const vector of_channels = *reinterpret_cast<const stored*>(bias + v * lanes);
#pragma GCC unroll 8
      for (int p = 0; p < Pixels; ++p) {
        sum[p][v] += of_channels;
      }
    }
  }
#pragma GCC unroll 8
  for (int p = 0; p < Pixels; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      if (call.relu) {
        sum[p][v] = vector{} > sum[p][v] ? vector{} : sum[p][v];  // keeps a NaN
      }
      *reinterpret_cast<stored*>(to + p * call.step + v * lanes) = sum[p][v];
    }
  }
}

/// Computes some pixels, one vector of channels after another. @return the first channel that is left
template <class Element, int Pixels, int Vectors>
index_t multiply_taps_of_pixels(const depthwise_call<Element>& call, index_t p, index_t first, index_t channels,
                                Element* to) {
  constexpr index_t width = Vectors * vector_of<Element>::lanes;
  const Element* const x = call.x + p * call.x_pixel;
  for (; first + width <= channels; first += width) {
    multiply_taps_of<Element, Pixels, Vectors>(call, x + first, call.w + first,
                                               call.bias == nullptr ? nullptr : call.bias + first,
                                               to + p * call.step + first);
  }
  return first;
}

template <class Element>
void multiply_taps(const depthwise_call<Element>& call, index_t channels, Element* to) {
  constexpr index_t lanes = vector_of<Element>::lanes;
  const bool narrow = channels < 2 * lanes;
  const index_t most = narrow && call.pixels >= 8 ? 8 : call.pixels >= 4 ? 4 : 1;
  for (index_t p = 0; p < call.pixels; p += most) {
    // The last pixels may be computed twice; this costs less than computing them one by one.
    const index_t begin = std::min(p, call.pixels - most);
    if (most == 8) {
      multiply_taps_of_pixels<Element, 8, 1>(call, begin, 0, channels, to);
    } else if (most == 4) {
      const index_t j = multiply_taps_of_pixels<Element, 4, 2>(call, begin, 0, channels, to);
      multiply_taps_of_pixels<Element, 4, 1>(call, begin, j, channels, to);
    } else {
      const index_t j = multiply_taps_of_pixels<Element, 1, 4>(call, begin, 0, channels, to);
      multiply_taps_of_pixels<Element, 1, 1>(call, begin, j, channels, to);
    }
  }
  for (index_t p = 0; p < call.pixels && channels % lanes != 0; ++p) {
    for (index_t rest = channels / lanes * lanes; rest < channels; ++rest) {
      Element sum{};
      for (index_t r = 0; r < call.rows; ++r) {
        for (index_t s = 0; s < call.columns; ++s) {
          sum += call.x[p * call.x_pixel + r * call.x_row + s * call.x_column + rest] *
                 call.w[r * call.w_row + s * call.w_column + rest];
        }
      }
      sum += call.bias == nullptr ? Element{} : call.bias[rest];
      to[p * call.step + rest] = call.relu && Element{} > sum ? Element{} : sum;
    }
  }
}

/// Adds the products of `Taps` adjacent taps, for as many vectors of channels as there are. @return the first channel
/// that is left
template <class Element, int Taps, int Vectors>
index_t add_products_of(const products_call<Element>& call, index_t first, Element* to) {
  using vector = typename vector_of<Element>::type;
  using stored = typename vector_of<Element>::stored;
  constexpr index_t lanes = vector_of<Element>::lanes;
  for (; first + Vectors * lanes <= call.channels; first += Vectors * lanes) {
    vector sum[std::size_t{Taps}][std::size_t{Vectors}] = {};
    const Element* x = call.x + first;
    const Element* y = call.y + first;
    for (index_t k = call.pixels; k > 0; --k, x += call.x_pixel, y += call.y_pixel) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        const vector factor = *reinterpret_cast<const stored*>(y + v * lanes);
#pragma GCC unroll 4
        for (int tap = 0; tap < Taps; ++tap) {
          sum[tap][v] += factor * *reinterpret_cast<const stored*>(x + tap * call.x_tap + v * lanes);
        }
      }
    }
#pragma GCC unroll 4
    for (int tap = 0; tap < Taps; ++tap) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        *reinterpret_cast<stored*>(to + tap * call.to_tap + first + v * lanes) += sum[tap][v];
      }
    }
  }
  return first;
}

template <class Element>
void add_products(const products_call<Element>& call, Element* to) {
  index_t first = 0;
  if (call.taps == 3) {
    first = add_products_of<Element, 3, 2>(call, 0, to);
    first = add_products_of<Element, 3, 1>(call, first, to);
  }
  for (index_t tap = 0; tap < call.taps; ++tap) {
    products_call<Element> one = call;
    one.x += tap * call.x_tap;
    Element* const sums = to + tap * call.to_tap;
    index_t j = add_products_of<Element, 1, 4>(one, first, sums);
    j = add_products_of<Element, 1, 1>(one, j, sums);
    for (; j < call.channels; ++j) {
      for (index_t k = 0; k < call.pixels; ++k) {
        sums[j] += one.x[k * call.x_pixel + j] * call.y[k * call.y_pixel + j];
      }
    }
  }
}

template <class Element, int Taps>
void add_tap_products_of(const Element* x, index_t x_step, const Element* y, index_t y_step, index_t pixels,
                         Element* to) {
  using vector = typename vector_of<Element>::type;
  using stored = typename vector_of<Element>::stored;
  constexpr index_t lanes = vector_of<Element>::lanes;
  vector sum[std::size_t{Taps}] = {};
  for (index_t p = pixels; p > 0; --p) {
    const vector factor = *reinterpret_cast<const stored*>(y);
#pragma GCC unroll 12
    for (int k = 0; k < Taps; ++k) {
      sum[k] += factor * *reinterpret_cast<const stored*>(x + k * lanes);
    }
    x += x_step;
    y += y_step;
  }
#pragma GCC unroll 12
  for (int k = 0; k < Taps; ++k) {
    *reinterpret_cast<stored*>(to + k * lanes) += sum[k];
  }
}

template <class Element>
void add_tap_products(const Element* x, index_t x_step, const Element* y, index_t y_step, index_t pixels, index_t taps,
                      Element* to) {
  constexpr index_t lanes = vector_of<Element>::lanes;
  index_t k = 0;
  for (; k + 12 <= taps; k += 12) {
    add_tap_products_of<Element, 12>(x + k * lanes, x_step, y, y_step, pixels, to + k * lanes);
  }
  for (; k + 4 <= taps; k += 4) {
    add_tap_products_of<Element, 4>(x + k * lanes, x_step, y, y_step, pixels, to + k * lanes);
  }
  for (; k < taps; ++k) {
    add_tap_products_of<Element, 1>(x + k * lanes, x_step, y, y_step, pixels, to + k * lanes);
  }
}

/// to[j] = all[j / Group * Group + Term] for every SIMD lane j.
template <class Element, int Group, int Term>
GRADUS_ALWAYS_INLINE void spread_term(const typename vector_of<Element>::type& all, Element* to) {
  using vector = typename vector_of<Element>::type;
  constexpr index_t lanes = vector_of<Element>::lanes;
  constexpr auto from = [](int lane) { return lane / Group * Group + Term; };
  vector spread;
  if constexpr (lanes == 16) {
    spread = GRADUS_SHUFFLE(all, all, from(0), from(1), from(2), from(3), from(4), from(5), from(6), from(7), from(8),
                            from(9), from(10), from(11), from(12), from(13), from(14), from(15));
  } else if constexpr (lanes == 8) {
    spread = GRADUS_SHUFFLE(all, all, from(0), from(1), from(2), from(3), from(4), from(5), from(6), from(7));
  } else if constexpr (lanes == 4) {
    spread = GRADUS_SHUFFLE(all, all, from(0), from(1), from(2), from(3));
  } else {
    static_assert(lanes == 2);
    spread = GRADUS_SHUFFLE(all, all, from(0), from(1));
  }
  *reinterpret_cast<typename vector_of<Element>::stored*>(to) = spread;
}

template <class Element, int Group, int... Term>
GRADUS_ALWAYS_INLINE void spread_vector(const Element* from, std::integer_sequence<int, Term...> /*terms*/,
                                        Element* to) {
  constexpr int lanes = static_cast<int>(vector_of<Element>::lanes);
  const typename vector_of<Element>::type all = *reinterpret_cast<const typename vector_of<Element>::stored*>(from);
  (spread_term<Element, Group, Term>(all, to + Term * lanes), ...);
}

template <class Element, int Group>
void spread_groups_of(const Element* from, index_t step, index_t pixels, index_t channels, Element* to) {
  constexpr int lanes = static_cast<int>(vector_of<Element>::lanes);
  if constexpr (Group <= lanes) {
    Element some[std::size_t{lanes}] = {};
    for (index_t p = 0; p < pixels; ++p) {
      const Element* all = from + p * step;
      __builtin_prefetch(all + 16 * step);
      if (channels < lanes) {
        std::copy_n(all, channels, some);
        all = some;
      }
      spread_vector<Element, Group>(all, std::make_integer_sequence<int, Group>{}, to + p * Group * lanes);
    }
  }
}

template <class Element>
void expand_groups(const Element* from, index_t step, index_t pixels, index_t channels, index_t group, Element* to) {
  const auto spread = group == 2   ? &spread_groups_of<Element, 2>
                      : group == 4 ? &spread_groups_of<Element, 4>
                                   : &spread_groups_of<Element, 8>;
  spread(from, step, pixels, channels, to);
}

}  // namespace gradus::kernels::detail::GRADUS_TARGET

#endif
