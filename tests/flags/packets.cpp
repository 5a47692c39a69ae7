// SPDX-License-Identifier: BSL-1.0
//
// Every operation that expressions compute in packets, of floats and doubles. What the compiler thinks of packets
// depends on the instruction set, and on who includes Eigen first.
#ifdef EIGEN_FIRST
#include <Eigen/Core>
#endif
#include <gradus/tensor/activations.hpp>
#include <gradus/tensor/expressions.hpp>

namespace {

template <class Element>
using matrix = gradus::tensor<Element, 2>;

template <class Element>
void compute(matrix<Element>& y, const matrix<Element>& a, const matrix<Element>& b) {
  y = exp(a);
  y = minimum(a, tanh(b)) + maximum(sigmoid(a), b) - clamp(erf(a), -1, 1) * softplus(b) / (1 + relu(a));
  y = log(where(a == b || (a != b && !(a < b)), square(a), abs(b) + sqrt(pow(a, 3))));
  y = a * (sum(exp(a)) + max(b));
}

}  // namespace

int main() {
  gradus::cpu device;
  matrix<float> a{device, {4, 4}};
  const matrix<float> b{device, {4, 4}};
  compute(a, a, b);
#ifndef EIGEN_FIRST  // Eigen's products have warnings of their own
  a = matmul(a, b);
#endif
  matrix<double> c{device, {4, 4}};
  const matrix<double> d{device, {4, 4}};
  compute(c, c, d);
  return 0;
}
