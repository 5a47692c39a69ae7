// SPDX-License-Identifier: BSL-1.0
//
// The loops of softmax over rows and over pixels, for one instruction set.

// No `#pragma once`: for_each_target.hpp says what to compile. Sums of a row have the terms of 64 bytes of lanes,
// whatever the size of a vector: all instruction sets have the same bits.
#if defined(GRADUS_TARGET)

namespace gradus::kernels::detail::GRADUS_TARGET {

/// e^x for x <= 0. NaN stays NaN; below -87.3 (float) the result is 0.
///
/// Float: x = n ln 2 + r, |r| <= ln 2 / 2, and a polynomial of degree 7 in r (the coefficients are those of Cephes'
/// expf, relative error below 2 units in the last place). Double: std::exp of every SIMD lane.
template <class Packet>
GRADUS_ALWAYS_INLINE typename Packet::type exponential(typename Packet::type x) noexcept {
  using type = typename Packet::type;
  if constexpr (sizeof(typename Packet::real) == 8) {
    for (index_t i = 0; i < Packet::lanes; ++i) {
      x[i] = std::exp(x[i]);
    }
    return x;
  } else {
    using integers = typename Packet::index_vector;
    using bits = typename Packet::words;
    constexpr float lowest = -87.33654F;  // e^x is still a normal number
    const integers below = x < lowest;
    const type in_range = below ? type{} : x;
    const integers n = __builtin_convertvector(in_range * 1.44269504088896341F - 0.5F, integers);  // rounds to nearest
    const type whole = __builtin_convertvector(n, type);
    const type r = (in_range - whole * 0.693359375F) - whole * -2.12194440e-4F;  // ln 2 in two parts
    type p = r * 1.9875691500e-4F + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * (r * r) + r + 1.0F;
    const type power = __builtin_bit_cast(type, (__builtin_bit_cast(bits, n) + 127U) << 23U);  // 2^n
    return below ? type{} : p * power;
  }
}

/// The largest element of a row; if one is NaN, any other element or NaN.
template <class Element>
[[nodiscard]] computed<Element> largest_of(target /*of*/, index_t count, const Element* x) noexcept {
  using pack = packet<Element>;
  row_block<Element> largest;
  largest.fill(static_cast<computed<Element>>(x[0]));
  largest.for_each(
      count, [=](pack p, index_t i, typename pack::type & most)
                 __attribute__((always_inline)) { most = pack::larger(p.merged(p.load(x + i), most), most); });
  return largest.reduced([](const auto& a, const auto& b) { return a > b ? a : b; });
}

/// The sum of e^(x - largest). Writes the terms to `y` unless it is null; y may be x.
template <class Element>
[[nodiscard]] computed<Element> sum_of_exponentials(target /*of*/, index_t count, const Element* x,
                                                    computed<Element> largest, Element* y) noexcept {
  using pack = packet<Element>;
  row_block<Element> sums;
  sums.fill(0);
  sums.for_each(
      count, [=](pack p, index_t i, typename pack::type & sum) __attribute__((always_inline)) {
        const auto value = exponential<pack>(p.load(x + i) - largest);
        sum += p.only(value);
        if (y != nullptr) {
          p.store(y + i, value);
        }
      });
  return sums.reduced([](const auto& a, const auto& b) { return a + b; });
}

/// y = scale * softmax(x), less `scale` at y[label] unless `label` is negative; nothing if y is null. Returns the sum
/// of e^(x - largest). y may be x. Numbers that memory holds exactly are computed once, others again, to be rounded
/// once.
template <class Element>
computed<Element> softmax_of_row(target which, index_t count, const Element* x, computed<Element> largest, double scale,
                                 index_t label, Element* y) noexcept {
  using pack = packet<Element>;
  using real = computed<Element>;
  constexpr bool exact = std::is_same_v<Element, real>;
  const real at_label = label < 0 ? real{0} : static_cast<real>(x[label]);
  const real total = sum_of_exponentials(which, count, x, largest, exact ? y : static_cast<Element*>(nullptr));
  if (y != nullptr) {
    const auto factor = static_cast<real>(scale / static_cast<double>(total));
    for_each_packet<Element>(0, count, [=](pack p, index_t i) {
      if constexpr (exact) {
        p.store(y + i, p.load(y + i) * factor);
      } else {
        p.store(y + i, exponential<pack>(p.load(x + i) - largest) * factor);
      }
    });
    if (label >= 0) {
      const auto value = exponential<pack>(pack::broadcast(at_label - largest)) * factor;
      pack{1}.store(y + label, value - static_cast<real>(scale));
    }
  }
  return total;
}

/// Adds up the losses of the adjacent pixels [first, first + p.count) of an example, and writes their gradients.
template <class Element>
void cross_entropy_of_vector(packet<Element> p, index_t first, const pixel_loss<Element>& of,
                             loss_sums& sums) noexcept {
  using pack = packet<Element>;
  using real = computed<Element>;
  using integers = typename pack::index_vector;
  constexpr auto lanes = std::size_t{pack::lanes};
  const auto& shape = of.shape;
  const auto load = [&](index_t k) __attribute__((always_inline)) {
    const Element* const from = of.logits + k * of.class_stride + first * of.pixel_stride;
    if (of.pixel_stride == 1) {
      return p.load(from);
    }
    typename pack::type values{};
    for (index_t lane = 0; lane < p.count; ++lane) {
      values[lane] = static_cast<real>(from[lane * of.pixel_stride]);
    }
    return values;
  };
  const auto weight_of = [&](index_t k) { return shape.class_weights == nullptr ? real{1} : shape.class_weights[k]; };
  auto largest = load(0);
  for (index_t k = 1; k < shape.classes; ++k) {
    largest = pack::larger(load(k), largest);
  }
  typename pack::type sum{};
  typename pack::type weighted{};             // sum of class weight * (logit - largest)
  integers best = pack::broadcast_index(-1);  // the first class with the largest logit; none if that is NaN
  for (index_t k = 0; k < shape.classes; ++k) {
    const auto x = load(k);
    sum += exponential<pack>(x - largest);
    if (shape.label_smoothing > 0) {
      weighted += (x - largest) * weight_of(k);
    }
    const integers is_first = (x == largest) & (best < integers{});
    best = is_first ? pack::broadcast_index(static_cast<int>(k)) : best;
  }
  real label_factors[lanes] = {};  // factor of the loss of a lane's label
  real all_factors[lanes] = {};    // factor of the losses of all classes
  integers labels = pack::broadcast_index(-1);
  for (index_t lane = 0; lane < p.count; ++lane) {
    const index_t label = of.labels[first + lane];
    if (shape.ignores && label == shape.ignored_label) {
      continue;
    }
    const double own = (1 - shape.label_smoothing) * static_cast<double>(weight_of(label));
    const double all = shape.label_smoothing / static_cast<double>(shape.classes);
    const double log_sum = std::log(static_cast<double>(sum[lane]));
    const auto at_label = static_cast<real>(of.logits[label * of.class_stride + (first + lane) * of.pixel_stride]);
    sums.loss += own * (log_sum - (static_cast<double>(at_label) - static_cast<double>(largest[lane])));
    if (all > 0) {
      sums.loss += all * (of.total * log_sum - static_cast<double>(weighted[lane]));
    }
    sums.correct += best[lane] == label ? 1 : 0;
    ++sums.labels;
    labels[lane] = static_cast<typename pack::index_type>(label);
    label_factors[lane] = static_cast<real>(of.factor * own);
    all_factors[lane] = static_cast<real>(of.factor * all);
  }
  if (of.dlogits == nullptr) {
    return;
  }
  const auto label_factor = pack{}.load(label_factors);
  const auto all_factor = pack{}.load(all_factors);
  const auto probability_factor = (label_factor + all_factor * static_cast<real>(of.total)) / sum;
  const integers counts = labels >= integers{};
  for (index_t k = 0; k < shape.classes; ++k) {
    auto value = exponential<pack>(load(k) - largest) * probability_factor - all_factor * weight_of(k);
    value -= pack::masked(labels == pack::broadcast_index(static_cast<int>(k)), label_factor);
    value = pack::masked(counts, value);  // 0 also where the logits are not finite
    Element* const to = of.dlogits + k * of.class_stride + first * of.pixel_stride;
    if (of.pixel_stride == 1) {
      p.store(to, value);
    } else {
      Element values[lanes];
      p.store(values, value);
      for (index_t lane = 0; lane < p.count; ++lane) {
        to[lane * of.pixel_stride] = values[lane];
      }
    }
  }
}

/// Adds up the losses of the pixels [first, first + count) of an example, and writes their gradients.
template <class Element>
[[nodiscard]] loss_sums cross_entropy_of_pixels(target /*of*/, index_t first, index_t count,
                                                const pixel_loss<Element>& of) noexcept {
  loss_sums sums;
  for_each_packet<Element>(first, first + count,
                           [&](packet<Element> p, index_t i) { cross_entropy_of_vector(p, i, of, sums); });
  return sums;
}

}  // namespace gradus::kernels::detail::GRADUS_TARGET

#endif
