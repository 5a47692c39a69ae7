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
  using real = detail::computed<Element>;
  const index_t grain = detail::softmax_grain(rows, classes);
  std::array<loss_sums, 64> partial{};
  device.parallel_for(rows, grain, [&](index_t begin, index_t end) {
    loss_sums sums;
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
