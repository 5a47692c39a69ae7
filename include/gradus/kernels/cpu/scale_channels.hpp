// SPDX-License-Identifier: BSL-1.0
//
// Products of images and factors of their channels on the CPU.
#pragma once

#include <algorithm>  // std::max, std::min
#include <array>      // std::array
#include <cstddef>    // std::size_t

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu/detail/elementwise/packet.hpp"
#include "gradus/kernels/cpu/elementwise.hpp"
#include "gradus/kernels/scale_channels.hpp"

namespace gradus::kernels {

namespace detail {

/// to[i] (+)= a[i] * b[i]
template <class Element>
void multiply_run(index_t begin, index_t end, const Element* a, const Element* b, Element* to,
                  bool accumulate) noexcept {
  for_each_packet<Element>(begin, end, [=]<class Packet>(Packet, index_t i) {
    const auto product = Packet::load(a + i) * Packet::load(b + i);
    Packet::store(to + i, accumulate ? Packet::load(to + i) + product : product);
  });
}

/// Multiplies pixels [begin, end) of all images by the factors of their channels.
template <class Element>
void multiply_pixels(const scale_channels_shape& s, index_t begin, index_t end, const Element* x,
                     const Element* factors, Element* to, bool accumulate) noexcept {
  for (index_t pixel = begin; pixel < end; ++pixel) {
    const index_t at = pixel * s.channels;
    multiply_run(index_t{0}, s.channels, x + at, factors + pixel / s.pixels * s.channels, to + at, accumulate);
  }
}

/// Multiplies planes [begin, end), each by its factor.
template <class Element>
void multiply_planes(const scale_channels_shape& s, index_t begin, index_t end, const Element* x,
                     const Element* factors, Element* to, bool accumulate) noexcept {
  for (index_t plane = begin; plane < end; ++plane) {
    const auto factor = static_cast<computed<Element>>(factors[plane]);
    for_each_packet<Element>(plane * s.pixels, (plane + 1) * s.pixels, [=]<class Packet>(Packet, index_t i) {
      const auto product = Packet::load(x + i) * factor;
      Packet::store(to + i, accumulate ? Packet::load(to + i) + product : product);
    });
  }
}

template <class Element>
void store_factor_sum(computed<Element> sum, Element* to, bool accumulate) noexcept {
  *to = static_cast<Element>(accumulate ? static_cast<computed<Element>>(*to) + sum : sum);
}

/// The gradients of the factors of planes [begin, end).
template <class Element>
void sum_planes(const scale_channels_shape& s, index_t begin, index_t end, const Element* x, const Element* dy,
                Element* dfactors, bool accumulate) noexcept {
  using full = full_packet<Element>;
  using real = computed<Element>;
  for (index_t plane = begin; plane < end; ++plane) {
    const Element* const a = x + plane * s.pixels;
    const Element* const b = dy + plane * s.pixels;
    std::array<typename full::type, 4> sums{};
    index_t i = 0;
    for (; i + 4 * full::lanes <= s.pixels; i += 4 * full::lanes) {
      for (index_t k = 0; k < 4; ++k) {
        sums[static_cast<std::size_t>(k)] += full::load(a + i + k * full::lanes) * full::load(b + i + k * full::lanes);
      }
    }
    const typename full::type lanes = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    real sum = 0;
    for (index_t lane = 0; lane < full::lanes; ++lane) {
      sum += lanes[lane];
    }
    for (; i < s.pixels; ++i) {
      sum += static_cast<real>(a[i]) * static_cast<real>(b[i]);
    }
    store_factor_sum(sum, dfactors + plane, accumulate);
  }
}

/// Channels of one task in nhwc: two cache lines of float.
inline constexpr index_t summed_channels = 32;

/// Adds x * dy of the pixels [begin, end) of one image to totals, for the channels from `first` on. The sums of a few
/// hundred pixels stay in registers.
template <class Packet, int Count, class Element>
void add_pixels(const scale_channels_shape& s, index_t begin, index_t end, index_t first, const Element* x,
                const Element* dy, computed<Element>* totals) noexcept {
  constexpr std::size_t count{Count};
  typename Packet::type sums[count]{};
  for (index_t pixel = begin; pixel < end; ++pixel) {
    const index_t at = pixel * s.channels + first;
    for (index_t k = 0; k < Count; k += 64 / packet_bytes) {  // processors do not foresee parts of rows
      prefetch(x + at + 16 * s.channels + k * Packet::lanes);
      prefetch(dy + at + 16 * s.channels + k * Packet::lanes);
    }
    for (index_t k = 0; k < Count; ++k) {
      sums[k] += Packet::load(x + at + k * Packet::lanes) * Packet::load(dy + at + k * Packet::lanes);
    }
  }
  for (index_t k = 0; k < Count; ++k) {
    computed<Element>* const total = totals + k * Packet::lanes;
    Packet::store(total, Packet::load(total) + sums[k]);
  }
}

/// The gradients of the factors of one image, for channels [first, last), of which there are at most summed_channels.
template <class Element>
void sum_pixels(const scale_channels_shape& s, index_t image, index_t first, index_t last, const Element* x,
                const Element* dy, Element* dfactors, bool accumulate) noexcept {
  using full = full_packet<Element>;
  std::array<computed<Element>, static_cast<std::size_t>(summed_channels)> totals{};
  // In parts: the rounding error grows with the pixels of a part and with the parts.
  const index_t end = (image + 1) * s.pixels;
  for (index_t begin = image * s.pixels; begin < end; begin += 256) {
    const index_t stop = std::min(begin + 256, end);
    index_t c = first;
    for (; c + 8 * full::lanes <= last; c += 8 * full::lanes) {
      add_pixels<full, 8>(s, begin, stop, c, x, dy, totals.data() + (c - first));
    }
    for (; c + full::lanes <= last; c += full::lanes) {
      add_pixels<full, 1>(s, begin, stop, c, x, dy, totals.data() + (c - first));
    }
    for (; c < last; ++c) {
      add_pixels<packet<Element, 1>, 1>(s, begin, stop, c, x, dy, totals.data() + (c - first));
    }
  }
  for (index_t i = 0; i < last - first; ++i) {
    store_factor_sum(totals[static_cast<std::size_t>(i)], dfactors + image * s.channels + first + i, accumulate);
  }
}

/// to (+)= factors * x
template <class Element>
void multiply_channels(cpu& device, const scale_channels_shape& s, const Element* x, const Element* factors,
                       Element* to, bool accumulate) {
  if (s.pixels == 1) {
    device.parallel_for(s.examples * s.channels, elementwise_grain,
                        [&](index_t begin, index_t end) { multiply_run(begin, end, x, factors, to, accumulate); });
  } else if (s.channels_last) {
    const index_t grain = std::max(index_t{1}, elementwise_grain / std::max(index_t{1}, s.channels));
    device.parallel_for(s.examples * s.pixels, grain, [&](index_t begin, index_t end) {
      multiply_pixels(s, begin, end, x, factors, to, accumulate);
    });
  } else {
    const index_t grain = std::max(index_t{1}, elementwise_grain / std::max(index_t{1}, s.pixels));
    device.parallel_for(s.examples * s.channels, grain, [&](index_t begin, index_t end) {
      multiply_planes(s, begin, end, x, factors, to, accumulate);
    });
  }
}

}  // namespace detail

/// See has_scale_channels_forward.
template <network_element Element>
void scale_channels_forward(cpu& device, const scale_channels_shape& shape, const Element* x, const Element* factors,
                            Element* y) {
  detail::multiply_channels(device, shape, x, factors, y, false);
}

/// See has_scale_channels_backward.
template <network_element Element>
void scale_channels_backward(cpu& device, const scale_channels_shape& shape, const Element* x, const Element* factors,
                             const Element* dy, const scale_channels_gradients<Element>& gradients) {
  const scale_channels_shape& s = shape;
  if (gradients.dx != nullptr) {
    detail::multiply_channels(device, s, dy, factors, gradients.dx, gradients.accumulate_dx);
  }
  if (gradients.dfactors == nullptr) {
    return;
  }
  if (s.pixels == 1) {
    detail::multiply_channels(device, s, dy, x, gradients.dfactors, gradients.accumulate_dfactors);
  } else if (s.channels_last) {
    const index_t parts = (s.channels + detail::summed_channels - 1) / detail::summed_channels;
    const index_t grain = std::max(index_t{1}, 16384 / std::max(index_t{1}, s.pixels * detail::summed_channels));
    device.parallel_for(s.examples * parts, grain, [&](index_t begin, index_t end) {
      for (index_t i = begin; i < end; ++i) {
        const index_t first = i % parts * detail::summed_channels;
        detail::sum_pixels(s, i / parts, first, std::min(s.channels, first + detail::summed_channels), x, dy,
                           gradients.dfactors, gradients.accumulate_dfactors);
      }
    });
  } else {
    const index_t grain = std::max(index_t{1}, detail::elementwise_grain / std::max(index_t{1}, s.pixels));
    device.parallel_for(s.examples * s.channels, grain, [&](index_t begin, index_t end) {
      detail::sum_planes(s, begin, end, x, dy, gradients.dfactors, gradients.accumulate_dfactors);
    });
  }
}

}  // namespace gradus::kernels
