// SPDX-License-Identifier: BSL-1.0
//
// Random trees of expressions against a plain reference, the first third. The tensors are small and the types are many:
// compiled without optimization.
//
// GRADUS_TREE_SETS is the number of data sets of a tree (20, the last of them with more elements than a thread's task);
// GRADUS_TREE and GRADUS_TREE_SET run only one tree and one data set.
#include "trees_check.hpp"

BOOST_AUTO_TEST_CASE(random_trees_first) {
  trees::check_trees<0, 24>();
}
