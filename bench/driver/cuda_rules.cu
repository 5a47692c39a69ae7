// SPDX-License-Identifier: BSL-1.0
//
// The update rules of gradus_bench on GPUs.
#include "gradus/optim/cuda_passes.cuh"
#include "rules_on.hpp"

namespace driver {

template std::unique_ptr<rule> make_rule(const settings&, gradus::cuda&, index_t);

}  // namespace driver
