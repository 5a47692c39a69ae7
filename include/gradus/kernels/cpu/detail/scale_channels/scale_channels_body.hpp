// SPDX-License-Identifier: BSL-1.0
//
// The loops of scale_channels, for one instruction set.

// No `#pragma once`: for_each_target.hpp says what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::kernels::detail::GRADUS_TARGET {

/// to[i] (+)= a[i] * b[i]
template <class Element>
void multiply_run(target /*of*/, index_t begin, index_t end, const Element* a, const Element* b, Element* to,
                  bool accumulate) noexcept {
  for_each_packet<Element>(begin, end, [=](packet<Element> p, index_t i) {
    const auto product = p.load(a + i) * p.load(b + i);
    p.store(to + i, accumulate ? p.load(to + i) + product : product);
  });
}

/// Multiplies rows [begin, end) by the factors of their channels: pixels with the channels last, else planes.
template <class Element>
void multiply_rows(target which, const scale_channels_shape& s, index_t begin, index_t end, const Element* x,
                   const Element* factors, Element* to, bool accumulate) noexcept {
  if (s.channels_last) {
    for (index_t pixel = begin; pixel < end; ++pixel) {
      const index_t at = pixel * s.channels;
      multiply_run(which, 0, s.channels, x + at, factors + pixel / s.pixels * s.channels, to + at, accumulate);
    }
    return;
  }
  for (index_t plane = begin; plane < end; ++plane) {
    const auto factor = static_cast<computed<Element>>(factors[plane]);
    for_each_packet<Element>(plane * s.pixels, (plane + 1) * s.pixels, [=](packet<Element> p, index_t i) {
      const auto product = p.load(x + i) * factor;
      p.store(to + i, accumulate ? p.load(to + i) + product : product);
    });
  }
}

/// The sum of x * dy of a plane.
template <class Element>
[[nodiscard]] computed<Element> sum_plane(index_t pixels, const Element* x, const Element* dy) noexcept {
  using pack = packet<Element>;
  row_block<Element> sums;
  sums.fill(0);
  index_t first = 0;
  for (; first + sums.width <= pixels; first += sums.width) {
#pragma GCC unroll 4
    for (int k = 0; k < sums.vectors; ++k) {
      sums.value[k] += pack{}.load(x + first + k * pack::lanes) * pack{}.load(dy + first + k * pack::lanes);
    }
  }
  computed<Element> sum = sums.reduced([](const auto& a, const auto& b) { return a + b; });
  for (; first < pixels; ++first) {
    sum += static_cast<computed<Element>>(x[first]) * static_cast<computed<Element>>(dy[first]);
  }
  return sum;
}

/// Adds x * dy of pixels to totals, for `Count` vectors of channels. The sums of a few hundred pixels stay in
/// registers.
template <int Count, class Element>
void add_pixels(packet<Element> p, index_t channels, index_t pixels, const Element* x, const Element* dy,
                computed<Element>* totals) noexcept {
  using pack = packet<Element>;
  typename pack::type sums[std::size_t{Count}]{};
  for (index_t pixel = 0; pixel < pixels; ++pixel, x += channels, dy += channels) {
#pragma GCC unroll 8
    for (int k = 0; k < Count; ++k) {
      const index_t at = k * pack::lanes;
      if (k * GRADUS_TARGET_BYTES % 64 == 0) {  // processors do not foresee parts of rows
        __builtin_prefetch(x + at + 16 * channels);
        __builtin_prefetch(dy + at + 16 * channels);
      }
      sums[k] += p.load(x + at) * p.load(dy + at);
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < Count; ++k) {
    computed<Element>* const total = totals + k * pack::lanes;
    p.store(total, p.load(total) + sums[k]);
  }
}

/// The sums of x * dy over the pixels of an image, for `count` of its channels, at most summed_channels.
template <class Element>
void sum_pixels(const scale_channels_shape& s, index_t count, const Element* x, const Element* dy,
                computed<Element>* totals) noexcept {
  constexpr index_t lanes = packet<Element>::lanes;
  constexpr int some = 128 / GRADUS_TARGET_BYTES;  // vectors
  // In parts: the rounding error grows with the pixels of a part and with the parts.
  for (index_t begin = 0; begin < s.pixels; begin += 256) {
    const index_t pixels = s.pixels - begin < 256 ? s.pixels - begin : 256;
    const Element* const a = x + begin * s.channels;
    const Element* const b = dy + begin * s.channels;
    index_t c = 0;
    for (; c + some * lanes <= count; c += some * lanes) {
      add_pixels<some>(packet<Element>{}, s.channels, pixels, a + c, b + c, totals + c);
    }
    for_each_packet<Element>(c, count, [&](packet<Element> p, index_t i) {
      add_pixels<1>(p, s.channels, pixels, a + i, b + i, totals + i);
    });
  }
}

/// The gradients of the factors of parts [begin, end): summed_channels channels of an image with the channels last,
/// else planes.
template <class Element>
void sum_products(target /*of*/, const scale_channels_shape& s, index_t begin, index_t end, const Element* x,
                  const Element* dy, Element* dfactors, bool accumulate) noexcept {
  const index_t most = s.channels_last ? summed_channels : 1;
  const index_t parts = (s.channels + most - 1) / most;
  for (index_t part = begin; part < end; ++part) {
    const index_t image = part / parts * s.channels;
    const index_t first = part % parts * most;
    const index_t count = s.channels - first < most ? s.channels - first : most;
    computed<Element> sums[std::size_t{summed_channels}] = {};
    if (s.channels_last) {
      sum_pixels(s, count, x + image * s.pixels + first, dy + image * s.pixels + first, sums);
    } else {
      sums[0] = sum_plane(s.pixels, x + part * s.pixels, dy + part * s.pixels);
    }
    Element* const to = dfactors + image + first;
    for (index_t i = 0; i < count; ++i) {
      to[i] = static_cast<Element>(accumulate ? static_cast<computed<Element>>(to[i]) + sums[i] : sums[i]);
    }
  }
}

}  // namespace gradus::kernels::detail::GRADUS_TARGET

#endif
