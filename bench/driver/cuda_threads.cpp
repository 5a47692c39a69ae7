// SPDX-License-Identifier: BSL-1.0
//
// Ranks with GPUs in threads of one process.
#include "cuda_rank.hpp"
#include "gradus/comm/threads.hpp"

namespace driver {

template void run_rank_on_cuda(gradus::comm::threads&, const settings&, bool, int);

}  // namespace driver
