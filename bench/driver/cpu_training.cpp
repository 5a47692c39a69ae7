// SPDX-License-Identifier: BSL-1.0
//
// The trainings of gradus_bench on CPUs.
#include "gradus/core/bfloat16.hpp"
#include "gradus/layout/layouts.hpp"
#include "training_in.hpp"

namespace driver {

std::unique_ptr<training> make_training(const settings& chosen, gradus::cpu& device, const input_set& input,
                                        const batches& plan, gradus::trace::recorder& recorder) {
  if (chosen.precision == "bf16") {
    return chosen.nhwc ? make_training_in<gradus::bfloat16, gradus::nhwc>(chosen, device, input, plan, recorder)
                       : make_training_in<gradus::bfloat16, gradus::nchw>(chosen, device, input, plan, recorder);
  }
  return chosen.nhwc ? make_training_in<float, gradus::nhwc>(chosen, device, input, plan, recorder)
                     : make_training_in<float, gradus::nchw>(chosen, device, input, plan, recorder);
}

}  // namespace driver
