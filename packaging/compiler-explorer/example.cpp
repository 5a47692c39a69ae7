// Compiler with C++20, libraries eigen (3.4) and gradus; options -std=c++20 -O2 -pthread
#include <gradus/device/cpu.hpp>
#include <gradus/tensor/expressions.hpp>
#include <gradus/tensor/factories.hpp>
#include <gradus/tensor/print.hpp>
#include <iostream>

int main() {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto x = gradus::linspace<float>(device, {.start = -2, .stop = 2, .count = 9});
  const gradus::tensor<float, 1> y = x * x + 1.0F;  // one loop, no temporary
  std::cout << y << '\n';
}
