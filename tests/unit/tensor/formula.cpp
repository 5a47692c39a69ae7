// SPDX-License-Identifier: BSL-1.0
//
// Formulas: their values and derivatives, what their programs read and share, and losses.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradus/core/random.hpp"
#include "gradus/kernels/cpu/formula.hpp"
#include "gradus/tensor/expressions.hpp"
#include "gradus/tensor/formula.hpp"

using gradus::formula_of;
using gradus::index_t;

namespace {

/// The value of a formula and its derivatives, for an adjoint of 1.
template <class Node, int Inputs>
struct point {
  double value = 0;
  std::array<double, static_cast<std::size_t>(Inputs)> gradients{};

  point(const gradus::formula<Node, Inputs>& function, const std::array<double, static_cast<std::size_t>(Inputs)>& at) {
    function.template value_of_elements<double>()([&](auto k) { return at[static_cast<std::size_t>(k())]; },
                                                  [&](auto, double result) { value = result; });
    function.template gradient_of_elements<double>()(
        [&](auto k) {
          constexpr int number = decltype(k)::value;
          if constexpr (number < Inputs) {
            return at[static_cast<std::size_t>(number)];
          } else {
            return number == Inputs ? 1.0 : value;
          }
        },
        [&](auto r, double result) { gradients[static_cast<std::size_t>(r())] = result; });
  }
};

/// The number of steps that compute something, in the program of the derivatives.
template <class Evaluator>
int operations(const Evaluator&) {
  return Evaluator::operation_count;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(formulas)

BOOST_AUTO_TEST_CASE(values_and_derivatives_of_several_variables) {
  const auto f = formula_of<3>([](auto a, auto b, auto c) { return a * sigmoid(b) + c / a; });
  const double a = 0.7;
  const double b = -0.3;
  const double c = 1.9;
  const double s = 1 / (1 + std::exp(-b));
  const point<std::remove_cvref_t<decltype(f)>::node_type, 3> got{f, {a, b, c}};
  BOOST_TEST(got.value == a * s + c / a, boost::test_tools::tolerance(1e-14));
  BOOST_TEST(got.gradients[0] == s - c / (a * a), boost::test_tools::tolerance(1e-14));
  BOOST_TEST(got.gradients[1] == a * s * (1 - s), boost::test_tools::tolerance(1e-14));
  BOOST_TEST(got.gradients[2] == 1 / a, boost::test_tools::tolerance(1e-14));
}

BOOST_AUTO_TEST_CASE(programs_read_what_they_need) {
  const auto of_sigmoid = formula_of<1>([](auto x) { return sigmoid(x); });
  static_assert(!of_sigmoid.gradient_reads_inputs && of_sigmoid.gradient_reads_value);
  const auto of_tanh = formula_of<1>([](auto x) { return 2 * x; });
  static_assert(!of_tanh.gradient_reads_inputs && !of_tanh.gradient_reads_value);
  const auto of_swish = formula_of<1>([](auto x) { return x * sigmoid(x); });
  static_assert(of_swish.gradient_reads_inputs && !of_swish.gradient_reads_value);
  const auto of_exp = formula_of<2>([](auto a, auto b) { return exp(a + 3 * b); });
  static_assert(!of_exp.gradient_reads_inputs && of_exp.gradient_reads_value);
}

BOOST_AUTO_TEST_CASE(equal_parts_are_computed_once) {
  // exp once, though it is written three times: x, exp(x), sum, e / sum; derivatives by the quotient rule.
  const auto thrice = formula_of<1>([](auto x) { return exp(x) * exp(x) + exp(x); });
  const auto once = formula_of<1>([](auto x) {
    const auto e = exp(x);
    return e * e + e;
  });
  BOOST_TEST(operations(thrice.value_of_elements<float>()) == 3);
  BOOST_TEST(operations(once.value_of_elements<float>()) == 3);
  // sigmoid and the product by x are shared with the forward part: s; g s (from x); g x, times s, 1 - s, product, sum.
  const auto swish = formula_of<1>([](auto x) { return x * sigmoid(x); });
  BOOST_TEST(operations(swish.gradient_of_elements<float>()) == 7);
}

BOOST_AUTO_TEST_CASE(an_input_that_is_not_used_has_no_gradient) {
  const auto f = formula_of<2>([](auto a, auto b) { return where(b > 0, a, 2 * a); });
  const point<std::remove_cvref_t<decltype(f)>::node_type, 2> got{f, {3.0, -1.0}};
  BOOST_TEST(got.value == 6.0);
  BOOST_TEST(got.gradients[0] == 2.0);
  BOOST_TEST(got.gradients[1] == 0.0);
  const auto identity = formula_of<1>([](auto x) { return x; });
  const point<std::remove_cvref_t<decltype(identity)>::node_type, 1> same{identity, {3.0}};
  BOOST_TEST(same.value == 3.0);
  BOOST_TEST(same.gradients[0] == 1.0);
}

BOOST_AUTO_TEST_CASE(numbers_that_are_captured_belong_to_the_formula) {
  const auto scaled = [](double by, double power) {
    return formula_of<1>([by, power](auto x) { return by * pow(x, power); });
  };
  const auto twice = scaled(2, 3);
  const auto third = scaled(3, 0.5);
  static_assert(std::is_same_v<decltype(twice), decltype(third)>);
  using type = point<std::remove_cvref_t<decltype(twice)>::node_type, 1>;
  BOOST_TEST((type{twice, {2.0}}).value == 16.0);
  BOOST_TEST((type{twice, {2.0}}).gradients[0] == 24.0);
  BOOST_TEST((type{third, {4.0}}).value == 6.0);
  BOOST_TEST((type{third, {4.0}}).gradients[0] == 0.75);
}

BOOST_AUTO_TEST_CASE(kinks_and_ties_have_the_derivatives_of_the_functions_of_tensors) {
  const auto at = [](const auto& f, double x) {
    return point<typename std::remove_cvref_t<decltype(f)>::node_type, 1>{f, {x}}.gradients[0];
  };
  BOOST_TEST(at(formula_of<1>([](auto x) { return relu(x); }), 0) == 0.0);
  BOOST_TEST(at(formula_of<1>([](auto x) { return max(x, 0); }), 0) == 0.5);
  BOOST_TEST(at(formula_of<1>([](auto x) { return min(0, x); }), 0) == 0.5);
  BOOST_TEST(at(formula_of<1>([](auto x) { return abs(x); }), 0) == 0.0);
  BOOST_TEST(at(formula_of<1>([](auto x) { return clamp(x, -1, 1); }), 1) == 1.0);
  BOOST_TEST(at(formula_of<1>([](auto x) { return where((x > 0 && !(x == 2)) || x < -3, x, -x); }), 2) == -1.0);
}

// ---- parameters

// In double: rounding to float would hide sums in another order.
BOOST_AUTO_TEST_CASE(gradients_of_parameters_are_the_same_bits_for_any_number_of_threads) {
  namespace kernels = gradus::kernels;
  const auto f = formula_of<3>([](auto x, auto slope, auto shift) { return where(x > 0, x, slope * x) + shift * x; });
  for (const auto& shape : {kernels::formula_shape{70, 5, 301}, {3000, 37, 1}, {1, 1, 5}, {2, 3, 4}}) {
    const auto count = static_cast<std::size_t>(shape.count());
    std::vector<double> x(count);
    std::vector<double> dy(count);
    const gradus::random_stream stream{2, "parameters"};
    for (std::size_t i = 0; i < count; ++i) {
      x[i] = stream.normal(i);
      dy[i] = stream.normal(i + count);
    }
    const std::vector<double> slope(static_cast<std::size_t>(shape.channels), 0.25);
    const double shift = 0.5;
    const auto run = [&](int threads) {
      gradus::cpu device{{.intra_op_threads = threads}};
      std::vector<double> dx(count);
      std::vector<double> gradient(slope.size() + 1);
      std::vector<std::byte> workspace(kernels::formula_workspace_bytes(device, shape, 2));
      kernels::formula_backward(
          device, shape, f, kernels::formula_arguments<double, 1, 2>{{x.data()}, {slope.data(), &shift}, {true, false}},
          dy.data(), static_cast<const double*>(nullptr),
          kernels::formula_gradients<double, 1, 2>{{dx.data()}, {false}, {gradient.data(), &gradient.back()}},
          workspace);
      gradient.insert(gradient.end(), dx.begin(), dx.end());
      return gradient;
    };
    const std::vector<double> one = run(1);
    BOOST_TEST((run(3) == one));
    std::vector<double> expected(slope.size() + 1);
    for (std::size_t i = 0; i < count; ++i) {
      const auto channel = i / static_cast<std::size_t>(shape.inner) % slope.size();
      const double term = x[i] * dy[i];
      expected[channel] += x[i] > 0 ? 0 : term;
      expected.back() += term;
    }
    for (std::size_t c = 0; c < expected.size(); ++c) {
      BOOST_TEST(std::abs(one[c] - expected[c]) < 1e-12 * (1 + std::abs(expected[c])));
    }
  }
}

// ---- losses

BOOST_AUTO_TEST_CASE(a_loss_is_a_sum_with_weights_and_its_gradient) {
  gradus::cpu device{{.intra_op_threads = 2}};
  for (const auto& [examples, per_example] : {std::pair<index_t, index_t>{1, 1}, {3, 7}, {5, 32}, {130, 411}}) {
    const auto count = static_cast<std::size_t>(examples * per_example);
    std::vector<float> y(count);
    std::vector<float> t(count);
    std::vector<float> gradient(count);
    const gradus::random_stream stream{1, "loss"};
    for (std::size_t i = 0; i < count; ++i) {
      y[i] = static_cast<float>(stream.normal(i));
      t[i] = static_cast<float>(stream.normal(i + count));
    }
    std::vector<float> weights(static_cast<std::size_t>(examples));
    for (std::size_t n = 0; n < weights.size(); ++n) {
      weights[n] = 0.25F * static_cast<float>(n % 5);
    }
    const double delta = 0.8;
    // The loss of Huber.
    const auto loss = gradus::loss_formula_of([delta](auto a, auto b) {
      const auto e = abs(a - b);
      return mean(where(e < delta, 0.5 * square(e), delta * (e - 0.5 * delta)));
    });
    static_assert(loss.is_mean);
    for (const bool weighted : {false, true}) {
      const double value = gradus::kernels::formula_loss(device, examples, per_example, loss, y.data(), t.data(),
                                                         weighted ? weights.data() : nullptr, 0.125, gradient.data())
                               .loss;
      double expected = 0;
      double worst = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const double weight =
            (weighted ? static_cast<double>(weights[i / static_cast<std::size_t>(per_example)]) : 1.0) /
            static_cast<double>(per_example);
        const double e = static_cast<double>(y[i]) - static_cast<double>(t[i]);
        const double size = std::abs(e);
        expected += weight * (size < delta ? 0.5 * e * e : delta * (size - 0.5 * delta));
        const double slope = 0.125 * weight * (size < delta ? e : (e < 0 ? -delta : delta));
        worst = std::max(worst, std::abs(slope - static_cast<double>(gradient[i])));
      }
      BOOST_TEST_CONTEXT(examples << " x " << per_example << (weighted ? ", weighted" : "")) {
        BOOST_TEST(value == expected, boost::test_tools::tolerance(1e-6));
        BOOST_TEST(worst < 1e-7);
        BOOST_TEST(value == gradus::kernels::formula_loss(device, examples, per_example, loss, y.data(), t.data(),
                                                          weighted ? weights.data() : nullptr, 0.125,
                                                          static_cast<float*>(nullptr))
                                .loss);
        gradus::cpu one{{.intra_op_threads = 1}};
        BOOST_TEST(value == gradus::kernels::formula_loss(one, examples, per_example, loss, y.data(), t.data(),
                                                          weighted ? weights.data() : nullptr, 0.125, gradient.data())
                                .loss);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
