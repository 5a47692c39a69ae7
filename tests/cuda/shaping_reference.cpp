// SPDX-License-Identifier: BSL-1.0
//
// What gpu_shaping.cu compares with.
#include "shaping_outcomes.hpp"

namespace gpu_shaping {

std::vector<outcome> on_cpu(bool channels_last) {
  gradus::cpu device{{.intra_op_threads = 1}};
  return channels_last ? outcomes_of<double, gradus::nhwc>(device) : outcomes_of<double, gradus::nchw>(device);
}

}  // namespace gpu_shaping
