// SPDX-License-Identifier: BSL-1.0
//
// Ranks with GPUs of an MPI job.
#include "cuda_rank.hpp"
#include "gradus/comm/mpi.hpp"

namespace driver {

template void run_rank_on_cuda(gradus::comm::mpi&, const settings&, bool, int);

}  // namespace driver
