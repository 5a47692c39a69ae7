// SPDX-License-Identifier: BSL-1.0
//
// The loops of softmax over channels, for one instruction set.

// No `#pragma once`: for_each_target.hpp says what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::kernels::detail::GRADUS_TARGET {

/// y = log(softmax(x)); y may be x.
template <class Element>
void log_softmax_of_row(target which, index_t count, const Element* x, Element* y) noexcept {
  using pack = packet<Element>;
  const computed<Element> largest = largest_of(which, count, x);
  const computed<Element> shift =
      std::log(sum_of_exponentials(which, count, x, largest, static_cast<Element*>(nullptr)));
  for_each_packet<Element>(0, count, [=](pack p, index_t i) { p.store(y + i, p.load(x + i) - largest - shift); });
}

/// Softmax of `count` adjacent pixels, at most softmax_pixels, with channels `stride` apart, or its logarithm.
template <class Element>
void softmax_of_pixels(target /*of*/, bool logarithm, index_t channels, index_t stride, index_t count, const Element* x,
                       Element* y) noexcept {
  using pack = packet<Element>;
  using real = computed<Element>;
  real largest_of_pixel[std::size_t{softmax_pixels}];
  real sum_of_pixel[std::size_t{softmax_pixels}] = {};
  real* const largest = largest_of_pixel;
  real* const sum = sum_of_pixel;
  for_each_packet<Element>(0, count, [=](pack p, index_t i) { p.store(largest + i, p.load(x + i)); });
  for (index_t c = 1; c < channels; ++c) {
    const Element* const from = x + c * stride;
    for_each_packet<Element>(0, count, [=](pack p, index_t i) {
      p.store(largest + i, pack::larger(p.load(from + i), p.load(largest + i)));
    });
  }
  const bool keep =
      !logarithm && std::is_same_v<Element, real>;  // other numbers are computed again, to be rounded once
  for (index_t c = 0; c < channels; ++c) {
    const Element* const from = x + c * stride;
    Element* const to = y + c * stride;
    for_each_packet<Element>(0, count, [=](pack p, index_t i) {
      const auto value = exponential<pack>(p.load(from + i) - p.load(largest + i));
      p.store(sum + i, p.load(sum + i) + value);
      if (keep) {
        p.store(to + i, value);
      }
    });
  }
  for (index_t i = 0; i < count; ++i) {
    sum[i] = logarithm ? std::log(sum[i]) : real{1} / sum[i];
  }
  for (index_t c = 0; c < channels; ++c) {
    const Element* const from = x + c * stride;
    Element* const to = y + c * stride;
    for_each_packet<Element>(0, count, [=](pack p, index_t i) {
      const auto factor = p.load(sum + i);
      if (keep) {
        p.store(to + i, p.load(to + i) * factor);
        return;
      }
      const auto above = p.load(from + i) - p.load(largest + i);
      p.store(to + i, logarithm ? above - factor : exponential<pack>(above) * factor);
    });
  }
}

/// One vector of the gradient, from the sums of its pixels.
template <class Packet>
GRADUS_ALWAYS_INLINE typename Packet::type softmax_gradient(bool logarithm, typename Packet::type y,
                                                            typename Packet::type dy,
                                                            typename Packet::type sum) noexcept {
  if (logarithm) {
    return dy - exponential<Packet>(y > typename Packet::type{} ? typename Packet::type{} : y) * sum;  // y is rounded
  }
  return y * (dy - sum);
}

/// The gradients of `count` adjacent pixels, at most softmax_pixels, with channels `stride` apart.
template <class Element>
void softmax_gradient_of_pixels(target /*of*/, bool logarithm, index_t channels, index_t stride, index_t count,
                                const Element* y, const Element* dy, Element* dx, bool accumulate) noexcept {
  using pack = packet<Element>;
  computed<Element> sum_of_pixel[std::size_t{softmax_pixels}] = {};
  computed<Element>* const sum = sum_of_pixel;
  for (index_t c = 0; c < channels; ++c) {
    const index_t at = c * stride;
    for_each_packet<Element>(0, count, [=](pack p, index_t i) {
      const auto term = p.load(dy + at + i);
      p.store(sum + i, p.load(sum + i) + (logarithm ? term : term * p.load(y + at + i)));
    });
  }
  for (index_t c = 0; c < channels; ++c) {
    const index_t at = c * stride;
    for_each_packet<Element>(0, count, [=](pack p, index_t i) {
      auto value = softmax_gradient<pack>(logarithm, p.load(y + at + i), p.load(dy + at + i), p.load(sum + i));
      if (accumulate) {
        value += p.load(dx + at + i);
      }
      p.store(dx + at + i, value);
    });
  }
}

/// The gradient of one pixel with adjacent channels.
template <class Element>
void softmax_gradient_of_row(target /*of*/, bool logarithm, index_t channels, const Element* y, const Element* dy,
                             Element* dx, bool accumulate) noexcept {
  using pack = packet<Element>;
  row_block<Element> sums;
  sums.fill(0);
  sums.for_each(
      channels, [=](pack p, index_t i, typename pack::type & sum) __attribute__((always_inline)) {
        const auto term = p.load(dy + i);
        sum += logarithm ? term : term * p.load(y + i);
      });
  const computed<Element> sum = sums.reduced([](const auto& a, const auto& b) { return a + b; });
  for_each_packet<Element>(0, channels, [=](pack p, index_t i) {
    auto value = softmax_gradient<pack>(logarithm, p.load(y + i), p.load(dy + i), pack::broadcast(sum));
    if (accumulate) {
      value += p.load(dx + i);
    }
    p.store(dx + i, value);
  });
}

}  // namespace gradus::kernels::detail::GRADUS_TARGET

#endif
