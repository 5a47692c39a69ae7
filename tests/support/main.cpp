// SPDX-License-Identifier: BSL-1.0
//
// The main function of a test program: every folder of tests is linked with this file.
#define BOOST_TEST_MODULE gradus
#include <boost/test/unit_test.hpp>

#include "source_directory.hpp"

std::string path_in_tests(const std::string& name) {
  return GRADUS_TEST_SOURCE_DIR "/" + name;
}
