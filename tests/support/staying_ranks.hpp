// SPDX-License-Identifier: BSL-1.0
//
// The ranks that go on when one of them leaves.
#pragma once

#include <mpi.h>

namespace communicator_tests {

/// The first of them that misses the one that left reports it to all, which ends what they have under way: each first
/// completes what it can without that rank. All ranks construct it.
class staying_ranks {
 public:
  explicit staying_ranks(bool stays) { MPI_Comm_split(MPI_COMM_WORLD, stays ? 0 : MPI_UNDEFINED, 0, &staying_); }
  void meet() const { MPI_Barrier(staying_); }

 private:
  MPI_Comm staying_ = MPI_COMM_NULL;
};

}  // namespace communicator_tests
