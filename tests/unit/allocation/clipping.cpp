// SPDX-License-Identifier: BSL-1.0
//
// A step with clipped gradients allocates nothing: in one process, on ranks that update parts, and on a server.
#include "../../support/update_state.hpp"
#include "gradus/optim/update.hpp"

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <span>
#include <vector>

#include "counter.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parameter_server/parameter_server.hpp"

namespace clipping_allocation {

namespace optim = gradus::optim;
namespace parallel = gradus::parallel;

const std::vector<optim::segment>& parameters() {
  static const std::vector<optim::segment> all{{.name = "b.weights", .offset = 0, .size = 30000},
                                               {.name = "a.weights", .offset = 30000, .size = 100}};
  return all;
}

template <class Rule>
void check_state(const Rule& rule) {
  gradus::cpu device{{.intra_op_threads = 2}};
  std::vector<float> values(30100, 1.0F);
  const std::vector<float> gradients(30100, 0.5F);
  gradus_test::update_state<float> state{device, rule, 30100};
  state.update(device, parameters(), values.data(), gradients.data(), {0.1, 0});
  const long before = gradus_test::allocations.load();
  for (std::uint64_t step = 1; step < 4; ++step) {
    state.update(device, parameters(), values.data(), gradients.data(), {0.1, step});
  }
  BOOST_TEST(gradus_test::allocations.load() == before);
}

/// Steps of a strategy. @return  what is allocated in some of them, on all ranks
template <class Strategy, class Communicator>
long count_steps(Communicator& world, const Strategy& options) {
  std::vector<float> values(30100, 1.0F);
  std::vector<float> gradients(30100, 0.5F);
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus_test::update_state<float> rule{device, optim::update<optim::sgd>{.max_norm = 1}, 30100};
  const auto made = gradus::parallel::make_strategy<float>(options, world, {values, gradients, parameters()});
  gradus::parallel::strategy<float>& strategy = *made;
  strategy.use(*rule);
  strategy.start();
  const auto apply = [&](std::span<const optim::segment> ready) {
    rule->update(ready, values.data(), gradients.data(), {0.1, 0});
  };
  const auto step = [&] {
    strategy.gradients_ready(0, 1);
    strategy.gradients_ready(1, 1);
    strategy.end_of_step(0.1);
    strategy.finish(apply);
  };
  step();
  step();
  gradus::comm::barrier(world).wait();
  const long before = gradus_test::allocations.load();
  gradus::comm::barrier(world).wait();
  step();
  step();
  gradus::comm::barrier(world).wait();
  const long after = gradus_test::allocations.load();
  gradus::comm::barrier(world).wait();
  return values[0] < 1.0F ? after - before : -1;
}

}  // namespace clipping_allocation

BOOST_AUTO_TEST_SUITE(allocation)

BOOST_AUTO_TEST_CASE(a_step_with_clipped_gradients_allocates_nothing) {
  using namespace clipping_allocation;
  check_state(optim::update<optim::adam>{.max_norm = 2});
  check_state(optim::update<optim::sgd>{.rule = {.momentum = 0.9}, .clip_value = 0.1});
  check_state(optim::update<optim::sgd>{.max_norm = 2, .clip_value = 0.1, .loss_scaling = {}, .average = 0.9});
  const auto counts = gradus::comm::run_ranks(
      2, [](gradus::comm::threads& world) { return count_steps(world, parallel::sharded_update{}); });
  BOOST_TEST(counts[0] == 0);
  BOOST_TEST(counts[1] == 0);
  const auto served = gradus::comm::run_ranks(2, [](gradus::comm::threads& world) {
    return count_steps(world, parallel::parameter_server{.servers = 2, .colocate = true});
  });
  BOOST_TEST(served[0] == 0);
  BOOST_TEST(served[1] == 0);
  gradus::comm::self alone;
  BOOST_TEST(count_steps(alone, parallel::parameter_server{.colocate = true}) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
