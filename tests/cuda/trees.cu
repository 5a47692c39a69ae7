// SPDX-License-Identifier: BSL-1.0
//
// Random trees of expressions on the host-side CUDA emulation. They are too many to compile with nvcc.
#include "../property/tensor/trees_check.hpp"
#include "gradus/tensor/cuda.cuh"

BOOST_AUTO_TEST_CASE(random_trees_on_a_gpu) {
  gradus::cpu host{{.intra_op_threads = 1}};
  gradus::cuda device;
  trees::check_trees_on<0, 14>(host, device, trees::from_environment("GRADUS_TREE_SETS", 20));
}
