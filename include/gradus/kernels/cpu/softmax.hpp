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

/// Implements has_softmax_cross_entropy on the CPU.
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
    detail::on_target([&](auto target) {
      for (index_t row = begin; row < end; ++row) {
        const Element* const x = logits + row * classes;
        const index_t label = labels[row];
        const real at_label = x[label];
        const real largest = largest_of(target, classes, x);
        sums.correct += detail::is_first_largest(x, label, largest) ? 1 : 0;
        Element* const d = dlogits == nullptr ? nullptr : dlogits + row * classes;
        const real total = softmax_of_row(target, classes, x, largest, scale, label, d);
        sums.loss += std::log(static_cast<double>(total)) - static_cast<double>(at_label - largest);
      }
    });
    partial[static_cast<std::size_t>(begin / grain)] = sums;
  });
  loss_sums result;
  for (const loss_sums& sums : partial) {
    result += sums;
  }
  return result;
}

/// Implements has_pixel_cross_entropy on the CPU.
/// @note dlogits may be logits.
template <network_element Element>
loss_sums pixel_cross_entropy_loss(cpu& device, const pixel_cross_entropy<detail::computed<Element>>& shape,
                                   const Element* logits, const std::int32_t* labels, double scale, Element* dlogits) {
  const floating_point_scope arithmetic{device.flush_denormals()};
  constexpr index_t width = 64 / index_t{sizeof(detail::computed<Element>)};
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
      const index_t offset = example * shape.pixels * shape.classes;
      const detail::pixel_loss<Element> of{
          shape,      logits + offset, class_stride,   pixel_stride,
          own_labels, total,           scale * weight, dlogits == nullptr ? nullptr : dlogits + offset};
      loss_sums part;
      detail::on_target([&](auto target) { part = cross_entropy_of_pixels(target, first, count, of); });
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

/// Implements has_softmax on the CPU.
/// @note probabilities may be logits.
template <network_element Element>
void softmax(cpu& device, index_t rows, index_t classes, const Element* logits, Element* probabilities) {
  device.parallel_for(rows, detail::softmax_grain(rows, classes), [=](index_t begin, index_t end) {
    detail::on_target([=](auto target) {
      for (index_t row = begin; row < end; ++row) {
        const Element* const x = logits + row * classes;
        softmax_of_row(target, classes, x, largest_of(target, classes, x), 1.0, index_t{-1},
                       probabilities + row * classes);
      }
    });
  });
}

}  // namespace gradus::kernels
