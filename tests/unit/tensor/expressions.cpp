// SPDX-License-Identifier: BSL-1.0
//
// Expressions as values: stored, returned, assigned to what they read, with wrong shapes.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/tensor/copy.hpp"
#include "gradus/tensor/expressions.hpp"

using gradus::index_t;
using matrix = gradus::tensor<float, 2>;

namespace {

struct fixture {
  gradus::cpu device{{.intra_op_threads = 1}};
  matrix a{device, {3, 5}};
  matrix b{device, {3, 5}};
  fixture() {
    for (index_t i = 0; i < 15; ++i) {
      a.data()[i] = static_cast<float>(i);
      b.data()[i] = static_cast<float>(2 * i - 7);
    }
  }
};

auto square_of_sum(const matrix& a, const matrix& b) {
  auto t = a + b;
  return t * t;
}

auto log_softmax(const matrix& scores) {
  auto shifted = scores - per_row(max<1>(scores));
  return shifted - per_row(log(sum<1>(exp(shifted))));
}

auto owns_its_tensor(gradus::cpu& device) {
  matrix local{device, {3, 5}};
  local += 2;
  const matrix other{device, {3, 5}};
  return std::move(local) * 3 + matrix{other};
}

template <class Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const gradus::shape_error& e) {
    return std::string{e.message()};
  }
  return "no error";
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(expressions, fixture)

BOOST_AUTO_TEST_CASE(an_error_names_the_line_of_the_call) {
  matrix x{device, {2, 3}};
  const matrix y{device, {3, 2}};
  const matrix none{device, {0, 2}};
  const gradus::tensor<float, 1> v{device, {4}};
  const auto names = [](unsigned line) {
    return [line](const gradus::error& failure) {
      const std::string end = gradus::join({"[expressions.cpp:", line, "]"});
      BOOST_TEST(std::string_view{failure.what()}.ends_with(end), failure.what() << " is not of line " << line);
      return true;
    };
  };
  // Each statement is on the line of its own __LINE__.
  BOOST_CHECK_EXCEPTION((void)x.at(2, 0), gradus::shape_error, names(__LINE__));
  BOOST_CHECK_EXCEPTION((void)y.at(std::size_t{3}, 0U), gradus::shape_error, names(__LINE__));
  BOOST_CHECK_EXCEPTION((void)y.view().at(0, 2), gradus::shape_error, names(__LINE__));
  BOOST_CHECK_EXCEPTION((void)v.at(4), gradus::shape_error, names(__LINE__));
  BOOST_CHECK_EXCEPTION(gradus::assign(x, y), gradus::shape_error, names(__LINE__));
  BOOST_CHECK_EXCEPTION(gradus::assign(x.view(), y + y), gradus::shape_error, names(__LINE__));
  BOOST_CHECK_EXCEPTION(x.view().assign(y * 2.0F), gradus::shape_error, names(__LINE__));
  BOOST_CHECK_EXCEPTION(gradus::copy(x, y), gradus::shape_error, names(__LINE__));
  BOOST_CHECK_EXCEPTION((void)matmul(x, x), gradus::shape_error, names(__LINE__));
  BOOST_CHECK_EXCEPTION((void)matmul(transpose(x), y), gradus::shape_error, names(__LINE__));
  BOOST_CHECK_EXCEPTION((void)minimum(x, y), gradus::shape_error, names(__LINE__));
  BOOST_CHECK_EXCEPTION((void)max(x, y), gradus::shape_error, names(__LINE__));
  BOOST_CHECK_EXCEPTION((void)clamp(x, y, 1.0F), gradus::shape_error, names(__LINE__));
  BOOST_CHECK_EXCEPTION((void)where(x > 0.0F, x, y), gradus::shape_error, names(__LINE__));
  BOOST_CHECK_EXCEPTION((void)mean(none), gradus::shape_error, names(__LINE__));
  BOOST_CHECK_EXCEPTION((void)max<0>(none), gradus::shape_error, names(__LINE__));
  BOOST_CHECK_EXCEPTION((void)argmin(none), gradus::shape_error, names(__LINE__));
  // Operators have no argument for it: the program gives it.
  const auto here = gradus::error_location::current();
  BOOST_CHECK_EXCEPTION(gradus::at_call(here, [&] { x = y + y; }), gradus::shape_error, names(here.line()));
  BOOST_CHECK_EXCEPTION(gradus::at_call(here, [&] { x += y; }), gradus::shape_error, names(here.line()));
}

BOOST_AUTO_TEST_CASE(are_values) {
  const auto kept = square_of_sum(a, b);
  const auto copy = kept;
  const matrix c = copy;
  BOOST_TEST(c(2, 4) == 35.0F * 35);
  const matrix d = log_softmax(a);
  const double total = 1 + std::exp(-1.0) + std::exp(-2.0) + std::exp(-3.0) + std::exp(-4.0);
  BOOST_TEST(d(1, 3) == static_cast<float>(-1 - std::log(total)), boost::test_tools::tolerance(1e-5F));
  const matrix e = owns_its_tensor(device);
  BOOST_TEST(e(2, 4) == 6.0F);
}

BOOST_AUTO_TEST_CASE(are_computed_when_they_are_assigned) {
  const auto twice = a * 2;
  a(0, 1) = 50;
  BOOST_TEST(evaluate(twice)(0, 1) == 100.0F);
}

BOOST_AUTO_TEST_CASE(may_read_their_destination) {
  matrix square{device, {5, 5}};
  for (index_t i = 0; i < 25; ++i) {
    square.data()[i] = static_cast<float>(i);
  }
  const matrix before = square;
  square = square * 2 - square;
  BOOST_TEST(square(3, 1) == before(3, 1));
  square = transpose(square) + 0;
  BOOST_TEST(square(3, 1) == before(1, 3));
  square = matmul(transpose(square), square);
  const matrix product = matmul(before, transpose(before));
  BOOST_TEST(square(3, 1) == product(3, 1));
  a = a - per_row(sum<1>(a)) - per_column(sum<0>(a));
  BOOST_TEST(a(2, 4) == 14.0F - 60 - 27);
}

BOOST_AUTO_TEST_CASE(compound_assignment_to_tensors_and_views) {
  b += a;
  b -= 1;
  b *= a;
  b /= a + 1;
  BOOST_TEST(b(2, 4) == 34.0F * 14 / 15);
  b.view().slice(1, 1).assign(a.view().slice(0, 1) * 2);
  BOOST_TEST(b(1, 3) == 6.0F);
  a.view().slice(2, 1) += 100;
  BOOST_TEST(a(2, 0) == 110.0F);
  assign(a, 4);
  BOOST_TEST(a(1, 1) == 4.0F);
  assign(a.view(), b);
  BOOST_TEST(a(1, 3) == 6.0F);
}

BOOST_AUTO_TEST_CASE(wrong_shapes_are_named) {
  const matrix other{device, {5, 3}};
  const gradus::tensor<float, 1> v{device, {4}};
  BOOST_TEST(message_of([&] { (void)(a + other); }) ==
             "operator+: expected operands of one shape, got (3, 5) and (5, 3).");
  BOOST_TEST(message_of([&] { a = other * 2; }) ==
             "assignment: expected (3, 5), got (5, 3). Hint: gradus::assign(y, x) in place of y = x tells the line of "
             "the program.");
  BOOST_TEST(message_of([&] { (void)(a * per_column(v)); }) ==
             "operator*: expected values of shape (5) for a tensor of shape (3, 5), got (4).");
  BOOST_TEST(message_of([&] { (void)matmul(a, b); }) ==
             "matmul: expected as many columns on the left as rows on the right, got (3, 5) and (3, 5).");
  BOOST_TEST(message_of([&] {
               (void)mean(matrix{device, {0, 5}});
             }) == "mean: expected at least one element, got (0, 5).");
  BOOST_TEST(sum(matrix{device, {0, 5}}).value() == 0.0F);
}

BOOST_AUTO_TEST_SUITE_END()
