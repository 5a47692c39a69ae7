// SPDX-License-Identifier: BSL-1.0
//
// The update rules of gradus_bench on GPUs.
#include "gradus/optim/cuda_passes.cuh"
#include "rules_on.hpp"

namespace driver {

std::unique_ptr<rule> make_rule(const settings& chosen, gradus::cuda& device, index_t elements) {
  return make_rule_on(chosen, device, elements);
}

}  // namespace driver
