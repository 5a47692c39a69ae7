// SPDX-License-Identifier: BSL-1.0
//
// Functions of tensors and formulas over the whole range of numbers against double (for double: long double).
#include <boost/test/unit_test.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include "gradus/kernels/cpu/formula.hpp"
#include "gradus/tensor/expressions.hpp"
#include "gradus/tensor/formula.hpp"
#include "instruction_sets.hpp"

using gradus::index_t;

namespace {

/// The distance in units in the last place of the right value; infinite where only one is NaN or infinite.
template <class Element, class Wide>
double units(Element got, Wide right) {
  const auto rounded = static_cast<Element>(right);
  if (std::isnan(rounded) || std::isinf(rounded)) {
    return got == rounded || (std::isnan(got) && std::isnan(rounded)) ? 0 : INFINITY;
  }
  if (std::isnan(got) || std::isinf(got)) {
    return INFINITY;
  }
  const Element size = std::max(std::abs(rounded), std::numeric_limits<Element>::min());
  const Element unit = std::nextafter(size, std::numeric_limits<Element>::infinity()) - size;
  return static_cast<double>(std::abs((static_cast<Wide>(got) - right) / static_cast<Wide>(unit)));
}

/// Numbers of all exponents and signs, numbers in [-10, 10], and those at borders.
template <class Element>
std::vector<Element> numbers() {
  using bits = std::conditional_t<sizeof(Element) == 4, std::uint32_t, std::uint64_t>;
  std::vector<Element> result;
  constexpr index_t count = 200'003;
  for (index_t i = 0; i < count; ++i) {
    result.push_back(std::bit_cast<Element>(
        static_cast<bits>(static_cast<bits>(i) * (std::numeric_limits<bits>::max() / static_cast<bits>(count)))));
    result.push_back(static_cast<Element>(-10.0 + 20.0 * static_cast<double>(i) / static_cast<double>(count)));
  }
  using limits = std::numeric_limits<Element>;
  for (const Element each : {Element{0}, -Element{0}, limits::infinity(), -limits::infinity(), limits::quiet_NaN(),
                             limits::denorm_min(), limits::min(), limits::max(), limits::lowest(), Element{0.9375},
                             Element{-0.9375}, Element{4}, Element{-4}, Element{88}, Element{-104}}) {
    result.push_back(each);
  }
  return result;
}

template <class Element>
struct sweep {
  using wide = std::conditional_t<sizeof(Element) == 4, double, long double>;
  gradus::cpu device{{.intra_op_threads = 2}};
  std::vector<Element> at = numbers<Element>();

  template <class Function, class Right>
  void check(const char* what, double most, const Function& function, const Right& right) {
    const gradus::tensor_view<const Element, 1, gradus::row_major, gradus::cpu> x{
        device, at.data(), {static_cast<index_t>(at.size())}};
    const gradus::tensor<Element, 1> y = function(x);
    compare(what, most, y.data(), right);
    const auto formula = gradus::formula_of<1>(function);
    for_each_instruction_set([&](gradus::kernels::instruction_set set) {
      std::vector<Element> of_formula(at.size());
      gradus::kernels::formula_forward(device, {1, 1, x.size()}, formula,
                                       gradus::kernels::formula_arguments<Element, 1, 0>{{at.data()}},
                                       of_formula.data());
      BOOST_TEST_CONTEXT("formula with " << gradus::kernels::name_of(set)) {
        compare(what, most, of_formula.data(), right);
      }
    });
  }

  template <class Right>
  void compare(const char* what, double most, const Element* y, const Right& right) {
    double worst = 0;
    Element worst_at{0};
    for (std::size_t i = 0; i < at.size(); ++i) {
      const double off = units<Element, wide>(y[i], right(static_cast<wide>(at[i])));
      if (off > worst) {
        worst = off;
        worst_at = at[i];
      }
    }
    BOOST_TEST(worst <= most,
               what << " of " << gradus::element_name<Element> << " is " << worst << " units off at " << worst_at);
    BOOST_TEST_MESSAGE(what << " of " << gradus::element_name<Element> << ": " << worst << " units at " << worst_at);
  }
};

using elements = std::tuple<float, double>;

}  // namespace

BOOST_AUTO_TEST_SUITE(special_functions)

BOOST_AUTO_TEST_CASE_TEMPLATE(values_are_close_to_the_right_ones, Element, elements) {
  sweep<Element> all;
  using wide = typename sweep<Element>::wide;
  all.check(
      "erf", 2.5, [](const auto& x) { return erf(x); }, [](wide x) { return std::erf(x); });
  all.check(  // with AVX-512, Eigen's exp alone is 4 units off
      "softplus", 5, [](const auto& x) { return softplus(x); },
      [](wide x) {
        return (x > 0 ? x : x == x ? 0 : x) + std::log1p(std::exp(x > 0 ? -x : x));
      });
  all.check(
      "exp", 4, [](const auto& x) { return exp(x); }, [](wide x) { return std::exp(x); });
  all.check(
      "log", 2, [](const auto& x) { return log(x); }, [](wide x) { return std::log(x); });
  all.check(
      "tanh", 7, [](const auto& x) { return tanh(x); }, [](wide x) { return std::tanh(x); });
  all.check(
      "relu", 0, [](const auto& x) { return relu(x); }, [](wide x) { return x > 0 || x != x ? x : wide{0}; });
  all.check(
      "min", 0, [](const auto& x) { return min(x, 1); }, [](wide x) { return x > 1 ? wide{1} : x; });
  all.check(
      "max", 0, [](const auto& x) { return max(-1, x); }, [](wide x) { return x < -1 ? wide{-1} : x; });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(derivatives_are_those_of_the_formulas, Element, elements) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::tensor<Element, 1> x{device, {61}};
  for (index_t i = 0; i < x.size(); ++i) {
    x(i) = static_cast<Element>(static_cast<double>(i - 30) / 6);
  }
  const auto [by_erf] = gradients(sum(erf(x)), x);
  const auto [by_softplus] = gradients(sum(softplus(x)), x);
  const auto [by_relu] = gradients(sum(relu(x) * 3), x);
  const double tolerance = 8 * static_cast<double>(std::numeric_limits<Element>::epsilon());
  for (index_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<double>(x(i));
    BOOST_TEST(std::abs(static_cast<double>(by_erf(i)) - 2 / std::sqrt(std::acos(-1.0)) * std::exp(-at * at)) <
               tolerance);
    BOOST_TEST(std::abs(static_cast<double>(by_softplus(i)) - 1 / (1 + std::exp(-at))) < tolerance);
    BOOST_TEST(by_relu(i) == (x(i) > 0 ? 3 : 0));
  }
}

BOOST_AUTO_TEST_SUITE_END()
