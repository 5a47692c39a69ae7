// SPDX-License-Identifier: BSL-1.0
//
// Factories of tensors: values of NumPy, fixed random numbers, mistakes.
#include <array>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "far_device.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/tensor/copy.hpp"
#include "gradus/tensor/factories.hpp"
#include "gradus/tensor/random.hpp"

using gradus::index_t;

BOOST_AUTO_TEST_SUITE(factories)

namespace {

template <class Tensor>
std::vector<double> numbers(const Tensor& x) {
  std::vector<double> result;
  for (index_t i = 0; i < x.size(); ++i) {
    result.push_back(static_cast<double>(x.data()[i]));
  }
  return result;
}

/// The message of the error that action() throws, of the given type.
template <class Error, class Action>
std::string mistake(const Action& action) {
  try {
    static_cast<void>(action());
  } catch (const Error& failure) {
    return failure.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(constants_in_every_layout_and_element_type) {
  gradus::cpu device{{.intra_op_threads = 2}};
  const auto a = gradus::zeros<float>(device, {2, 3});
  static_assert(std::is_same_v<decltype(a), const gradus::tensor<float, 2>>);
  BOOST_TEST(numbers(a) == (std::vector<double>(6, 0.0)));
  const auto b = gradus::ones<std::int32_t, gradus::nhwc>(device, {2, 1, 3, 2});
  static_assert(std::is_same_v<decltype(b), const gradus::tensor<std::int32_t, 4, gradus::nhwc>>);
  BOOST_TEST(numbers(b) == (std::vector<double>(12, 1.0)));
  BOOST_TEST(numbers(gradus::full<bool>(device, gradus::extents<1>{2}, true)) == (std::vector<double>{1, 1}));
  const auto c =
      gradus::full<gradus::bfloat16, gradus::nchw>(device, gradus::image_extents{1, 2, 3, 4}, gradus::bfloat16{1.5F});
  BOOST_TEST(numbers(c) == (std::vector<double>(24, 1.5)));
  BOOST_TEST(gradus::full<double>(device, gradus::extents<0>{}, 3).value() == 3.0);
  BOOST_TEST(gradus::ones<float>(device, {0, 3}).size() == 0);
}

BOOST_AUTO_TEST_CASE(identity_matrices) {
  gradus::cpu device{{.intra_op_threads = 1}};
  BOOST_TEST(numbers(gradus::eye<float>(device, 2)) == (std::vector<double>{1, 0, 0, 1}));
  BOOST_TEST(numbers(gradus::eye<float>(device, {2, 3})) == (std::vector<double>{1, 0, 0, 0, 1, 0}));
  BOOST_TEST(numbers(gradus::eye<std::uint8_t>(device, {4, 2})) == (std::vector<double>{1, 0, 0, 1, 0, 0, 0, 0}));
  BOOST_TEST(gradus::eye<float>(device, {0, 3}).size() == 0);
}

BOOST_AUTO_TEST_CASE(ranges_are_those_of_numpy) {
  gradus::cpu device{{.intra_op_threads = 1}};
  BOOST_TEST(numbers(gradus::arange<std::int64_t>(device, 4)) == (std::vector<double>{0, 1, 2, 3}));
  BOOST_TEST(numbers(gradus::arange<float>(device, 3)) == (std::vector<double>{0, 1, 2}));
  BOOST_TEST(gradus::arange<float>(device, -3).size() == 0);
  BOOST_TEST(numbers(gradus::arange<std::int32_t>(device, {.start = 2, .stop = 11, .step = 3})) ==
             (std::vector<double>{2, 5, 8}));
  BOOST_TEST(numbers(gradus::arange<std::int32_t>(device, {.start = 2, .stop = 12, .step = 3})) ==
             (std::vector<double>{2, 5, 8, 11}));
  BOOST_TEST(numbers(gradus::arange<std::int32_t>(device, {.start = 5, .stop = 0, .step = -2})) ==
             (std::vector<double>{5, 3, 1}));
  BOOST_TEST(gradus::arange<std::int32_t>(device, {.start = 5, .stop = 0}).size() == 0);
  BOOST_TEST(numbers(gradus::arange<double>(device, {.start = 1, .stop = 2, .step = 0.25})) ==
             (std::vector<double>{1, 1.25, 1.5, 1.75}));
  BOOST_TEST(gradus::arange<double>(device, {.stop = 1, .step = 0.1}).size() == 10);
  BOOST_TEST(numbers(gradus::arange<std::uint8_t>(device, {.start = 250, .stop = 256, .step = 5})) ==
             (std::vector<double>{250, 255}));
  using mistakes = gradus::configuration_error;
  BOOST_TEST(contains(mistake<mistakes>([&] { return gradus::arange<std::uint8_t>(device, 257); }), "uint8 can hold"));
  BOOST_TEST(
      contains(mistake<mistakes>([&] { return gradus::arange<float>(device, {.stop = 1, .step = 0}); }), "step"));
  BOOST_TEST(contains(mistake<mistakes>([&] { return gradus::arange<float>(device, {.stop = HUGE_VAL}); }), "finite"));
  BOOST_TEST(
      contains(mistake<mistakes>([&] { return gradus::arange<float>(device, {.start = std::nan("")}); }), "finite"));
}

BOOST_AUTO_TEST_CASE(linspace_ends_exactly) {
  gradus::cpu device{{.intra_op_threads = 1}};
  BOOST_TEST(numbers(gradus::linspace<double>(device, {.start = -1, .stop = 1, .count = 5})) ==
             (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  for (const index_t count : {2, 3, 7, 50, 1001}) {
    for (const auto& [start, stop] : {std::pair{0.1, 0.7}, {-3.3, 1e-7}, {5.0, -0.9}}) {
      const auto x = gradus::linspace<double>(device, {.start = start, .stop = stop, .count = count});
      const auto y = gradus::linspace<float>(device, {.start = start, .stop = stop, .count = count});
      BOOST_TEST(x.size() == count);
      BOOST_TEST((x(0) == start && x(count - 1) == stop));
      BOOST_TEST((y(0) == static_cast<float>(start) && y(count - 1) == static_cast<float>(stop)));
      for (index_t i = 0; i < count; ++i) {
        const double t = static_cast<double>(i) / static_cast<double>(count - 1);
        BOOST_TEST(std::abs(x(i) - (start * (1 - t) + stop * t)) < 1e-14);
      }
    }
  }
  BOOST_TEST(numbers(gradus::linspace<float>(device, {.start = 3, .stop = 9, .count = 1})) == (std::vector<double>{3}));
  BOOST_TEST(gradus::linspace<float>(device, {.count = 0}).size() == 0);
  BOOST_TEST(gradus::linspace<float>(device, {}).size() == 50);
  BOOST_TEST(contains(mistake<gradus::shape_error>([&] { return gradus::linspace<float>(device, {.count = -1}); }),
                      "linspace: expected a count of at least 0, got -1. [factories.cpp:"));
  BOOST_TEST(contains(
      mistake<gradus::configuration_error>([&] { return gradus::linspace<float>(device, {.stop = HUGE_VAL}); }),
      "finite"));
}

BOOST_AUTO_TEST_CASE(lists_and_spans_are_in_logical_order) {
  gradus::cpu device{{.intra_op_threads = 1}};
  BOOST_TEST(numbers(gradus::from_list<float, 1>(device, {1, 2, 3})) == (std::vector<double>{1, 2, 3}));
  const auto a = gradus::from_list<float, 2>(device, {{1, 2, 3}, {4, 5, 6}});
  BOOST_TEST((a.extents() == gradus::extents<2>{2, 3}));
  BOOST_TEST(numbers(a) == (std::vector<double>{1, 2, 3, 4, 5, 6}));
  BOOST_TEST((gradus::from_list<float, 2>(device, {{1}, {2}}).extents() == gradus::extents<2>{2, 1}));
  const auto b = gradus::from_list<double, 3>(device, {{{1, 2}}, {{3, 4}}, {{5, 6}}});
  BOOST_TEST((b.extents() == gradus::extents<3>{3, 1, 2}));
  BOOST_TEST(b(2, 0, 1) == 6.0);
  const auto c = gradus::from_list<float, 4, gradus::nhwc>(device, {{{{1, 2}}, {{3, 4}}, {{5, 6}}}});
  BOOST_TEST((c.extents() == gradus::extents<4>{1, 3, 1, 2}));
  BOOST_TEST(c(0, 1, 0, 1) == 4.0F);
  BOOST_TEST(numbers(c) == (std::vector<double>{1, 3, 5, 2, 4, 6}));
  BOOST_TEST((gradus::from_list<float, 2>(device, {}).extents() == gradus::extents<2>{0, 0}));
  BOOST_TEST((gradus::from_list<float, 2>(device, {{}, {}}).extents() == gradus::extents<2>{2, 0}));
  for (const auto& text : {mistake<gradus::shape_error>([&] {
                             return gradus::from_list<float, 2>(device, {{1, 2}, {3}});
                           }),
                           mistake<gradus::shape_error>([&] {
                             return gradus::from_list<float, 2>(device, {{1, 2}, {3, 4, 5}});
                           })}) {
    BOOST_TEST(contains(text, "from_list: expected lists of one length, 2 as the first, got "), text);
    BOOST_TEST(contains(text, "[factories.cpp:"), text);
  }

  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const auto d = gradus::from_span<gradus::nhwc>(device, std::span{values}, {1, 3, 2, 1});
  BOOST_TEST(numbers(d) == (std::vector<double>{1, 3, 5, 2, 4, 6}));
  std::array<std::int32_t, 4> whole{1, 2, 3, 4};
  BOOST_TEST(gradus::from_span(device, std::span{whole}, {2, 2})(1, 0) == 3);
  BOOST_TEST(contains(mistake<gradus::shape_error>([&] {
                        return gradus::from_span(device, std::span{values}, {2, 2});
                      }),
                      "from_span: expected 4 values for the shape (2, 2), got 6. [factories.cpp:"));
}

BOOST_AUTO_TEST_CASE(extents_below_0_are_refused_with_the_line_of_the_call) {
  gradus::cpu device{{.intra_op_threads = 1}};
  using error = gradus::shape_error;
  const gradus::random_stream stream{1};
  for (const auto& text :
       {mistake<error>([&] {
          return gradus::zeros<float>(device, {2, -3});
        }),
        mistake<error>([&] { return gradus::ones<float>(device, {-1}); }),
        mistake<error>([&] { return gradus::full<float>(device, {-1}, 2.0F); }),
        mistake<error>([&] { return gradus::eye<float>(device, -1); }), mistake<error>([&] {
          return gradus::eye<float>(device, {2, -1});
        }),
        mistake<error>([&] { return gradus::random_uniform<float>(device, {-1}, stream); }),
        mistake<error>([&] { return gradus::random_normal<float>(device, {-1}, stream); }), mistake<error>([&] {
          return gradus::zeros<float, gradus::nchw>(device, gradus::image_extents{1, 2, -3, 4});
        })}) {
    BOOST_TEST(contains(text, "expected extents of at least 0, got -"), text);
    BOOST_TEST(contains(text, "[factories.cpp:"), text);
  }
}

BOOST_AUTO_TEST_CASE(random_numbers_depend_on_stream_and_index_only) {
  gradus::cpu one{{.intra_op_threads = 1}};
  gradus::cpu three{{.intra_op_threads = 3}};
  archetypes::far_device far;
  const gradus::random_stream stream{5, "weights"};
  const gradus::image_extents shape{3, 7, 11, 50};
  const auto a = gradus::random_normal<double, gradus::nchw>(one, shape, stream);
  const auto b = gradus::random_normal<double, gradus::nhwc>(three, shape, stream);
  const auto far_numbers = gradus::random_normal<double, gradus::nhwc>(far, shape, stream);
  const auto c = gradus::to(one, far_numbers);
  const auto d = gradus::random_uniform<double, gradus::nhwc>(three, shape, stream, {.low = -2, .high = 6});
  int wrong = 0;
  std::uint64_t i = 0;
  for (index_t n = 0; n < shape.n; ++n) {
    for (index_t ch = 0; ch < shape.c; ++ch) {
      for (index_t h = 0; h < shape.h; ++h) {
        for (index_t w = 0; w < shape.w; ++w, ++i) {
          const double expected = stream.normal(i);
          wrong += a(n, ch, h, w) == expected && b(n, ch, h, w) == expected && c(n, ch, h, w) == expected ? 0 : 1;
          wrong += d(n, ch, h, w) == -2 + 8 * stream.uniform(i) ? 0 : 1;
        }
      }
    }
  }
  BOOST_TEST(wrong == 0);
  const auto first = gradus::random_uniform<double>(one, {3}, gradus::random_stream{0});
  const auto shifted = gradus::random_normal<double>(one, {3}, gradus::random_stream{0}, {.mean = 10, .deviation = 2});
  const std::vector<double> fixed{0.26854531557566963, 0.1049339881239586, 0.27903842692100633};
  const std::vector<double> fixed_normal{13.108673111115058, 14.091974796291469, 7.1424798531590783};
  for (index_t k = 0; k < 3; ++k) {
    BOOST_TEST(first(k) == fixed[static_cast<std::size_t>(k)]);
    BOOST_TEST(std::abs(shifted(k) - fixed_normal[static_cast<std::size_t>(k)]) < 1e-12);  // log and cos of the system
  }
}

BOOST_AUTO_TEST_CASE(uniform_numbers_stay_below_high) {
  gradus::cpu device{{.intra_op_threads = 2}};
  // So close to 1 that half of the numbers are rounded to it.
  const float low = 1.0F - std::numeric_limits<float>::epsilon() / 2;
  const auto x = gradus::random_uniform<float>(device, {10'000}, gradus::random_stream{3}, {.low = low, .high = 1});
  for (index_t i = 0; i < x.size(); ++i) {
    BOOST_REQUIRE(x(i) == low);
  }
  const auto y = gradus::random_uniform<float>(device, {100'000}, gradus::random_stream{4});
  double total = 0;
  for (index_t i = 0; i < y.size(); ++i) {
    BOOST_REQUIRE((y(i) >= 0 && y(i) < 1));
    total += y(i);
  }
  BOOST_TEST(std::abs(total / 100'000 - 0.5) < 0.005);
  using mistakes = gradus::configuration_error;
  const gradus::random_stream stream{1};
  for (const auto& options : {gradus::uniform_options{1, 1}, gradus::uniform_options{2, 1},
                              gradus::uniform_options{0, HUGE_VAL}, gradus::uniform_options{std::nan(""), 1}}) {
    BOOST_TEST(contains(mistake<mistakes>([&] { return gradus::random_uniform<float>(device, {2}, stream, options); }),
                        "low < high"));
  }
  BOOST_TEST(contains(mistake<mistakes>([&] {
                        return gradus::random_uniform<double>(device, {2}, stream, {.low = -1e308, .high = 1e308});
                      }),
                      "finite difference"));
  BOOST_TEST(
      contains(mistake<mistakes>([&] { return gradus::random_normal<float>(device, {2}, stream, {.deviation = -1}); }),
               "a deviation of at least 0"));
}

BOOST_AUTO_TEST_CASE(devices_with_memory_of_their_own) {
  gradus::cpu host{{.intra_op_threads = 1}};
  archetypes::far_device device;
  {
    const auto x = gradus::from_list<float, 4, gradus::nhwc>(device, {{{{1, 2}}, {{3, 4}}, {{5, 6}}}});
    BOOST_TEST(numbers(gradus::to(host, x)) == (std::vector<double>{1, 3, 5, 2, 4, 6}));
    BOOST_TEST(numbers(gradus::to(host, gradus::full<float>(device, {2}, 3.0F))) == (std::vector<double>{3, 3}));
    BOOST_TEST(gradus::ones<float>(device, {0}).size() == 0);
  }
  BOOST_TEST(device.blocks() == 0);
}

BOOST_AUTO_TEST_SUITE_END()
