// SPDX-License-Identifier: BSL-1.0
//
// A loss of a program's own, by expressions: half the sum of the squares of the scores.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "gradus/nn/loss.hpp"
#include "gradus/tensor/expressions.hpp"

namespace gradus_test {

struct half_squares {
  template <class Element, class Layout, class Device>
  class loss;
};

template <class Element, class Layout, class Device>
class half_squares::loss final : public gradus::nn::loss_function<Element, Layout, Device> {
 public:
  explicit loss(const half_squares& /*options*/) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "half_squares"; }

  void infer(const gradus::nn::value_shape& /*scores*/) override {}

  gradus::kernels::loss_sums compute(Device& device, gradus::image_view<const Element, Layout, Device> scores,
                                     std::span<const std::int32_t> /*labels*/, double scale,
                                     Element* gradient) override {
    if (gradient != nullptr) {
      const gradus::image_view<Element, Layout, Device> slopes{device, gradient, scores.extents()};
      slopes.assign(static_cast<Element>(scale) * scores);
    }
    return {.loss = 0.5 * static_cast<double>(gradus::scalar_of(gradus::sum(scores * scores)))};
  }
};

}  // namespace gradus_test
