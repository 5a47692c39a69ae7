// SPDX-License-Identifier: BSL-1.0
//
// A loss of a program's own, by expressions: half the sum of the squares of the scores.
#pragma once

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
  using base = gradus::nn::loss_function<Element, Layout, Device>;

 public:
  explicit loss(const half_squares& /*options*/) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "half_squares"; }

  void infer(const gradus::nn::value_shape& /*scores*/) override {}

  gradus::kernels::loss_sums compute(const gradus::nn::image_batch<const Element, Device>& scores,
                                     const gradus::nn::targets<Element, Device>& /*targets*/, double scale,
                                     const gradus::nn::image_batch<Element, Device>& gradient) override {
    const auto z = base::view(scores);
    if (gradient.data() != nullptr) {
      base::view(gradient).assign(static_cast<Element>(scale) * z);
    }
    return {.loss = 0.5 * static_cast<double>(gradus::scalar_of(gradus::sum(z * z)))};
  }
};

}  // namespace gradus_test
