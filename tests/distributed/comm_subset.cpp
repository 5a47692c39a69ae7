// SPDX-License-Identifier: BSL-1.0
//
// Subsets of MPI ranks pass the conformance suite: all, even and odd, all in reversed order, the last in none; and even
// and odd ranks that share memory.
#include <utility>  // std::move
#include <vector>   // std::vector

#include "../support/communicators_mpi.hpp"
#include "gradus/comm/mpi_shared.hpp"
#include "gradus/comm/subset.hpp"

namespace {

namespace suite = communicator_tests;
namespace comm = gradus::comm;

/// The suite on the subset of this rank; a rank of none makes the same duplicates.
template <class Communicator>
void run_on_subset(Communicator base, const std::vector<int>& list) {
  comm::subset<Communicator> own{std::move(base), list};
  if (own.size() == 0) {
    static_cast<void>(own.duplicate());
    return;
  }
  suite::run_cases(own, suite::conformance_cases<comm::subset<Communicator>>());
}

/// The ranks first, first + step, ... below `end`.
std::vector<int> ranks_of(int first, int end, int step) {
  std::vector<int> ranks;
  for (int rank = first; rank < end; rank += step) {
    ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

int main(int argc, char** argv) {
  comm::mpi_environment environment{argc, argv};
  return suite::run_conformance(environment, argc, argv, [&](comm::mpi& world) {
    const int rank = world.rank();
    const int size = world.size();
    const std::vector<int> all = ranks_of(0, size, 1);
    const std::vector<int> even_or_odd = ranks_of(rank % 2, size, 2);
    run_on_subset(world.duplicate(), all);
    run_on_subset(world.duplicate(), even_or_odd);
    run_on_subset(world.duplicate(), {all.rbegin(), all.rend()});
    run_on_subset(world.duplicate(), rank == size - 1 ? std::vector<int>{} : ranks_of(0, size - 1, 1));
    run_on_subset(comm::mpi_shared{environment}, even_or_odd);
  });
}
