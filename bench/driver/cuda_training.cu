// SPDX-License-Identifier: BSL-1.0
//
// The trainings of gradus_bench on GPUs.
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/data/cuda_loader.cuh"
#include "gradus/kernels/cuda.cuh"
#include "gradus/kernels/cuda/shaping.cuh"
#include "gradus/layout/layouts.hpp"
#include "gradus/train/captured_network.cuh"
#include "training_in.hpp"

namespace driver {

template <class Element, class Layout>
struct recorded_form<gradus::nn::network<Element, Layout, gradus::cuda>> {
  using type = gradus::train::captured_network<gradus::nn::network<Element, Layout, gradus::cuda>>;
};

std::unique_ptr<training> make_training(const settings& chosen, gradus::cuda& device, const input_set& input,
                                        const batches& plan, gradus::trace::recorder& recorder) {
  if (chosen.precision == "fp16") {
    return chosen.nhwc ? make_training_in<gradus::float16, gradus::nhwc>(chosen, device, input, plan, recorder)
                       : make_training_in<gradus::float16, gradus::nchw>(chosen, device, input, plan, recorder);
  }
  if (chosen.precision == "bf16") {
    return chosen.nhwc ? make_training_in<gradus::bfloat16, gradus::nhwc>(chosen, device, input, plan, recorder)
                       : make_training_in<gradus::bfloat16, gradus::nchw>(chosen, device, input, plan, recorder);
  }
  return chosen.nhwc ? make_training_in<float, gradus::nhwc>(chosen, device, input, plan, recorder)
                     : make_training_in<float, gradus::nchw>(chosen, device, input, plan, recorder);
}

}  // namespace driver
