// SPDX-License-Identifier: BSL-1.0
//
// The part of the measurements on GPUs that does not depend on how ranks communicate.
#include "cuda.hpp"

#include <stdexcept>
#include <string>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/layout/layouts.hpp"
#include "update.hpp"

namespace driver {

void require_supported_on_cuda(const settings& chosen) {
  const auto refuse = [](const std::string& option, const std::string& expected, const std::string& got) {
    throw std::invalid_argument{option + ": expected " + expected + " with --device cuda, got '" + got + "'"};
  };
  if (chosen.what == command::tune) {
    throw std::invalid_argument{"tune: it looks for processes and threads of a CPU: leave out --device " +
                                chosen.device};
  }
  if (uses_servers(chosen.update) || chosen.update == variable_update::model_averaging ||
      chosen.update == variable_update::compressed_all_reduce) {
    refuse("--variable-update", "independent, replicated, all_reduce or sharded_update", name_of(chosen.update));
  }
  if (chosen.update == variable_update::sharded_update && chosen.precision == "fp16") {
    throw std::invalid_argument{
        "--precision: fp16 scales the loss, and a step is skipped where a gradient is not finite, which a rank of "
        "--variable-update sharded_update sees only in its own blocks: take all_reduce, or bf16"};
  }
  if (chosen.order != transfer_order::none) {
    refuse("--order", "none (the times of layers, which it needs, are those of a CPU)", name_of(chosen.order));
  }
#ifdef GRADUS_BENCH_WITH_NCCL
  if (!chosen.all_reduce_spec.empty() && chosen.all_reduce_spec != nccl_spec) {
    refuse("--all-reduce-spec", "nccl or nothing", chosen.all_reduce_spec);
  }
#else
  if (!chosen.all_reduce_spec.empty()) {
    refuse("--all-reduce-spec", "nothing (nccl needs a gradus_bench that was built with gradus::nccl)",
           chosen.all_reduce_spec);
  }
#endif
}

int cuda_devices() {
  return gradus::cuda_device_count();
}

gradus::cuda make_cuda_device(const settings& chosen, int local_rank) {
  const int cards = gradus::cuda_device_count();
  return gradus::cuda{{.device = cards > 0 ? local_rank % cards : 0,  // without a card this throws
                       .allow_tf32 = chosen.precision == "tf32",
                       .deterministic = false}};
}

std::unique_ptr<training> make_training_on_cuda(const settings& chosen, gradus::cuda& device, const input_set& input,
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

void with_cuda_training(const settings& chosen, const input_set& input, const batches& plan,
                        const std::function<void(training&)>& use) {
  gradus::cuda device = make_cuda_device(chosen, 0);
  gradus::trace::recorder recorder{{.capacity = 1, .enabled = false}};
  use(*make_training_on_cuda(chosen, device, input, plan, recorder));
}

}  // namespace driver
