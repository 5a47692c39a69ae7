// SPDX-License-Identifier: BSL-1.0
//
// Random trees of expressions, computed on the host by Thrust's OpenMP backend.
#include "../property/tensor/trees_check.hpp"
#include "thrust_host.hpp"

BOOST_AUTO_TEST_CASE(random_trees_on_thrust) {
  gradus::cpu host{{.intra_op_threads = 1}};
  thrust_host device;
  trees::check_trees_on<30, 14>(host, device, trees::from_environment("GRADUS_TREE_SETS", 20));
  BOOST_TEST(device.blocks() == 0);
}
