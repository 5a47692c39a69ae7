// SPDX-License-Identifier: BSL-1.0
//
// The loops of local response normalization over the channels of a pixel and over the pixels of planes.
#pragma once

#include <algorithm>    // std::fill_n, std::max, std::min
#include <array>        // std::array
#include <bit>          // std::bit_cast
#include <cmath>        // std::pow, std::sqrt
#include <cstddef>      // std::size_t
#include <type_traits>  // std::remove_cvref_t

#if defined(__SSE2__)
#include <emmintrin.h>  // square roots of vectors
#endif

#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/elementwise/packet.hpp"
#include "gradus/kernels/local_response_norm.hpp"

namespace gradus::kernels::detail {

template <class Packet>
GRADUS_ALWAYS_INLINE typename Packet::type square_root(typename Packet::type x) noexcept {
#if defined(__SSE2__)
  if constexpr (sizeof(x) == 16 && sizeof(x[0]) == 4) {
    return std::bit_cast<typename Packet::type>(_mm_sqrt_ps(std::bit_cast<__m128>(x)));
  }
  if constexpr (sizeof(x) == 16 && sizeof(x[0]) == 8) {
    return std::bit_cast<typename Packet::type>(_mm_sqrt_pd(std::bit_cast<__m128d>(x)));
  }
#endif
  for (index_t i = 0; i < Packet::lanes; ++i) {
    x[i] = std::sqrt(x[i]);
  }
  return x;
}

/// The parameters in the type of the elements, and d^-beta; the usual exponents avoid pow.
template <class Element>
struct response {
  explicit response(const local_response_norm_parameters& parameters) noexcept
      : radius{parameters.radius},
        alpha{static_cast<Element>(parameters.alpha)},
        beta{static_cast<Element>(parameters.beta)},
        k{static_cast<Element>(parameters.k)},
        factor{static_cast<Element>(2 * parameters.alpha * parameters.beta)} {}

  template <class Packet>
  GRADUS_ALWAYS_INLINE typename Packet::type power(typename Packet::type d) const noexcept {
    if (beta == Element{0.75}) {
      const auto root = square_root<Packet>(d);
      return Element{1} / (root * square_root<Packet>(root));
    }
    for (index_t i = 0; i < Packet::lanes; ++i) {
      d[i] = std::pow(d[i], -beta);
    }
    return d;
  }

  index_t radius;
  Element alpha;
  Element beta;
  Element k;
  Element factor;
};

inline constexpr index_t response_capacity = 4096;  ///< elements of a buffer
template <class Element>
using response_buffer = std::array<Element, static_cast<std::size_t>(response_capacity)>;

/// True if a pixel's channels, with zeros on both sides, fit a buffer.
[[nodiscard]] constexpr bool response_fits_pixel(index_t channels, index_t radius) noexcept {
  return radius <= response_capacity && channels + 2 * radius <= response_capacity;
}

/// squares[radius + c] = x[c]^2, with zeros on both sides.
template <class Element>
void square_pixel(index_t channels, index_t radius, const Element* x, computed<Element>* squares) noexcept {
  std::fill_n(squares, radius, computed<Element>{0});
  std::fill_n(squares + radius + channels, radius, computed<Element>{0});
  for_each_packet<Element>(0, channels, [=]<class Packet>(Packet, index_t c) {
    const auto value = Packet::load(x + c);
    Packet::store(squares + radius + c, value * value);
  });
}

/// The sum of 2 * radius + 1 elements, starting at each SIMD lane.
template <class Packet, class Element>
GRADUS_ALWAYS_INLINE typename Packet::type window_sum(const Element* from, index_t radius) noexcept {
  auto sum = Packet::load(from);
  for (index_t j = 1; j <= 2 * radius; ++j) {
    sum += Packet::load(from + j);
  }
  return sum;
}

/// Stores a gradient with its epilogue at element i of dx; epilogue.relu_output begins `offset` elements before dx.
template <class Packet, class Element>
GRADUS_ALWAYS_INLINE void store_response(Element* dx, typename Packet::type value,
                                         const backward_epilogue<Element>& epilogue, index_t offset,
                                         index_t i) noexcept {
  if (epilogue.accumulate) {
    value += Packet::load(dx + i);
  }
  if (epilogue.relu_output != nullptr) {
    value = Packet::where_positive(Packet::load(epilogue.relu_output + offset + i), value);
  }
  Packet::store(dx + i, value);
}

/// Computes one pixel whose channels are adjacent. @pre response_fits_pixel
template <class Element>
void respond_pixel(const response<computed<Element>>& rule, index_t channels, const Element* x, Element* y,
                   response_buffer<computed<Element>>& squares) noexcept {
  square_pixel(channels, rule.radius, x, squares.data());
  for_each_packet<Element>(0, channels, [&]<class Packet>(Packet, index_t c) {
    const auto d = window_sum<Packet>(squares.data() + c, rule.radius) * rule.alpha + rule.k;
    Packet::store(y + c, Packet::load(x + c) * rule.template power<Packet>(d));
  });
}

/// Buffers of a task, on the stack so that a training step allocates nothing.
template <class Element>
struct response_buffers {
  response_buffer<Element> squares;
  response_buffer<Element> powers;
  response_buffer<Element> terms;
};

/// Computes the gradients of one pixel whose channels are adjacent. @pre response_fits_pixel
template <class Element>
void respond_gradients_pixel(const response<computed<Element>>& rule, index_t channels, const Element* x,
                             const Element* dy, Element* dx, const backward_epilogue<Element>& epilogue, index_t offset,
                             response_buffers<computed<Element>>& buffers) noexcept {
  square_pixel(channels, rule.radius, x, buffers.squares.data());
  computed<Element>* const terms = buffers.terms.data();
  std::fill_n(terms, rule.radius, computed<Element>{0});
  std::fill_n(terms + rule.radius + channels, rule.radius, computed<Element>{0});
  for_each_packet<Element>(0, channels, [&]<class Packet>(Packet, index_t c) {
    const auto d = window_sum<Packet>(buffers.squares.data() + c, rule.radius) * rule.alpha + rule.k;
    const auto power = rule.template power<Packet>(d);
    Packet::store(buffers.powers.data() + c, power);
    Packet::store(terms + rule.radius + c, Packet::load(dy + c) * Packet::load(x + c) * power / d);
  });
  for_each_packet<Element>(0, channels, [&]<class Packet>(Packet, index_t c) {
    const auto sum = window_sum<Packet>(terms + c, rule.radius);
    const auto value =
        Packet::load(dy + c) * Packet::load(buffers.powers.data() + c) - rule.factor * Packet::load(x + c) * sum;
    store_response<Packet>(dx, value, epilogue, offset, c);
  });
}

// Planes: `pixels` adjacent pixels of every channel, `stride` elements from one channel to the next.

/// d = k + alpha * sum of squares around channel c, for one packet of pixels.
template <class Packet, class Element>
GRADUS_ALWAYS_INLINE typename Packet::type response_divisor(const response<computed<Element>>& rule, index_t channels,
                                                            index_t stride, const Element* x, index_t c) noexcept {
  typename Packet::type sum{};
  const index_t end = std::min(channels, c + rule.radius + 1);
  for (index_t j = std::max(index_t{0}, c - rule.radius); j < end; ++j) {
    const auto value = Packet::load(x + j * stride);
    sum += value * value;
  }
  return sum * rule.alpha + rule.k;
}

template <class Element>
void respond_planes(const response<computed<Element>>& rule, index_t channels, index_t stride, index_t pixels,
                    const Element* x, Element* y) noexcept {
  for (index_t c = 0; c < channels; ++c) {
    for_each_packet<Element>(0, pixels, [&]<class Packet>(Packet, index_t i) {
      const auto d = response_divisor<Packet>(rule, channels, stride, x + i, c);
      Packet::store(y + c * stride + i, Packet::load(x + c * stride + i) * rule.template power<Packet>(d));
    });
  }
}

/// Pixels of a tile for which a ring of 2 * radius + 1 channels fits a buffer; 0 if there are none.
[[nodiscard]] constexpr index_t response_tile(index_t radius) noexcept {
  const index_t fitting = response_capacity / (2 * radius + 1);
  return fitting >= 64 ? 64 : fitting / 4 * 4;
}

/// Computes the gradients of a tile of planes. @pre pixels <= response_tile(rule.radius)
template <class Element>
void respond_gradients_planes(const response<computed<Element>>& rule, index_t channels, index_t stride, index_t pixels,
                              const Element* x, const Element* dy, Element* dx,
                              const backward_epilogue<Element>& epilogue, index_t offset,
                              response_buffers<computed<Element>>& buffers) noexcept {
  const index_t ring = 2 * rule.radius + 1;
  const auto place = [&](index_t c) { return c % ring * pixels; };
  // Computes the terms of channel `ahead`; then dx of channel ahead - radius has all its terms.
  for (index_t ahead = 0; ahead < channels + rule.radius; ++ahead) {
    if (ahead < channels) {
      const index_t to = place(ahead);
      for_each_packet<Element>(0, pixels, [&]<class Packet>(Packet, index_t i) {
        const auto d = response_divisor<Packet>(rule, channels, stride, x + i, ahead);
        const auto power = rule.template power<Packet>(d);
        const index_t at = ahead * stride + i;
        Packet::store(buffers.powers.data() + to + i, power);
        Packet::store(buffers.terms.data() + to + i, Packet::load(dy + at) * Packet::load(x + at) * power / d);
      });
    }
    const index_t c = ahead - rule.radius;
    if (c < 0) {
      continue;
    }
    const index_t begin = std::max(index_t{0}, c - rule.radius);
    const index_t end = std::min(channels, c + rule.radius + 1);
    for_each_packet<Element>(0, pixels, [&]<class Packet>(Packet, index_t i) {
      typename Packet::type sum{};
      for (index_t j = begin; j < end; ++j) {
        sum += Packet::load(buffers.terms.data() + place(j) + i);
      }
      const index_t at = c * stride + i;
      const auto value = Packet::load(dy + at) * Packet::load(buffers.powers.data() + place(c) + i) -
                         rule.factor * Packet::load(x + at) * sum;
      store_response<Packet>(dx, value, epilogue, offset, at);
    });
  }
}

}  // namespace gradus::kernels::detail
