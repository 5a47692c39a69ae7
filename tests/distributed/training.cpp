// SPDX-License-Identifier: BSL-1.0
//
// Training over MPI reaches the weights of one process, with the library's all-reduce and around a ring, in both
// layouts; ranks that disagree are told so.
#include <gradus/comm/collectives.hpp>
#include <gradus/comm/self.hpp>
#include <stdexcept>
#include <string>

#include "../support/training_runs.hpp"
#include "communicators_mpi.hpp"

namespace {

namespace comm = gradus::comm;

void require(bool holds, const std::string& what) {
  if (!holds) {
    throw std::runtime_error{what};
  }
}

template <class Layout, class Communicator>
void require_one_meaning(Communicator& world, const std::string& name) {
  comm::self alone;
  const auto want = gradus_test::run_training<Layout>(alone);
  const auto have = gradus_test::run_training<Layout>(world);
  const double difference = gradus_test::largest_difference(have.weights, want.weights);
  require(difference < 1e-9, name + ": weights differ from those of one process by " + std::to_string(difference));
  require(gradus_test::largest_difference(have.losses, want.losses) < 1e-10, name + ": losses differ");
  require(have.accuracy == want.accuracy, name + ": accuracies differ");
}

void require_disagreement_is_named(comm::mpi& world) {
  if (world.size() == 1) {
    return;
  }
  try {
    gradus_test::run_training<gradus::nchw>(world, {.seed = world.rank() == 1 ? 5U : 4U});
  } catch (const gradus::error& failure) {
    const std::string message = failure.what();
    require(message.find("seed") != std::string::npos && message.find("rank 1") != std::string::npos,
            "the message does not name the seed and rank 1: " + message);
    return;
  }
  throw std::runtime_error{"ranks with other seeds were not refused"};
}

}  // namespace

int main(int argc, char** argv) {
  return communicator_tests::run_conformance(argc, argv, [](comm::mpi& world) {
    require_one_meaning<gradus::nhwc>(world, "mpi, nhwc");
    require_one_meaning<gradus::nchw>(world, "mpi, nchw");
    comm::collectives around{world.duplicate(), {.all_reduce = comm::parse_all_reduce_spec("ring")}};
    require_one_meaning<gradus::nhwc>(around, "ring over mpi");
    require_disagreement_is_named(world);
    if (world.rank() == 0) {
      std::printf("passed: one meaning\n");
    }
  });
}
