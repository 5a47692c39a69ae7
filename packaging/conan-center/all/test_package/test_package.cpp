#include <gradus/core/version.hpp>
#include <gradus/device/cpu.hpp>
#include <gradus/tensor/expressions.hpp>
#include <gradus/tensor/factories.hpp>
#include <iostream>

int main() {
  gradus::cpu device;
  const auto x = gradus::ones<float>(device, {2, 3});
  const gradus::tensor<float, 2> y = 2.0F * x + x;
  std::cout << "gradus " << gradus::version << ": 2 + 1 is " << y(1, 2) << '\n';
  return y(1, 2) == 3.0F ? 0 : 1;
}
