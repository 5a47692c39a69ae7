// SPDX-License-Identifier: BSL-1.0
//
// What gpu_layers.cu compares with.
#include "gradus/core/float16.hpp"
#include "gradus/kernels/cpu.hpp"
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

outcome on_cpu_in_float16(bool channels_last) {
  gradus::cpu device;
  return channels_last ? train<gradus::float16, gradus::nhwc>(device, false)
                       : train<gradus::float16, gradus::nchw>(device, false);
}

loss_outcome expected_loss(loss_kind kind, bool channels_last) {
  gradus::cpu device{{.intra_op_threads = 1}};
  return channels_last ? loss_of_kind<double, gradus::nhwc>(device, kind)
                       : loss_of_kind<double, gradus::nchw>(device, kind);
}

}  // namespace gpu_layers
