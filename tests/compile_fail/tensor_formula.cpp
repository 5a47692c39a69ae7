// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR(comparison_as_number): a comparison is not differentiable and not a number in a formula: write where
// EXPECT_ERROR(comparison_as_result): the function returns a comparison, which is not differentiable
// EXPECT_ERROR(branch): a function that is differentiated has no branches: write where(condition, yes, no)
// EXPECT_ERROR(reduction_inside): sum and mean of a function that is differentiated end a loss
// EXPECT_ERROR(reduction): an element-wise function has no reduction: sum and mean end a loss
// EXPECT_ERROR(tensor): pass a tensor as another input of the layer, or as a parameter
// EXPECT_ERROR(no_formula): the function returns no formula of its arguments
// EXPECT_ERROR(conversion): this function cannot be part of a formula
// EXPECT_ERROR(logic_of_numbers): in a formula combine conditions: write comparisons
// EXPECT_ERROR(loss_without_reduction): a loss ends with a mean or sum over all elements
// EXPECT_ERROR(loss_of_scores_only): a loss is a function of two arguments, the scores and the targets
#include "gradus/tensor/formula.hpp"

void check([[maybe_unused]] const gradus::tensor<float, 1>& a) {
#if defined(GRADUS_TEST_CASE_COMPARISON_AS_NUMBER)
  (void)gradus::formula_of<1>([](auto x) { return (x > 0) * x; });
#elif defined(GRADUS_TEST_CASE_COMPARISON_AS_RESULT)
  (void)gradus::formula_of<1>([](auto x) { return x > 0; });
#elif defined(GRADUS_TEST_CASE_BRANCH)
  (void)gradus::formula_of<1>([](auto x) {
    if (x > 0) {
      return 2 * x;
    }
    return 3 * x;
  });
#elif defined(GRADUS_TEST_CASE_REDUCTION_INSIDE)
  (void)gradus::formula_of<1>([](auto x) { return x - mean(x); });
#elif defined(GRADUS_TEST_CASE_REDUCTION)
  (void)gradus::formula_of<1>([](auto x) { return sum(x); });
#elif defined(GRADUS_TEST_CASE_TENSOR)
  (void)gradus::formula_of<1>([&a](auto x) { return x * a; });
#elif defined(GRADUS_TEST_CASE_NO_FORMULA)
  (void)gradus::formula_of<1>([](auto) { return 1.0; });
#elif defined(GRADUS_TEST_CASE_CONVERSION)
  (void)gradus::formula_of<1>([](auto x) { return gradus::cast<float>(x); });
#elif defined(GRADUS_TEST_CASE_LOGIC_OF_NUMBERS)
  (void)gradus::formula_of<1>([](auto x) { return where(x && x > 0, x, 0); });
#elif defined(GRADUS_TEST_CASE_LOSS_WITHOUT_REDUCTION)
  (void)gradus::loss_formula_of([](auto y, auto t) { return square(y - t); });
#elif defined(GRADUS_TEST_CASE_LOSS_OF_SCORES_ONLY)
  (void)gradus::loss_formula_of([](auto y) { return mean(square(y)); });
#else
  (void)gradus::formula_of<1>([](auto x) { return where(x > 0 && x < 3, x, -x); });
  (void)gradus::loss_formula_of([](auto y, auto t) { return mean(square(y - t)); });
#endif
}
