// SPDX-License-Identifier: BSL-1.0
//
// What gpu_layers.cu compares with.
#include "layer_outcomes.hpp"

namespace gpu_layers {

outcome on_cpu_nchw(bool last_batch_smaller) {
  gradus::cpu device;
  return train<double, gradus::nchw>(device, last_batch_smaller);
}

outcome on_cpu_nhwc(bool last_batch_smaller) {
  gradus::cpu device;
  return train<double, gradus::nhwc>(device, last_batch_smaller);
}

}  // namespace gpu_layers
