// SPDX-License-Identifier: BSL-1.0
//
// What gpu_training.cu compares with.
#include "gradus/comm/self.hpp"
#include "training_runs.hpp"

namespace gpu_training {

gradus_test::training_result on_cpu() {
  gradus::comm::self self;
  return gradus_test::run_training<gradus::nhwc, float>(self);
}

}  // namespace gpu_training
