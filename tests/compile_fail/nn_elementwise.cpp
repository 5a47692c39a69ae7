// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR(no_arguments): nn::elementwise takes a function of one to eight arguments of type auto
// EXPECT_ERROR(numbers): nn::elementwise takes a function of one to eight arguments of type auto
// EXPECT_ERROR(parameters_only): the function of nn::elementwise has too few arguments
// EXPECT_ERROR(device): the device runs no formulas: overload formula_forward, formula_backward
#include "gradus/device/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/layers/elementwise.hpp"

namespace nn = gradus::nn;

class other_device {
 public:
  static constexpr std::string_view name = "other";
  void* allocate(std::size_t bytes);
  void deallocate(void* memory, std::size_t bytes) noexcept;
  void copy(void* to, const void* from, std::size_t bytes);
  void copy_from_host(void* to, const void* from, std::size_t bytes);
  void copy_to_host(void* to, const void* from, std::size_t bytes);
  void fill_zero(void* memory, std::size_t bytes);
  void synchronize();
};

void check() {
#if defined(GRADUS_TEST_CASE_NO_ARGUMENTS)
  nn::elementwise([] { return 1.0; });
#elif defined(GRADUS_TEST_CASE_NUMBERS)
  nn::elementwise([](double x, double) { return x; });
  nn::elementwise([](const char* x) { return x; });
#elif defined(GRADUS_TEST_CASE_PARAMETERS_ONLY)
  nn::elementwise([](auto slope) { return slope; }, {nn::per_channel("slope", nn::ones())});
#elif defined(GRADUS_TEST_CASE_DEVICE)
  const auto swish = nn::elementwise([](auto x) { return x * sigmoid(x); });
  decltype(swish)::layer<float, gradus::nchw, other_device> layer{swish};
#else
  const auto swish = nn::elementwise([](auto x) { return x * sigmoid(x); });
  decltype(swish)::layer<float, gradus::nchw, gradus::cpu> layer{swish};
  (void)nn::elementwise([](auto x, auto slope) { return slope * x; }, {nn::per_channel("slope", nn::ones())});
#endif
}
