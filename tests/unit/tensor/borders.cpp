// SPDX-License-Identifier: BSL-1.0
//
// Functions and their derivatives at the borders of their domains, in packets and in the elements after them.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "gradus/tensor/expressions.hpp"

using gradus::index_t;

BOOST_AUTO_TEST_SUITE(borders)

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
const double not_a_number = std::nan("");

template <class Element>
bool equal(Element value, double expected) {
  const auto rounded = static_cast<Element>(expected);
  return value != value ? rounded != rounded
                        : value == rounded || std::abs(value - rounded) <=
                                                  4 * std::numeric_limits<Element>::epsilon() * std::abs(rounded) +
                                                      2 * std::numeric_limits<Element>::denorm_min();
}

template <class Element>
struct fixture {
  gradus::cpu device{{.intra_op_threads = 1}};

  gradus::tensor<Element, 1> filled(index_t count, double value) {
    gradus::tensor<Element, 1> x{device, {count}};
    x.view().assign(static_cast<Element>(value));
    return x;
  }

  /// The value and the derivative of a function at x, at every element of vectors of several lengths.
  template <class Function>
  void at(const char* what, const Function& function, double at_x, double value, double derivative) {
    for (const index_t count : {1, 3, 4, 7, 16, 19}) {
      const auto x = filled(count, at_x);
      const gradus::tensor<Element, 1> y = function(x);
      const auto [by_x] = gradients(sum(function(x)), x);
      BOOST_TEST_CONTEXT(what << " at " << at_x << ", " << count << " elements") {
        for (index_t i = 0; i < count; ++i) {
          BOOST_TEST(equal(y(i), value), y(i));
          BOOST_TEST(equal(by_x(i), derivative), by_x(i));
        }
      }
    }
  }
};

using elements = std::tuple<float, double>;

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(of_functions, Element, elements) {
  fixture<Element> f;
  const auto exp_of = [](const auto& x) { return exp(x); };
  const double most = static_cast<double>(std::numeric_limits<Element>::max());
  const double least = static_cast<double>(std::numeric_limits<Element>::min());
  f.at("exp", exp_of, -inf, 0, 0);
  f.at("exp", exp_of, 1000, inf, inf);
  f.at("exp", exp_of, inf, inf, inf);
  f.at("exp", exp_of, not_a_number, not_a_number, not_a_number);
  for (const double x : {88.5, 88.7, -87.5, -88.5, -100.0, 709.5, -708.5, -740.0}) {
    const auto rounded = static_cast<double>(static_cast<Element>(x));
    f.at("exp", exp_of, x, std::exp(rounded), std::exp(rounded));
  }
  const auto log_of = [](const auto& x) { return log(x); };
  f.at("log", log_of, 0, -inf, inf);
  f.at("log", log_of, -2, not_a_number, -0.5);
  f.at("log", log_of, least / 64, std::log(least / 64), 64 / least);
  f.at("log", log_of, inf, inf, 0);
  const auto sqrt_of = [](const auto& x) { return sqrt(x); };
  f.at("sqrt", sqrt_of, 0, 0, inf);
  f.at("sqrt", sqrt_of, -1, not_a_number, not_a_number);
  f.at("sqrt", sqrt_of, inf, inf, 0);
  f.at("sqrt", sqrt_of, least / 64, std::sqrt(least) / 8, 4 / std::sqrt(least));
  const auto tanh_of = [](const auto& x) { return tanh(x); };
  f.at("tanh", tanh_of, 0, 0, 1);
  f.at("tanh", tanh_of, 50, 1, 0);
  f.at("tanh", tanh_of, -inf, -1, 0);
  const auto sigmoid_of = [](const auto& x) { return sigmoid(x); };
  f.at("sigmoid", sigmoid_of, 0, 0.5, 0.25);
  f.at("sigmoid", sigmoid_of, inf, 1, 0);
  f.at("sigmoid", sigmoid_of, -most, 0, 0);
  const auto erf_of = [](const auto& x) { return erf(x); };
  f.at("erf", erf_of, -inf, -1, 0);
  f.at("erf", erf_of, 0, 0, 1.1283791670955126);
  f.at("erf", erf_of, most, 1, 0);
  f.at("erf", erf_of, not_a_number, not_a_number, not_a_number);
  const auto softplus_of = [](const auto& x) { return softplus(x); };
  f.at("softplus", softplus_of, -inf, 0, 0);
  f.at("softplus", softplus_of, 0, std::log(2.0), 0.5);
  f.at("softplus", softplus_of, most, most, 1);
  f.at("softplus", softplus_of, inf, inf, 1);
  f.at("softplus", softplus_of, not_a_number, not_a_number, not_a_number);
  const auto relu_of = [](const auto& x) { return relu(x); };
  f.at("relu", relu_of, 0, 0, 0);
  f.at("relu", relu_of, inf, inf, 1);
  f.at("relu", relu_of, -inf, 0, 0);
  f.at("relu", relu_of, not_a_number, not_a_number, 0);
  const auto abs_of = [](const auto& x) { return abs(x); };
  f.at("abs", abs_of, 0, 0, 0);
  f.at("abs", abs_of, -inf, inf, -1);
  f.at(
      "1 / -x", [](const auto& x) { return 1 / -x; }, 0, -inf, inf);
  f.at(
      "3 / x", [](const auto& x) { return 3 / x; }, 0, inf, -inf);
  f.at(
      "x / 0", [](const auto& x) { return x / 0; }, 2, inf, inf);
  f.at(
      "x / 0", [](const auto& x) { return x / 0; }, 0, not_a_number, inf);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(of_powers, Element, elements) {
  fixture<Element> f;
  for (const auto& [exponent, x, value, derivative] : {std::tuple{0.0, 0.0, 1.0, 0.0},
                                                       {0.0, not_a_number, 1.0, 0.0},
                                                       {0.0, inf, 1.0, 0.0},
                                                       {0.0, -3.0, 1.0, 0.0},
                                                       {1.0, 0.0, 0.0, 1.0},
                                                       {1.0, -2.0, -2.0, 1.0},
                                                       {2.0, 0.0, 0.0, 0.0},
                                                       {2.0, -3.0, 9.0, -6.0},
                                                       {3.0, -2.0, -8.0, 12.0},
                                                       {-1.0, 0.0, inf, -inf},
                                                       {-2.0, -2.0, 0.25, 0.25},
                                                       {0.5, 0.0, 0.0, inf},
                                                       {-0.5, 0.0, inf, -inf},
                                                       {1.5, 0.0, 0.0, 0.0},
                                                       {0.5, -1.0, not_a_number, not_a_number},
                                                       {1.5, -1.0, not_a_number, not_a_number}}) {
    f.at(
        "pow", [e = exponent](const auto& a) { return pow(a, e); }, x, value, derivative);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(of_choices, Element, elements) {
  fixture<Element> f;
  const auto clamped = [](const auto& x) { return clamp(x, -1, 2); };
  f.at("clamp", clamped, -1, -1, 1);
  f.at("clamp", clamped, 2, 2, 1);
  f.at("clamp", clamped, 0, 0, 1);
  f.at("clamp", clamped, 2.5, 2, 0);
  f.at("clamp", clamped, not_a_number, not_a_number, 1);
  f.at(
      "clamp, low above high", [](const auto& x) { return clamp(x, 2, -1); }, 0, -1, 0);
  f.at(
      "maximum", [](const auto& x) { return maximum(x, 0); }, 0, 0, 0.5);
  f.at(
      "minimum", [](const auto& x) { return minimum(1, x); }, 1, 1, 0.5);
  f.at(
      "maximum", [](const auto& x) { return maximum(0, x); }, not_a_number, not_a_number, 1);
  f.at(
      "minimum", [](const auto& x) { return minimum(x, 0); }, not_a_number, not_a_number, 1);
  f.at(
      "maximum of two", [](const auto& x) { return maximum(x, x); }, 3, 3, 1);
  f.at(
      "where", [](const auto& x) { return where(x > 0, sqrt(x), 0); }, 0, 0, not_a_number);  // 0 times infinity
  f.at(
      "where, guarded", [](const auto& x) { return where(x > 0, sqrt(where(x > 0, x, 1)), 0); }, 0, 0, 0);
  f.at(
      "where", [](const auto& x) { return where(x == x, x, x * not_a_number); }, 2, 2, not_a_number);
  f.at(
      "where, constant branch", [](const auto& x) { return where(x == x, x, not_a_number); }, 2, 2, 1);

  // Bounds that are tensors: one of the three operands has the adjoint.
  const auto x = f.filled(5, 2);
  const auto low = f.filled(5, 3);
  const auto high = f.filled(5, 4);
  const auto [by_x, by_low, by_high] = gradients(sum(clamp(x, low, high)), x, low, high);
  BOOST_TEST((by_x(4) == 0 && by_low(4) == 1 && by_high(4) == 0));
  const auto [of_x, of_low, of_high] = gradients(sum(clamp(x, high, low)), x, low, high);
  BOOST_TEST((of_x(4) == 0 && of_low(4) == 1 && of_high(4) == 0));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(of_reductions, Element, elements) {
  fixture<Element> f;
  for (const index_t count : {1, 2, 5, 16, 33}) {
    auto x = f.filled(count, 0);
    const auto [by_norm, by_norm_l1] =
        std::tuple{std::get<0>(gradients(norm_l2(x), x)), std::get<0>(gradients(norm_l1(x), x))};
    x(count - 1) = static_cast<Element>(not_a_number);
    const auto [by_max] = gradients(max(x), x);
    const auto [by_min] = gradients(min(x), x);
    x.view().assign(-inf);
    const auto [by_infinite] = gradients(max(x), x);
    for (index_t i = 0; i < count; ++i) {
      BOOST_TEST(by_norm(i) == 0);
      BOOST_TEST(by_norm_l1(i) == 0);
      BOOST_TEST(by_max(i) == (i == count - 1 ? 1 : 0));
      BOOST_TEST(by_min(i) == (i == count - 1 ? 1 : 0));
      BOOST_TEST(equal(by_infinite(i), 1.0 / static_cast<double>(count)));
    }
  }
}

// Equal operands give the same bits at every position, in every chunk of work and in place, so that equal extremes are
// found; what two derivatives compare is one value.
BOOST_AUTO_TEST_CASE_TEMPLATE(elements_do_not_depend_on_their_position, Element, elements) {
  gradus::cpu device{{.intra_op_threads = 3}};
  const auto functions = [](const auto& x) {
    return std::tuple{exp(x), log(x), tanh(x), sigmoid(x), sqrt(x), exp(x) * tanh(x) - log(x), erf(x), softplus(x)};
  };
  for (const index_t count : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 16'385, 16'387, 32'771}) {
    for (const double value : {0.3, 1.7, 2.9}) {
      gradus::tensor<Element, 1> x{device, {count}};
      x.view().assign(static_cast<Element>(value));
      std::apply(
          [&](const auto&... of_x) {
            const auto check = [&](const auto& expression) {
              const gradus::tensor<Element, 1> y = expression;
              bool same = true;
              for (index_t i = 1; i < count; ++i) {
                same = same && std::memcmp(&y.data()[i], y.data(), sizeof(Element)) == 0;
              }
              BOOST_TEST(same, count);
              BOOST_TEST(max(expression).value() == y(0));
              const auto [by_x] = gradients(max(expression) * 2, x);
              const auto [once] = gradients(sum(expression) * (2.0 / static_cast<double>(count)), x);
              bool shared = true;
              for (index_t i = 0; i < count; ++i) {
                shared = shared &&
                         std::abs(by_x(i) - once(i)) <= 8 * std::numeric_limits<Element>::epsilon() * std::abs(once(i));
              }
              BOOST_TEST(shared, count);
            };
            (check(of_x), ...);
          },
          functions(x));
      auto in_place = x;
      in_place = tanh(in_place);
      const gradus::tensor<Element, 1> apart = tanh(x);
      BOOST_TEST(std::memcmp(in_place.data(), apart.data(), static_cast<std::size_t>(count) * sizeof(Element)) == 0);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
