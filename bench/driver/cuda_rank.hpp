// SPDX-License-Identifier: BSL-1.0
//
// What a rank with a GPU does.
#pragma once

#include <memory>

#include "cuda.hpp"
#include "gradus/comm/cuda_staging.cuh"
#include "plan.hpp"
#include "run_rank.hpp"
#ifdef GRADUS_BENCH_WITH_NCCL
#include "gradus/comm/nccl.hpp"
#endif

namespace driver {

/// As run_rank, on a GPU. @param local_rank  the number of this rank on its machine
template <class Communicator>
void run_rank_on_cuda(Communicator& world, const settings& given, bool in_process, int local_rank) {
  const settings chosen = completed(given);
  gradus::cuda device = make_cuda_device(chosen, local_rank);
  const std::unique_ptr<rank_device> computing = make_gpu(device);
#ifdef GRADUS_BENCH_WITH_NCCL
  if (chosen.all_reduce_spec == nccl_spec) {
    run_rank_on(*computing, world, gradus::comm::nccl{world.duplicate(), device}, chosen, in_process);
    return;
  }
#endif
  run_rank_on(*computing, world, gradus::comm::staged_on_cuda<Communicator>{world.duplicate(), device}, chosen,
              in_process);
}

}  // namespace driver
