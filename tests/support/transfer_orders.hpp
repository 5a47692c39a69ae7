// SPDX-License-Identifier: BSL-1.0
//
// Orders of transfers as tests look at them.
#pragma once

#include <boost/test/unit_test.hpp>
#include <cstddef>  // std::size_t
#include <vector>   // std::vector

using numbers = std::vector<std::size_t>;

inline void check_equal(const numbers& have, const numbers& want) {
  BOOST_CHECK_EQUAL_COLLECTIONS(have.begin(), have.end(), want.begin(), want.end());
}

/// Positions: the number of the transfer that goes first, second, ...
inline numbers sequence(const numbers& priorities) {
  numbers result(priorities.size(), priorities.size());
  for (std::size_t k = 0; k < priorities.size(); ++k) {
    BOOST_TEST_REQUIRE(priorities[k] < priorities.size());
    BOOST_TEST(result[priorities[k]] == priorities.size(), "priority " << priorities[k] << " twice");
    result[priorities[k]] = k;
  }
  return result;
}
