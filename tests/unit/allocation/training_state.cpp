// SPDX-License-Identifier: BSL-1.0
//
// A state that is captured again takes no memory.
#include "gradus/train/training_state.hpp"

#include <boost/test/unit_test.hpp>

#include "../../support/training_runs.hpp"
#include "counter.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/train/state.hpp"
#include "gradus/train/trainer.hpp"

namespace training_state_allocation {

/// Allocations of all ranks while each of them captures once more.
template <class Communicator, class Strategy>
long count(Communicator& world, const Strategy& strategy) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<float, gradus::nhwc> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 1}};
  gradus::nn::network<float, gradus::nhwc> net{device, {2, 9, 8}};
  gradus_test::build_training_network(net);
  net.compile({.max_batch_size = 8, .seed = 1});
  gradus::train::trainer trainer{net, gradus::optim::adam{}, world, strategy};
  gradus::train::training_state state;
  trainer.fit(loader, {.epochs = 1, .learning_rate = 0.01},
              [&](const gradus::train::step_report&) { gradus::train::capture(trainer, state); });
  gradus::comm::barrier(world).wait();
  const long before = gradus_test::allocations.load();
  gradus::comm::barrier(world).wait();
  gradus::train::capture(trainer, state);
  gradus::comm::barrier(world).wait();
  const long after = gradus_test::allocations.load();
  gradus::comm::barrier(world).wait();
  return after - before;
}

BOOST_AUTO_TEST_SUITE(training_state)

BOOST_AUTO_TEST_CASE(one_process) {
  gradus::comm::self alone;
  BOOST_TEST(count(alone, gradus::parallel::all_reduce{}) == 0);
}

BOOST_AUTO_TEST_CASE(ranks_in_threads) {
  for (const long each : gradus::comm::run_ranks(
           2, [](gradus::comm::threads& world) { return count(world, gradus::parallel::all_reduce{}); })) {
    BOOST_TEST(each == 0);
  }
  for (const long each : gradus::comm::run_ranks(
           2, [](gradus::comm::threads& world) { return count(world, gradus::parallel::sharded_update{}); })) {
    BOOST_TEST(each == 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace training_state_allocation
