// SPDX-License-Identifier: BSL-1.0
//
// Softmax over channels on the CPU.
#pragma once

#include <algorithm>    // std::max, std::min
#include <array>        // std::array
#include <cmath>        // std::log
#include <cstddef>      // std::byte, std::size_t
#include <type_traits>  // std::bool_constant

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/channel_softmax.hpp"
#include "gradus/kernels/cpu/detail/copy/move.hpp"
#include "gradus/kernels/cpu/detail/elementwise/packet.hpp"
#include "gradus/kernels/cpu/detail/softmax/loops.hpp"

namespace gradus::kernels {

namespace detail {

/// Adjacent pixels whose channels are read together.
inline constexpr index_t softmax_pixels = 64;

/// e^x for any x of a packet that is not above a few units of rounding over 0, as a softmax has.
template <class Packet>
GRADUS_ALWAYS_INLINE typename Packet::type exponential_up_to_1(typename Packet::type x) noexcept {
  return exponential<Packet>(x > typename Packet::type{} ? typename Packet::type{} : x);
}

/// Softmax of `count` adjacent pixels, at most softmax_pixels, with channels `stride` apart.
template <bool Logarithm, class Element>
void softmax_of_pixels(index_t channels, index_t stride, index_t count, const Element* x, Element* y) noexcept {
  using real = computed<Element>;
  std::array<real, static_cast<std::size_t>(softmax_pixels)> largest_of_pixel;
  std::array<real, static_cast<std::size_t>(softmax_pixels)> sum_of_pixel{};
  real* const largest = largest_of_pixel.data();
  real* const sum = sum_of_pixel.data();
  for_each_packet<Element>(0, count,
                           [=]<class Packet>(Packet, index_t i) { Packet::store(largest + i, Packet::load(x + i)); });
  for (index_t c = 1; c < channels; ++c) {
    const Element* const from = x + c * stride;
    for_each_packet<Element>(0, count, [=]<class Packet>(Packet, index_t i) {
      const auto next = Packet::load(from + i);
      const auto old = Packet::load(largest + i);
      Packet::store(largest + i, next > old ? next : old);
    });
  }
  // Numbers that memory holds exactly are computed once, others again, to be rounded once.
  constexpr bool keep = !Logarithm && stores_exactly<Element>;
  for (index_t c = 0; c < channels; ++c) {
    const Element* const from = x + c * stride;
    Element* const to = y + c * stride;
    for_each_packet<Element>(0, count, [=]<class Packet>(Packet, index_t i) {
      const auto value = exponential<Packet>(Packet::load(from + i) - Packet::load(largest + i));
      Packet::store(sum + i, Packet::load(sum + i) + value);
      if constexpr (keep) {
        Packet::store(to + i, value);
      }
    });
  }
  for (index_t i = 0; i < count; ++i) {
    sum[i] = Logarithm ? std::log(sum[i]) : real{1} / sum[i];
  }
  for (index_t c = 0; c < channels; ++c) {
    const Element* const from = x + c * stride;
    Element* const to = y + c * stride;
    for_each_packet<Element>(0, count, [=]<class Packet>(Packet, index_t i) {
      const auto factor = Packet::load(sum + i);
      if constexpr (Logarithm) {
        Packet::store(to + i, Packet::load(from + i) - Packet::load(largest + i) - factor);
      } else if constexpr (keep) {
        Packet::store(to + i, Packet::load(to + i) * factor);
      } else {
        Packet::store(to + i, exponential<Packet>(Packet::load(from + i) - Packet::load(largest + i)) * factor);
      }
    });
  }
}

/// Softmax of one pixel with adjacent channels.
template <bool Logarithm, class Element>
void softmax_of_row(index_t channels, const Element* x, Element* y) noexcept {
  using real = computed<Element>;
  const real largest = largest_of(channels, x);
  if constexpr (Logarithm) {
    const real shift = std::log(exponentials<false>(channels, x, largest, y));
    for_each_packet<Element>(0, channels, [=]<class Packet>(Packet, index_t i) {
      Packet::store(y + i, Packet::load(x + i) - largest - shift);
    });
  } else if constexpr (stores_exactly<Element>) {
    const real total = exponentials<true>(channels, x, largest, y);
    scale_row(channels, real{1} / total, y);
  } else {
    const real total = exponentials<false>(channels, x, largest, y);
    store_probabilities(channels, x, largest, real{1} / total, index_t{-1}, real{0}, y);
  }
}

/// Softmax of `count` pixels, at most softmax_pixels, with adjacent channels, at most softmax_pixels: transposed, so
/// that each SIMD lane has a pixel of its own.
template <bool Logarithm, class Element>
void softmax_of_short_rows(index_t channels, index_t count, const Element* x, Element* y) noexcept {
  constexpr auto edge = static_cast<std::size_t>(softmax_pixels);
  std::array<Element, edge * edge> block;
  std::array<index_t, edge> of_pixel;
  std::array<index_t, edge> of_channel;
  for (index_t i = 0; i < softmax_pixels; ++i) {
    of_pixel[static_cast<std::size_t>(i)] = i * channels;
    of_channel[static_cast<std::size_t>(i)] = i * softmax_pixels;
  }
  constexpr int size = sizeof(Element);
  auto* const bytes = reinterpret_cast<std::byte*>(block.data());
  transpose_elements<size>(channels, count, reinterpret_cast<const std::byte*>(x), of_pixel.data(), bytes,
                           of_channel.data());
  softmax_of_pixels<Logarithm>(channels, softmax_pixels, count, block.data(), block.data());
  transpose_elements<size>(count, channels, bytes, of_channel.data(), reinterpret_cast<std::byte*>(y), of_pixel.data());
}

/// One element of the gradient, from the pixel's sum.
template <bool Logarithm, class Packet>
GRADUS_ALWAYS_INLINE typename Packet::type softmax_gradient(typename Packet::type y, typename Packet::type dy,
                                                            typename Packet::type sum) noexcept {
  if constexpr (Logarithm) {
    return dy - exponential_up_to_1<Packet>(y) * sum;
  } else {
    return y * (dy - sum);
  }
}

/// The gradients of `count` adjacent pixels, at most softmax_pixels, with channels `stride` apart.
template <bool Logarithm, class Element>
void softmax_gradient_of_pixels(index_t channels, index_t stride, index_t count, const Element* y, const Element* dy,
                                Element* dx, bool accumulate) noexcept {
  using real = computed<Element>;
  std::array<real, static_cast<std::size_t>(softmax_pixels)> sums{};
  real* const sum = sums.data();
  for (index_t c = 0; c < channels; ++c) {
    const index_t at = c * stride;
    for_each_packet<Element>(0, count, [=]<class Packet>(Packet, index_t i) {
      auto term = Packet::load(dy + at + i);
      if constexpr (!Logarithm) {
        term *= Packet::load(y + at + i);
      }
      Packet::store(sum + i, Packet::load(sum + i) + term);
    });
  }
  for (index_t c = 0; c < channels; ++c) {
    const index_t at = c * stride;
    for_each_packet<Element>(0, count, [=]<class Packet>(Packet, index_t i) {
      auto value = softmax_gradient<Logarithm, Packet>(Packet::load(y + at + i), Packet::load(dy + at + i),
                                                       Packet::load(sum + i));
      if (accumulate) {
        value += Packet::load(dx + at + i);
      }
      Packet::store(dx + at + i, value);
    });
  }
}

/// The gradient of one pixel with adjacent channels.
template <bool Logarithm, class Element>
void softmax_gradient_of_row(index_t channels, const Element* y, const Element* dy, Element* dx,
                             bool accumulate) noexcept {
  using full = full_packet<Element>;
  using real = computed<Element>;
  typename full::type sums{};
  index_t i = 0;
  for (; i + full::lanes <= channels; i += full::lanes) {
    auto term = full::load(dy + i);
    if constexpr (!Logarithm) {
      term *= full::load(y + i);
    }
    sums += term;
  }
  real sum = 0;
  for (index_t lane = 0; lane < full::lanes; ++lane) {
    sum += sums[lane];
  }
  for (; i < channels; ++i) {
    sum += static_cast<real>(dy[i]) * (Logarithm ? real{1} : static_cast<real>(y[i]));
  }
  for_each_packet<Element>(0, channels, [=]<class Packet>(Packet, index_t k) {
    auto value = softmax_gradient<Logarithm, Packet>(Packet::load(y + k), Packet::load(dy + k), Packet::broadcast(sum));
    if (accumulate) {
      value += Packet::load(dx + k);
    }
    Packet::store(dx + k, value);
  });
}

/// Calls rows(offset, count) for pixels with adjacent channels, or pixels(offset, count) for adjacent pixels, both for
/// groups of up to softmax_pixels, on all threads.
template <class Rows, class Pixels>
void for_each_softmax(cpu& device, const channel_softmax_shape& s, const Rows& rows, const Pixels& pixels) {
  if (s.channels == 0) {
    return;
  }
  if (s.inner == 1) {
    // Long rows are few in a task, short ones fill the groups.
    const index_t grain = s.channels <= softmax_pixels ? softmax_pixels * std::max(index_t{1}, 128 / s.channels)
                                                       : std::max(index_t{1}, 8192 / s.channels);
    device.parallel_for(s.outer, grain, [&](index_t begin, index_t end) {
      for (index_t i = begin; i < end; i += softmax_pixels) {
        rows(i * s.channels, std::min(softmax_pixels, end - i));
      }
    });
    return;
  }
  const index_t groups = (s.inner + softmax_pixels - 1) / softmax_pixels;
  const index_t grain = std::max(index_t{1}, 8192 / (s.channels * softmax_pixels));
  device.parallel_for(s.outer * groups, grain, [&](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) {
      const index_t first = i % groups * softmax_pixels;
      pixels(i / groups * s.channels * s.inner + first, std::min(softmax_pixels, s.inner - first));
    }
  });
}

/// Calls body(std::bool_constant<logarithm>).
template <class Body>
void with_logarithm(bool logarithm, const Body& body) {
  if (logarithm) {
    body(std::bool_constant<true>{});
  } else {
    body(std::bool_constant<false>{});
  }
}

}  // namespace detail

/// See has_channel_softmax_forward.
template <network_element Element>
void channel_softmax_forward(cpu& device, const channel_softmax_shape& shape, const Element* x, Element* y) {
  detail::with_logarithm(shape.logarithm, [&]<bool Logarithm>(std::bool_constant<Logarithm>) {
    detail::for_each_softmax(
        device, shape,
        [&](index_t at, index_t count) {
          if (shape.channels <= detail::softmax_pixels) {
            detail::softmax_of_short_rows<Logarithm>(shape.channels, count, x + at, y + at);
            return;
          }
          for (index_t i = 0; i < count; ++i, at += shape.channels) {
            detail::softmax_of_row<Logarithm>(shape.channels, x + at, y + at);
          }
        },
        [&](index_t at, index_t count) {
          detail::softmax_of_pixels<Logarithm>(shape.channels, shape.inner, count, x + at, y + at);
        });
  });
}

/// See has_channel_softmax_backward.
template <network_element Element>
void channel_softmax_backward(cpu& device, const channel_softmax_shape& shape, const Element* y, const Element* dy,
                              Element* dx, bool accumulate) {
  detail::with_logarithm(shape.logarithm, [&]<bool Logarithm>(std::bool_constant<Logarithm>) {
    detail::for_each_softmax(
        device, shape,
        [&](index_t at, index_t count) {
          for (index_t i = 0; i < count; ++i, at += shape.channels) {
            detail::softmax_gradient_of_row<Logarithm>(shape.channels, y + at, dy + at, dx + at, accumulate);
          }
        },
        [&](index_t at, index_t count) {
          detail::softmax_gradient_of_pixels<Logarithm>(shape.channels, shape.inner, count, y + at, dy + at, dx + at,
                                                        accumulate);
        });
  });
}

}  // namespace gradus::kernels
