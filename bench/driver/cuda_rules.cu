// SPDX-License-Identifier: BSL-1.0
//
// The update rules of gradus_bench on GPUs.
#include "gradus/optim/cuda_passes.cuh"
#include "rules_on.hpp"

namespace driver {

template std::unique_ptr<rule_state<gradus::cuda>> make_rule_state(const settings&, gradus::cuda&, index_t);
template std::unique_ptr<scaled_rule_state<gradus::cuda>> make_scaled_rule_state(const settings&, gradus::cuda&,
                                                                                 index_t);

}  // namespace driver
