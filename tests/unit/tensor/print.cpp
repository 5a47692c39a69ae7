// SPDX-License-Identifier: BSL-1.0
//
// Texts of tensors: the strings of numpy.array2string (NumPy 2.4), and the line above them.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>

#include "far_device.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/tensor/copy.hpp"
#include "gradus/tensor/expressions.hpp"
#include "gradus/tensor/factories.hpp"
#include "gradus/tensor/print.hpp"

BOOST_AUTO_TEST_SUITE(printing)

namespace {

/// The text without the line of element type and shape.
template <class X>
std::string body(const X& x, gradus::print_options options = {}) {
  options.heading = false;
  return to_string(x, options);
}

}  // namespace

BOOST_AUTO_TEST_CASE(floats) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const double nan = std::nan("");
  const auto row = [&]<class Element>(std::initializer_list<Element> values) {
    return body(gradus::from_list<Element, 1>(device, values));
  };
  BOOST_TEST(body(gradus::from_list<float, 2>(device, {{1, 2, 3}, {4.5, 5, 6}})) ==
             "[[1.  2.  3. ]\n"
             " [4.5 5.  6. ]]");
  BOOST_TEST(row({0.1F, 1000.1234F}) == "[1.0000000e-01 1.0001234e+03]");
  BOOST_TEST(body(gradus::from_list<double, 2>(device, {{-1.5, 2.25}, {100, 0.001}})) ==
             "[[-1.50e+00  2.25e+00]\n"
             " [ 1.00e+02  1.00e-03]]");
  BOOST_TEST(row({1e-5, 1.0, -123456.789}) == "[ 1.00000000e-05  1.00000000e+00 -1.23456789e+05]");
  BOOST_TEST(row({1e-100, 1e100}) == "[1.e-100 1.e+100]");
  BOOST_TEST(row({nan, 1.5, -HUGE_VAL, HUGE_VAL}) == "[ nan  1.5 -inf  inf]");
  BOOST_TEST(row({nan, HUGE_VAL}) == "[nan inf]");
  BOOST_TEST(row({nan, -HUGE_VAL}) == "[ nan -inf]");
  BOOST_TEST(row({1 / 3.0, 2 / 3.0}) == "[0.33333333 0.66666667]");
  BOOST_TEST(row({12345678.0F, 1.0F}) == "[1.2345678e+07 1.0000000e+00]");
  BOOST_TEST(row({-0.0, 2.0}) == "[-0.  2.]");
  BOOST_TEST(row({999999.0F, 1000.0F}) == "[999999.   1000.]");
  BOOST_TEST(row({1e6F, 2e6F}) == "[1.e+06 2.e+06]");
  BOOST_TEST(row({99999999.0, 100000.0}) == "[99999999.   100000.]");
  BOOST_TEST(body(gradus::from_list<double, 2>(device, {{3.14159265, 314.159265}}), {.precision = 3}) ==
             "[[  3.142 314.159]]");
  BOOST_TEST(body(gradus::from_list<double, 1>(device, {1.5, 2.5, 3.5}), {.precision = 0}) == "[2. 2. 4.]");
  BOOST_TEST(body(gradus::full<double>(device, gradus::extents<0>{}, 3.5)) == "3.5");
}

BOOST_AUTO_TEST_CASE(sixteen_bits) {
  gradus::cpu device{{.intra_op_threads = 1}};
  using gradus::bfloat16;
  using gradus::float16;
  BOOST_TEST(body(gradus::from_list<float16, 1>(device, {float16{65488.0F}, float16{1.0F}})) ==
             "[6.547e+04 1.000e+00]");
  BOOST_TEST(body(gradus::from_list<float16, 1>(device, {float16{0.1F}, float16{1.0F}})) == "[0.1 1. ]");
  BOOST_TEST(body(gradus::from_list<bfloat16, 1>(device, {bfloat16{0.1F}, bfloat16{3.0F}})) == "[0.1 3. ]");
}

BOOST_AUTO_TEST_CASE(whole_numbers_and_truth_values) {
  gradus::cpu device{{.intra_op_threads = 1}};
  BOOST_TEST(body(gradus::from_list<std::int32_t, 2>(device, {{1, -20}, {300, 4}})) ==
             "[[  1 -20]\n"
             " [300   4]]");
  BOOST_TEST(body(gradus::from_list<bool, 1>(device, {true, false})) == "[ True False]");
  BOOST_TEST(body(gradus::full<bool>(device, gradus::extents<0>{}, true)) == "True");
  BOOST_TEST(body(gradus::arange<std::uint8_t>(device, 12)) == "[ 0  1  2  3  4  5  6  7  8  9 10 11]");
}

BOOST_AUTO_TEST_CASE(more_axes_no_elements_and_broken_lines) {
  gradus::cpu device{{.intra_op_threads = 1}};
  BOOST_TEST(body(gradus::zeros<float>(device, {2, 2, 2})) ==
             "[[[0. 0.]\n"
             "  [0. 0.]]\n"
             "\n"
             " [[0. 0.]\n"
             "  [0. 0.]]]");
  BOOST_TEST(body(gradus::zeros<float>(device, {0, 3})) == "[]");
  BOOST_TEST(body(gradus::arange<float>(device, 30)) ==
             "[ 0.  1.  2.  3.  4.  5.  6.  7.  8.  9. 10. 11. 12. 13. 14. 15. 16. 17.\n"
             " 18. 19. 20. 21. 22. 23. 24. 25. 26. 27. 28. 29.]");
  BOOST_TEST(body(gradus::arange<float>(device, 7), {.line_width = 12}) ==
             "[0. 1. 2.\n"
             " 3. 4. 5.\n"
             " 6.]");
}

BOOST_AUTO_TEST_CASE(more_than_the_threshold_is_shortened) {
  gradus::cpu device{{.intra_op_threads = 1}};
  BOOST_TEST(body(gradus::arange<std::int64_t>(device, 1001)) == "[   0    1    2 ...  998  999 1000]");
  BOOST_TEST(body(gradus::arange<std::int64_t>(device, 1000)).find("...") == std::string::npos);
  const auto many = gradus::arange<float>(device, 2000);
  BOOST_TEST(body(many.view().reshape(gradus::extents<2>{40, 50})) ==
             "[[0.000e+00 1.000e+00 2.000e+00 ... 4.700e+01 4.800e+01 4.900e+01]\n"
             " [5.000e+01 5.100e+01 5.200e+01 ... 9.700e+01 9.800e+01 9.900e+01]\n"
             " [1.000e+02 1.010e+02 1.020e+02 ... 1.470e+02 1.480e+02 1.490e+02]\n"
             " ...\n"
             " [1.850e+03 1.851e+03 1.852e+03 ... 1.897e+03 1.898e+03 1.899e+03]\n"
             " [1.900e+03 1.901e+03 1.902e+03 ... 1.947e+03 1.948e+03 1.949e+03]\n"
             " [1.950e+03 1.951e+03 1.952e+03 ... 1.997e+03 1.998e+03 1.999e+03]]");
  BOOST_TEST(body(many.view().slice(0, 20), {.threshold = 5, .edge_items = 1}) == "[ 0. ... 19.]");
}

BOOST_AUTO_TEST_CASE(the_first_line_says_element_type_shape_layout_and_device) {
  gradus::cpu device{{.intra_op_threads = 1}};
  archetypes::far_device far;
  const auto images = gradus::from_list<float, 4, gradus::nhwc>(device, {{{{1, 2}}, {{3, 4}}}});
  const std::string numbers =
      "[[[[1. 2.]]\n"
      "\n"
      "  [[3. 4.]]]]";
  BOOST_TEST(to_string(images) == "float32 (1, 2, 1, 2) nhwc\n" + numbers);
  BOOST_TEST(to_string(images.view()) == "float32 (1, 2, 1, 2) nhwc\n" + numbers);
  BOOST_TEST(to_string(gradus::to(far, images)) == "float32 (1, 2, 1, 2) nhwc on far\n" + numbers);
  std::ostringstream out;
  out << images * 2 << gradus::arange<std::int32_t>(device, 2);
  BOOST_TEST(out.str() ==
             "float32 (1, 2, 1, 2) nhwc\n"
             "[[[[2. 4.]]\n"
             "\n"
             "  [[6. 8.]]]]int32 (2)\n"
             "[0 1]");
  BOOST_TEST(to_string(sum(images)) == "float32 ()\n10.");
}

BOOST_AUTO_TEST_CASE(options_out_of_range) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto x = gradus::zeros<float>(device, {2});
  const auto says = [](const gradus::configuration_error& e) {
    const std::string text{e.what()};
    return text.find("at least 1 edge item") != std::string::npos && text.find("[print.cpp:") != std::string::npos;
  };
  BOOST_CHECK_EXCEPTION(static_cast<void>(to_string(x, {.precision = -1})), gradus::configuration_error, says);
  BOOST_CHECK_EXCEPTION(static_cast<void>(to_string(x, {.edge_items = 0})), gradus::configuration_error, says);
}

BOOST_AUTO_TEST_SUITE_END()
