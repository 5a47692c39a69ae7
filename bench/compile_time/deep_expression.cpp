// SPDX-License-Identifier: BSL-1.0
//
// What expressions cost: ten of different shape, one of them of some hundred operations, one differentiated.
#include <gradus/tensor/expressions.hpp>
#include <gradus/tensor/tensor.hpp>

using gradus::tensor;

float evaluate(const tensor<float, 2>& a, const tensor<float, 2>& b, const tensor<float, 1>& c, tensor<float, 2>& out) {
  out = a + b;
  out = exp(a) * b - 2 * a;
  out = where(a > b, a, b) + per_row(c);
  out = clamp(sigmoid(a) + tanh(b), 0.F, 1.F);
  const auto x = a * b + a;
  const auto y = x * x - b;
  const auto z = y * x + y * a - exp(y);
  out = sqrt(abs(z * z + x * y - z / (1 + y * y)));
  out = a / per_row(sum<1>(exp(a)));
  const auto [gradient] = gradients(mean(square(a * b - 1)), a);
  out -= 0.1F * gradient;
  return sum(square(a - b)).value() + max(a).value();
}

int main() {}
