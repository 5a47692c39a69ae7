// SPDX-License-Identifier: BSL-1.0
//
// Softmax and softmax cross-entropy on the CPU.
// Module: kernels. Depends on: tensor.
#pragma once

#include <algorithm>  // std::max, std::min
#include <array>      // std::array
#include <cmath>      // std::exp, std::log
#include <cstddef>    // std::size_t
#include <cstdint>    // std::int32_t

#include "gradus/core/element.hpp"     // real_element
#include "gradus/core/index.hpp"       // index_t
#include "gradus/device/cpu.hpp"       // cpu
#include "gradus/kernels/softmax.hpp"  // loss_sums

namespace gradus::kernels {

namespace detail {

/// Rows of one task: some 4096 elements, and at most 64 tasks where their results are summed.
[[nodiscard]] constexpr index_t softmax_grain(index_t rows, index_t classes) noexcept {
  return std::max((rows + 63) / 64, std::max(index_t{1}, 4096 / std::max(index_t{1}, classes)));
}

/// The first largest entry of a row; a NaN counts as largest.
template <class Element>
[[nodiscard]] index_t largest_entry(const Element* row, index_t classes) noexcept {
  index_t best = 0;
  for (index_t i = 1; i < classes; ++i) {
    if (row[i] > row[best] || (row[i] != row[i] && row[best] == row[best])) {
      best = i;
    }
  }
  return best;
}

}  // namespace detail

/// @note dlogits may be logits.
template <real_element Element>
loss_sums softmax_cross_entropy_loss(cpu& device, index_t rows, index_t classes, const Element* logits,
                                     const std::int32_t* labels, double scale, Element* dlogits) {
  const index_t grain = detail::softmax_grain(rows, classes);
  std::array<loss_sums, 64> partial{};
  device.parallel_for(rows, grain, [&](index_t begin, index_t end) {
    loss_sums sums;
    for (index_t row = begin; row < end; ++row) {
      const Element* const x = logits + row * classes;
      const index_t label = labels[row];
      const index_t best = detail::largest_entry(x, classes);
      const Element largest = x[best];
      const Element at_label = x[label];
      Element total = 0;
      for (index_t i = 0; i < classes; ++i) {
        const Element e = std::exp(x[i] - largest);
        total += e;
        if (dlogits != nullptr) {
          dlogits[row * classes + i] = e;
        }
      }
      sums.loss += std::log(static_cast<double>(total)) - static_cast<double>(at_label - largest);
      sums.correct += best == label ? 1 : 0;
      if (dlogits != nullptr) {
        const auto factor = static_cast<Element>(scale / static_cast<double>(total));
        Element* const d = dlogits + row * classes;
        for (index_t i = 0; i < classes; ++i) {
          d[i] *= factor;
        }
        d[label] -= static_cast<Element>(scale);
      }
    }
    partial[static_cast<std::size_t>(begin / grain)] = sums;
  });
  loss_sums result;
  for (const loss_sums& sums : partial) {
    result.loss += sums.loss;
    result.correct += sums.correct;
  }
  return result;
}

/// @note probabilities may be logits.
template <real_element Element>
void softmax(cpu& device, index_t rows, index_t classes, const Element* logits, Element* probabilities) {
  device.parallel_for(rows, detail::softmax_grain(rows, classes), [=](index_t begin, index_t end) {
    for (index_t row = begin; row < end; ++row) {
      const Element* const x = logits + row * classes;
      Element* const y = probabilities + row * classes;
      const Element largest = x[detail::largest_entry(x, classes)];
      Element total = 0;
      for (index_t i = 0; i < classes; ++i) {
        y[i] = std::exp(x[i] - largest);
        total += y[i];
      }
      for (index_t i = 0; i < classes; ++i) {
        y[i] /= total;
      }
    }
  });
}

}  // namespace gradus::kernels
