// SPDX-License-Identifier: BSL-1.0
//
// The main function of a test program: every folder of tests is linked with this file.
#define BOOST_TEST_MODULE gradus
#include <boost/test/unit_test.hpp>

#include "gradus/conformance/sanitizers.hpp"
#include "source_directory.hpp"

// Tests that do not know their sanitizer check less and run longer.
#if (defined(GRADUS_TEST_EXPECTS_ADDRESS_SANITIZER) && !GRADUS_ADDRESS_SANITIZER) || \
    (defined(GRADUS_TEST_EXPECTS_THREAD_SANITIZER) && !GRADUS_THREAD_SANITIZER)
#error "gradus/conformance/sanitizers.hpp does not recognize the sanitizer of this compiler"
#endif

std::string path_in_tests(const std::string& name) {
  return GRADUS_TEST_SOURCE_DIR "/" + name;
}
