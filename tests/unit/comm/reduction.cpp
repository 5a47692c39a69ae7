// SPDX-License-Identifier: BSL-1.0
//
// Reductions: values, wrap-around of integers, blocks and remainders.
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include <cstdint>  // std::int32_t, std::int64_t, std::uint8_t
#include <limits>   // std::numeric_limits
#include <vector>   // std::vector

#include "gradus/comm/reduction.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"

namespace comm = gradus::comm;
using elements =
    boost::mpl::list<float, double, std::int32_t, std::int64_t, std::uint8_t, gradus::bfloat16, gradus::float16>;

BOOST_AUTO_TEST_SUITE(comm_reduction)

BOOST_AUTO_TEST_CASE_TEMPLATE(accumulate_combines_every_element, Element, elements) {
  for (const gradus::index_t count : {0, 1, 3, 15, 16, 17, 31, 32, 33, 127, 128, 129, 1000}) {
    const auto size = static_cast<std::size_t>(count);
    std::vector<Element> a(size + 1, Element{5});
    std::vector<Element> b(size + 1, Element{9});
    for (std::size_t i = 0; i < size; ++i) {
      a[i] = static_cast<Element>(static_cast<float>(1 + i % 7));
      b[i] = static_cast<Element>(static_cast<float>(1 + i % 5));
    }
    for (const auto operation :
         {comm::reduction::sum, comm::reduction::product, comm::reduction::minimum, comm::reduction::maximum}) {
      std::vector<Element> result = a;
      comm::detail::accumulate(operation, result.data(), b.data(), count);
      bool right = true;
      for (std::size_t i = 0; i < size; ++i) {
        const Element expected = operation == comm::reduction::sum       ? static_cast<Element>(a[i] + b[i])
                                 : operation == comm::reduction::product ? static_cast<Element>(a[i] * b[i])
                                 : operation == comm::reduction::minimum ? std::min(a[i], b[i])
                                                                         : std::max(a[i], b[i]);
        right = right && result[i] == expected;
      }
      BOOST_TEST(right, name_of(operation) << " of " << count);
      BOOST_TEST((result[size] == Element{5}), "the element after the last has changed");
    }
  }
}

BOOST_AUTO_TEST_CASE(integers_wrap_around) {
  std::int32_t a = std::numeric_limits<std::int32_t>::max();
  const std::int32_t one = 1;
  comm::detail::accumulate(comm::reduction::sum, &a, &one, 1);
  BOOST_TEST(a == std::numeric_limits<std::int32_t>::min());
  std::int64_t b = std::numeric_limits<std::int64_t>::max();
  const std::int64_t two = 2;
  comm::detail::accumulate(comm::reduction::product, &b, &two, 1);
  BOOST_TEST(b == -2);
  std::uint8_t c = 200;
  const std::uint8_t d = 100;
  comm::detail::accumulate(comm::reduction::sum, &c, &d, 1);
  BOOST_TEST(int{c} == 44);
}

BOOST_AUTO_TEST_CASE(only_numbers_are_transferable) {
  static_assert(comm::transferable<float> && comm::transferable<std::uint8_t>);
  static_assert(!comm::transferable<bool> && !comm::transferable<void*> && !comm::transferable<const float>);
  BOOST_TEST(name_of(comm::reduction::maximum) == "maximum");
}

BOOST_AUTO_TEST_SUITE_END()
