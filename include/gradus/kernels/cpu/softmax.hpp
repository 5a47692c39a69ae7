// SPDX-License-Identifier: BSL-1.0
//
// Softmax and softmax cross-entropy on the CPU.
#pragma once

#include <algorithm>  // std::max, std::min
#include <array>      // std::array
#include <cmath>      // std::log
#include <cstddef>    // std::size_t
#include <cstdint>    // std::int32_t

#include "gradus/core/element.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu/detail/softmax/loops.hpp"
#include "gradus/kernels/softmax.hpp"

namespace gradus::kernels {

namespace detail {

/// Rows of one task: about 4096 elements, and at most 64 tasks if their results are summed.
[[nodiscard]] constexpr index_t softmax_grain(index_t rows, index_t classes) noexcept {
  return std::max((rows + 63) / 64, std::max(index_t{1}, 4096 / std::max(index_t{1}, classes)));
}

}  // namespace detail

/// See has_softmax_cross_entropy.
/// @note dlogits may be logits.
template <network_element Element>
loss_sums softmax_cross_entropy_loss(cpu& device, index_t rows, index_t classes, const Element* logits,
                                     const std::int32_t* labels, double scale, Element* dlogits) {
  const floating_point_scope arithmetic{device.flush_denormals()};
  using real = detail::computed<Element>;
  const index_t grain = detail::softmax_grain(rows, classes);
  std::array<loss_sums, 64> partial{};
  device.parallel_for(rows, grain, [&](index_t begin, index_t end) {
    loss_sums sums{.labels = end - begin};
    for (index_t row = begin; row < end; ++row) {
      const Element* const x = logits + row * classes;
      const index_t label = labels[row];
      const real largest = detail::largest_of(classes, x);
      const real at_label = x[label];
      sums.correct += detail::is_first_largest(x, label, largest) ? 1 : 0;
      if (dlogits == nullptr || !detail::stores_exactly<Element>) {
        const real total = detail::exponentials<false>(classes, x, largest, dlogits);
        sums.loss += std::log(static_cast<double>(total)) - static_cast<double>(at_label - largest);
        if constexpr (!detail::stores_exactly<Element>) {
          if (dlogits != nullptr) {
            detail::store_probabilities(classes, x, largest, static_cast<real>(scale / static_cast<double>(total)),
                                        label, static_cast<real>(scale), dlogits + row * classes);
          }
        }
        continue;
      }
      Element* const d = dlogits + row * classes;
      const real total = detail::exponentials<true>(classes, x, largest, d);
      sums.loss += std::log(static_cast<double>(total)) - static_cast<double>(at_label - largest);
      detail::scale_row(classes, static_cast<real>(scale / static_cast<double>(total)), d);
      d[label] = static_cast<Element>(d[label] - static_cast<real>(scale));
    }
    partial[static_cast<std::size_t>(begin / grain)] = sums;
  });
  loss_sums result;
  for (const loss_sums& sums : partial) {
    result += sums;
  }
  return result;
}

namespace detail {

/// Adds up the losses of the pixels [first, first + count) of an example, and writes their gradients.
/// @param labels     of these pixels
/// @param total      sum of the class weights
/// @param factor     of the gradients
template <class Element>
[[nodiscard]] loss_sums cross_entropy_of_pixels(const pixel_cross_entropy<computed<Element>>& shape, index_t count,
                                                const Element* logits, index_t class_stride, index_t pixel_stride,
                                                const std::int32_t* labels, double total, double factor,
                                                Element* dlogits) {
  using packet = full_packet<Element>;
  using real = computed<Element>;
  using lanes = std::array<real, static_cast<std::size_t>(packet::lanes)>;
  const auto load = [&](index_t k) {
    const Element* const from = logits + k * class_stride;
    if (pixel_stride == 1 && count == packet::lanes) {
      return packet::load(from);
    }
    lanes values{};
    for (index_t lane = 0; lane < count; ++lane) {
      values[static_cast<std::size_t>(lane)] = static_cast<real>(from[lane * pixel_stride]);
    }
    return packet::load(values.data());
  };
  const auto weight_of = [&](index_t k) { return shape.class_weights == nullptr ? real{1} : shape.class_weights[k]; };
  typename packet::type largest{};
  for (index_t k = 0; k < shape.classes; ++k) {
    const auto next = load(k);
    largest = (k == 0) ? next : ((next > largest) ? next : largest);
  }
  typename packet::type sum{};
  typename packet::type weighted{};               // sum of class weight * (logit - largest)
  typename packet::type first = largest * 0 - 1;  // the first class with the largest logit; NaN stays NaN
  for (index_t k = 0; k < shape.classes; ++k) {
    const auto x = load(k);
    sum += exponential<packet>(x - largest);
    if (shape.label_smoothing > 0) {
      weighted += (x - largest) * weight_of(k);
    }
    const auto here = largest * 0 + static_cast<real>(k);
    first = (x == largest) ? ((first < 0) ? here : first) : first;
  }
  loss_sums sums;
  lanes of_label{};  // factor of the loss of a lane's label
  lanes of_all{};    // factor of the losses of all classes
  std::array<index_t, static_cast<std::size_t>(packet::lanes)> label_of{};
  for (index_t lane = 0; lane < packet::lanes; ++lane) {
    const auto i = static_cast<std::size_t>(lane);
    label_of[i] = -1;
    if (lane >= count || (shape.ignores && labels[lane] == shape.ignored_label)) {
      continue;
    }
    const index_t label = labels[lane];
    const double own = (1 - shape.label_smoothing) * static_cast<double>(weight_of(label));
    const double all = shape.label_smoothing / static_cast<double>(shape.classes);
    const double log_sum = std::log(static_cast<double>(sum[lane]));
    const double at_label = static_cast<double>(static_cast<real>(logits[label * class_stride + lane * pixel_stride]));
    sums.loss += own * (log_sum - (at_label - static_cast<double>(largest[lane])));
    if (all > 0) {
      sums.loss += all * (total * log_sum - static_cast<double>(weighted[lane]));
    }
    sums.correct += static_cast<double>(first[lane]) == static_cast<double>(label) ? 1 : 0;
    ++sums.labels;
    label_of[i] = label;
    of_label[i] = static_cast<real>(factor * own);
    of_all[i] = static_cast<real>(factor * all);
  }
  if (dlogits == nullptr) {
    return sums;
  }
  const auto label_factor = packet::load(of_label.data());
  const auto all_factor = packet::load(of_all.data());
  const auto probability_factor = (label_factor + all_factor * static_cast<real>(total)) / sum;
  for (index_t k = 0; k < shape.classes; ++k) {
    auto value = exponential<packet>(load(k) - largest) * probability_factor - all_factor * weight_of(k);
    for (index_t lane = 0; lane < count; ++lane) {
      if (label_of[static_cast<std::size_t>(lane)] < 0) {
        value[lane] = 0;  // also where the logits are not finite
      } else if (label_of[static_cast<std::size_t>(lane)] == k) {
        value[lane] -= label_factor[lane];
      }
    }
    Element* const to = dlogits + k * class_stride;
    if (pixel_stride == 1) {
      packet::store(to, value, count);
    } else {
      for (index_t lane = 0; lane < count; ++lane) {
        to[lane * pixel_stride] = static_cast<Element>(value[lane]);
      }
    }
  }
  return sums;
}

}  // namespace detail

/// See has_pixel_cross_entropy.
/// @note dlogits may be logits.
template <network_element Element>
loss_sums pixel_cross_entropy_loss(cpu& device, const pixel_cross_entropy<detail::computed<Element>>& shape,
                                   const Element* logits, const std::int32_t* labels, double scale, Element* dlogits) {
  const floating_point_scope arithmetic{device.flush_denormals()};
  constexpr index_t width = detail::full_packet<Element>::lanes;
  const index_t blocks = (shape.pixels + width - 1) / width;  // of an example
  const index_t class_stride = shape.channels_last ? 1 : shape.pixels;
  const index_t pixel_stride = shape.channels_last ? shape.classes : 1;
  double total = static_cast<double>(shape.classes);
  if (shape.class_weights != nullptr) {
    total = 0;
    for (index_t k = 0; k < shape.classes; ++k) {
      total += static_cast<double>(shape.class_weights[k]);
    }
  }
  const index_t grain = detail::softmax_grain(shape.examples * blocks, shape.classes * width);
  std::array<loss_sums, 64> partial{};
  device.parallel_for(shape.examples * blocks, grain, [&](index_t begin, index_t end) {
    loss_sums sums;
    for (index_t at = begin; at < end; ++at) {
      const index_t example = at / blocks;
      const index_t first = at % blocks * width;
      const index_t count = std::min(width, shape.pixels - first);
      const std::int32_t* const own_labels = labels + example * shape.pixels;
      const double weight =
          (shape.example_weights == nullptr ? 1.0 : static_cast<double>(shape.example_weights[example])) /
          static_cast<double>(shape.pixels);
      const index_t offset = example * shape.pixels * shape.classes + first * pixel_stride;
      const loss_sums part =
          detail::cross_entropy_of_pixels(shape, count, logits + offset, class_stride, pixel_stride, own_labels + first,
                                          total, scale * weight, dlogits == nullptr ? nullptr : dlogits + offset);
      sums += {.loss = weight * part.loss, .correct = part.correct, .labels = part.labels};
    }
    partial[static_cast<std::size_t>(begin / grain)] = sums;
  });
  loss_sums result;
  for (const loss_sums& sums : partial) {
    result += sums;
  }
  return result;
}

/// See has_softmax.
/// @note probabilities may be logits.
template <network_element Element>
void softmax(cpu& device, index_t rows, index_t classes, const Element* logits, Element* probabilities) {
  using real = detail::computed<Element>;
  device.parallel_for(rows, detail::softmax_grain(rows, classes), [=](index_t begin, index_t end) {
    for (index_t row = begin; row < end; ++row) {
      const Element* const x = logits + row * classes;
      Element* const y = probabilities + row * classes;
      const real largest = detail::largest_of(classes, x);
      if constexpr (detail::stores_exactly<Element>) {
        const real total = detail::exponentials<true>(classes, x, largest, y);
        detail::scale_row(classes, real{1} / total, y);
      } else {
        const real total = detail::exponentials<false>(classes, x, largest, y);
        detail::store_probabilities(classes, x, largest, real{1} / total, index_t{-1}, real{0}, y);
      }
    }
  });
}

}  // namespace gradus::kernels
