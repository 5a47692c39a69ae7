// SPDX-License-Identifier: BSL-1.0
//
// The loops of local response normalization over the channels of a pixel and over the pixels of planes, for one
// instruction set.

// No `#pragma once`: for_each_target.hpp says what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::kernels::detail::GRADUS_TARGET {

/// d^-beta. Processors divide and take roots of a wide vector no faster than of its parts: for the usual exponent,
/// 1 / sqrt(sqrt(d)) is approximated from bits (Lomont 2003), then by Newton's method.
template <class Element>
GRADUS_ALWAYS_INLINE typename packet<Element>::type response_power(packet<Element> p,
                                                                   const response<computed<Element>>& rule,
                                                                   typename packet<Element>::type d) noexcept {
  using pack = packet<Element>;
  using real = typename pack::real;
  if (rule.beta != real(0.75)) {
    for (index_t i = 0; i < p.count; ++i) {
      d[i] = std::pow(d[i], -rule.beta);
    }
    return d;
  }
  const auto root = pack::square_root(d);
  if constexpr (sizeof(real) == 8) {
    return real(1) / (root * pack::square_root(root));
  } else {
    const auto bits = __builtin_bit_cast(typename pack::index_vector, root);
    auto y = __builtin_bit_cast(typename pack::type, 0x5f375a86 - (bits >> 1));
#pragma GCC unroll 3
    for (int step = 0; step < 3; ++step) {
      y += y * (0.5F - root * 0.5F * y * y);
    }
    return d > pack::broadcast(std::numeric_limits<real>::max()) ? typename pack::type{} : y * y * y;
  }
}

/// The sum of 2 * radius + 1 elements, starting at each SIMD lane.
template <class Element>
GRADUS_ALWAYS_INLINE typename packet<Element>::type window_sum(packet<Element> p, const computed<Element>* from,
                                                               index_t radius) noexcept {
  auto sum = p.load(from);
  for (index_t j = 1; j <= 2 * radius; ++j) {
    sum += p.load(from + j);
  }
  return sum;
}

/// Stores a gradient with its epilogue at element i.
template <class Element>
GRADUS_ALWAYS_INLINE void store_response(packet<Element> p, const response_arrays<Element>& a, index_t i,
                                         typename packet<Element>::type value) noexcept {
  if (a.accumulate) {
    value += p.load(a.to + i);
  }
  if (a.relu_output != nullptr) {
    value = p.masked(p.load(a.relu_output + i) > typename packet<Element>::type{}, value);
  }
  p.store(a.to + i, value);
}

/// Pixels [begin, end) whose channels are adjacent. @pre response_fits_pixel
template <class Element>
[[gnu::flatten]] void respond_pixels(target /*of*/, const response<computed<Element>>& given, index_t channels,
                                     index_t begin, index_t end, const response_arrays<Element>& arrays) noexcept {
  using real = computed<Element>;
  const response<real> rule = given;
  const response_arrays<Element> a = arrays;
  const index_t stride = std::max(index_t{1}, channels + rule.radius);
  const index_t some = std::max(index_t{1}, (1024 - rule.radius) / stride);
  // Some pixels, with `radius` zeros before each and after the last. Their windows are read long after their numbers
  // are written, because processors do not forward parts of stored vectors.
  response_buffer<real> squares;
  response_buffer<real> powers;
  response_buffer<real> terms;
  std::fill_n(squares.data(), some * stride + rule.radius, real{0});
  std::fill_n(terms.data(), a.dy == nullptr ? 0 : some * stride + rule.radius, real{0});
  for (index_t first = begin; first < end; first += some) {
    const index_t last = std::min(end, first + some);
    const auto for_each_pixel = [&](const auto& body) {
      for (index_t pixel = first; pixel < last; ++pixel) {
        const index_t row = (pixel - first) * stride;
        for_each_packet<Element>(0, channels,
                                 [&](packet<Element> p, index_t c) { body(p, pixel * channels + c, row + c); });
      }
    };
    for_each_pixel([&](packet<Element> p, index_t i, index_t at) {
      const auto value = p.load(a.x + i);
      p.store(squares.data() + rule.radius + at, value * value);
    });
    for_each_pixel([&](packet<Element> p, index_t i, index_t at) {
      const auto d = window_sum(p, squares.data() + at, rule.radius) * rule.alpha + rule.k;
      const auto power = response_power(p, rule, d);
      if (a.dy == nullptr) {
        p.store(a.to + i, p.load(a.x + i) * power);
      } else {
        p.store(powers.data() + at, power);
        p.store(terms.data() + rule.radius + at, p.load(a.dy + i) * p.load(a.x + i) * power / d);
      }
    });
    if (a.dy != nullptr) {
      for_each_pixel([&](packet<Element> p, index_t i, index_t at) {
        const auto sum = window_sum(p, terms.data() + at, rule.radius);
        store_response(p, a, i, p.load(a.dy + i) * p.load(powers.data() + at) - rule.factor * p.load(a.x + i) * sum);
      });
    }
  }
}

// Planes: `pixels` adjacent pixels of every channel, `stride` elements from one channel to the next.

/// d = k + alpha * sum of squares around channel c, for one vector of pixels.
template <class Element>
GRADUS_ALWAYS_INLINE typename packet<Element>::type response_divisor(packet<Element> p,
                                                                     const response<computed<Element>>& rule,
                                                                     index_t channels, index_t stride, const Element* x,
                                                                     index_t c) noexcept {
  typename packet<Element>::type sum{};
  const index_t end = std::min(channels, c + rule.radius + 1);
  for (index_t j = std::max(index_t{0}, c - rule.radius); j < end; ++j) {
    const auto value = p.load(x + j * stride);
    sum += value * value;
  }
  return sum * rule.alpha + rule.k;
}

/// A tile of planes from element `first` on. @pre pixels <= response_tile(rule.radius)
template <class Element>
[[gnu::flatten]] void respond_planes(target /*of*/, const response<computed<Element>>& given, index_t channels,
                                     index_t stride, index_t first, index_t pixels,
                                     const response_arrays<Element>& arrays) noexcept {
  using real = computed<Element>;
  const response<real> rule = given;
  const response_arrays<Element> a = arrays;
  response_buffer<real> memory[2];
  real* const powers = memory[0].data();
  real* const terms = memory[1].data();
  const index_t ring = 2 * rule.radius + 1;
  // Computes the terms of channel `ahead`; then dx of channel ahead - radius has all its terms.
  for (index_t ahead = 0; ahead < channels + rule.radius; ++ahead) {
    const index_t to = ahead % ring * pixels;
    for_each_packet<Element>(0, ahead < channels ? pixels : 0, [=](packet<Element> p, index_t i) {
      const auto d = response_divisor(p, rule, channels, stride, a.x + first + i, ahead);
      const auto power = response_power(p, rule, d);
      const index_t at = first + ahead * stride + i;
      if (a.dy == nullptr) {
        p.store(a.to + at, p.load(a.x + at) * power);
      } else {
        p.store(powers + to + i, power);
        p.store(terms + to + i, p.load(a.dy + at) * p.load(a.x + at) * power / d);
      }
    });
    const index_t c = ahead - rule.radius;
    if (a.dy == nullptr || c < 0) {
      continue;
    }
    const index_t begin = std::max(index_t{0}, c - rule.radius);
    const index_t end = std::min(channels, c + rule.radius + 1);
    for_each_packet<Element>(0, pixels, [=](packet<Element> p, index_t i) {
      typename packet<Element>::type sum{};
      for (index_t j = begin; j < end; ++j) {
        sum += p.load(terms + j % ring * pixels + i);
      }
      const index_t at = first + c * stride + i;
      store_response(p, a, at,
                     p.load(a.dy + at) * p.load(powers + c % ring * pixels + i) - rule.factor * p.load(a.x + at) * sum);
    });
  }
}

}  // namespace gradus::kernels::detail::GRADUS_TARGET

#endif
