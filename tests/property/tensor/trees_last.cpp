// SPDX-License-Identifier: BSL-1.0
//
// Random trees of expressions against a plain reference, the last third. The tensors are small and the types are many:
// compiled without optimization.
#include "trees_check.hpp"

BOOST_AUTO_TEST_CASE(random_trees_last) {
  trees::check_trees<48, 24>();
}
