// SPDX-License-Identifier: BSL-1.0
//
// The main function of programs that need a GPU: where there is none, they end with the code of a skipped test.
#define BOOST_TEST_MODULE gradus
#define BOOST_TEST_NO_MAIN
#if defined(BOOST_TEST_DYN_LINK)
#include <boost/test/unit_test.hpp>
#else
#include <boost/test/included/unit_test.hpp>
#endif
#include <cstdio>

#include "gradus/device/cuda.cuh"

int main(int count, char** arguments) {
  constexpr int skipped = 77;  // SKIP_RETURN_CODE of tests/cuda/CMakeLists.txt
  if (gradus::cuda_device_count() == 0) {
    std::puts("skipped: there is no CUDA device");
    return skipped;
  }
#if defined(BOOST_TEST_DYN_LINK)
  return boost::unit_test::unit_test_main(&init_unit_test, count, arguments);
#else
  return boost::unit_test::unit_test_main(&init_unit_test_suite, count, arguments);
#endif
}
