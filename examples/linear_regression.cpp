// SPDX-License-Identifier: BSL-1.0
//
// Fits y = 3 x + noise by gradient descent on the squared error.
#include <cmath>
#include <cstdio>

#include "gradus/gradus.hpp"

int main() {
  gradus::cpu device;
  gradus::tensor<float, 1> x{device, {100}};
  gradus::tensor<float, 1> y{device, {100}};
  gradus::tensor<float, 0> slope{device, {}};  // starts at 0
  const gradus::random_stream random{7};
  for (int i = 0; i < 100; ++i) {
    x(i) = 0.02F * static_cast<float>(i) - 1;
    y(i) = 3 * x(i) + 0.3F * static_cast<float>(random.normal(static_cast<unsigned>(i)));
  }
  for (int step = 0; step < 200; ++step) {
    const auto [gradient] = gradients(mean(square(slope * x - y)), slope);
    slope -= 0.1 * gradient;
  }
  std::printf("slope: %.2f\n", static_cast<double>(slope.value()));
  return gradus::close_output("linear_regression", std::abs(slope.value() - 3) < 0.2F ? 0 : 1);
}
