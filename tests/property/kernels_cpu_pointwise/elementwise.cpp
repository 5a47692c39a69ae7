// SPDX-License-Identifier: BSL-1.0
//
// Element-wise passes against their definitions, over lengths and threads.
#include <boost/test/unit_test.hpp>

#include <cfenv>
#include <cmath>
#include <limits>
#include <vector>

#include "gradus/kernels/cpu/elementwise.hpp"
#include "instruction_sets.hpp"
#include "support.hpp"

namespace {

using namespace pointwise;
using gradus::kernels::activation;

using elements = std::tuple<float, double>;
const std::vector<index_t> lengths{0, 1, 3, 8, 17, 64, 16384, 16385, 50001};

template <class Element>
std::vector<Element> make(index_t count, std::string_view name) {
  auto values = stored<Element, nchw>(plain_images{{1, count, 1, 1}, name});
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % 13 == 5) {
      values[i] = 0;
    } else if (i % 17 == 3) {
      values[i] = std::numeric_limits<Element>::quiet_NaN();
    } else if (i % 19 == 7) {
      values[i] = i % 2 == 0 ? std::numeric_limits<Element>::infinity() : -std::numeric_limits<Element>::infinity();
    }
  }
  return values;
}

template <class Element>
Element relu(Element x) {
  return x < 0 ? Element{0} : x;
}

/// Runs pass(device, destination) into a fresh copy of `before` with 1 and 3 threads, and compares with
/// expected(i).
template <class Element, class Pass, class Expected>
void check(const std::vector<Element>& before, const Pass& pass, const Expected& expected) {
  for (const int threads : {1, 3}) {
    cpu device{{.intra_op_threads = threads}};
    auto result = before;
    pass(device, result.data());
    index_t wrong = 0;
    for (std::size_t i = 0; i < result.size(); ++i) {
      const Element wanted = expected(i);
      wrong += !(result[i] == wanted || (std::isnan(result[i]) && std::isnan(wanted)));
    }
    BOOST_TEST(wrong == 0);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(elementwise)

BOOST_AUTO_TEST_CASE_TEMPLATE(relu_passes, Element, elements) {
  for (const index_t count : lengths) {
    BOOST_TEST_CONTEXT("count " << count) {
      const auto x = make<Element>(count, "x");
      const auto y = make<Element>(count, "y");
      const auto old = make<Element>(count, "old");
      check(
          old, [&](cpu& device, Element* to) { relu_forward(device, count, x.data(), to); },
          [&](std::size_t i) { return relu(x[i]); });
      check(
          x, [&](cpu& device, Element* to) { relu_forward(device, count, static_cast<const Element*>(to), to); },
          [&](std::size_t i) { return relu(x[i]); });
      for (const bool accumulate : {false, true}) {
        check(
            old, [&](cpu& device, Element* to) { relu_backward(device, count, x.data(), y.data(), to, accumulate); },
            [&](std::size_t i) {
              const Element value = y[i] > 0 ? x[i] : Element{0};
              return accumulate ? old[i] + value : value;
            });
      }
      check(
          x,
          [&](cpu& device, Element* to) {
            relu_backward(device, count, static_cast<const Element*>(to), y.data(), to, false);
          },
          [&](std::size_t i) { return y[i] > 0 ? x[i] : Element{0}; });
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(sums_and_copies, Element, elements) {
  for (const index_t count : lengths) {
    BOOST_TEST_CONTEXT("count " << count) {
      const auto a = make<Element>(count, "a");
      const auto b = make<Element>(count, "b");
      check(
          a,
          [&](cpu& device, Element* to) { add_forward(device, count, a.data(), b.data(), to, activation::identity); },
          [&](std::size_t i) { return a[i] + b[i]; });
      check(
          a,
          [&](cpu& device, Element* to) {
            add_forward(device, count, static_cast<const Element*>(to), b.data(), to, activation::relu);
          },
          [&](std::size_t i) { return relu(a[i] + b[i]); });
      check(
          a, [&](cpu& device, Element* to) { copy_or_add(device, count, b.data(), to, false); },
          [&](std::size_t i) { return b[i]; });
      check(
          a, [&](cpu& device, Element* to) { copy_or_add(device, count, b.data(), to, true); },
          [&](std::size_t i) { return a[i] + b[i]; });
    }
  }
}

// The values at a cap are those from the cap on; without a cap, no value is at it, infinity neither.
BOOST_AUTO_TEST_CASE_TEMPLATE(derivatives_at_the_cap, Element, elements) {
  using limits = std::numeric_limits<Element>;
  for (const activation& act : {activation::relu6, activation::leaky_relu(0.25), activation{.slope = 0.5, .cap = 0.1},
                                activation{.slope = 2, .cap = static_cast<double>(limits::max())}}) {
    const auto cap = static_cast<Element>(act.cap);
    BOOST_TEST_CONTEXT("slope " << act.slope << ", cap " << act.cap) {
      BOOST_TEST((gradus::kernels::detail::held_derivative<Element>{act}.original() ==
                  activation{act.slope, std::isfinite(act.cap) ? static_cast<double>(cap) : act.cap}));
      const std::vector<Element> y{cap,
                                   std::nextafter(cap, Element{0}),
                                   std::nextafter(cap, limits::infinity()),
                                   limits::max(),
                                   limits::infinity(),
                                   -limits::infinity(),
                                   Element{0},
                                   Element{-1},
                                   limits::quiet_NaN(),
                                   limits::min(),
                                   limits::denorm_min()};
      for (const index_t count : {index_t{1}, static_cast<index_t>(y.size())}) {
        for (std::size_t first = 0; first + static_cast<std::size_t>(count) <= y.size(); ++first) {
          const std::vector<Element> gradient(static_cast<std::size_t>(count), Element{3});
          for_each_instruction_set([&](gradus::kernels::instruction_set) {
            check(
                gradient,
                [&](cpu& device, Element* to) {
                  relu_backward(device, count, gradient.data(), y.data() + first, to, false, act);
                },
                [&](std::size_t i) {
                  const Element output = y[first + i];
                  const bool capped = std::isfinite(act.cap) && output >= cap;
                  return capped ? Element{0} : output > 0 ? Element{3} : static_cast<Element>(act.slope) * 3;
                });
          });
        }
      }
    }
  }
}

// Programs trap FE_INVALID.
BOOST_AUTO_TEST_CASE_TEMPLATE(ordinary_numbers_raise_no_exception, Element, elements) {
  cpu device{{.intra_op_threads = 1}};
  for (const index_t count : {1, 3, 8, 17, 64, 1001}) {
    const auto x = stored<Element, nchw>(plain_images{{1, count, 1, 1}, "x", 5});
    const auto dy = stored<Element, nchw>(plain_images{{1, count, 1, 1}, "dy"});
    for (const activation& act :
         {activation::identity, activation::relu, activation::relu6, activation::leaky_relu(0.01)}) {
      for_each_instruction_set([&](gradus::kernels::instruction_set) {
        auto y = x;
        auto dx = x;
        std::feclearexcept(FE_ALL_EXCEPT);
        relu_forward(device, count, x.data(), y.data(), act);
        add_forward(device, count, x.data(), dy.data(), y.data(), act);
        if (act != activation::identity) {
          relu_backward(device, count, dy.data(), y.data(), dx.data(), false, act);
          relu_backward(device, count, dy.data(), y.data(), dx.data(), true, act);
        }
        BOOST_TEST(std::fetestexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW) == 0, "cap " << act.cap);
      });
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
