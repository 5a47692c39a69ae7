// SPDX-License-Identifier: BSL-1.0
//
// A step with parameter servers allocates nothing, on workers and on servers, however late ranks are.
#include "gradus/parameter_server/parameter_server.hpp"

#include <boost/test/unit_test.hpp>
#include <span>
#include <vector>

#include "counter.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/sgd.hpp"

namespace server_allocation {

/// @return  what is allocated in some steps, on all ranks
template <class Communicator>
long count_steps(Communicator& world, const gradus::parallel::parameter_server& options) {
  const std::vector<gradus::optim::segment> segments{{.name = "b.weights", .offset = 0, .size = 30000},
                                                     {.name = "a.weights", .offset = 30000, .size = 100}};
  std::vector<float> values(30100, 1.0F);
  std::vector<float> gradients(30100, 0.5F);
  gradus::parallel::parameter_server::state<float> servers{options, world, {values, gradients, segments}};
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::optim::parameter_update_of<gradus::optim::sgd, float> rule{device, {}, 0};
  servers.use(rule);
  servers.start();
  const auto step = [&] {
    servers.gradients_ready(0, 1);
    servers.gradients_ready(1, 1);
    servers.end_of_step(0.1);
    servers.finish([](std::span<const gradus::optim::segment>) {});
  };
  gradus::comm::barrier(world).wait();
  const long before = gradus_test::allocations.load();
  gradus::comm::barrier(world).wait();
  for (int i = 0; i < 3; ++i) {
    step();
  }
  gradus::comm::barrier(world).wait();
  const long after = gradus_test::allocations.load();
  gradus::comm::barrier(world).wait();
  return values[0] < 1.0F ? after - before : -1;
}

}  // namespace server_allocation

BOOST_AUTO_TEST_SUITE(allocation)

BOOST_AUTO_TEST_CASE(a_step_with_parameter_servers_allocates_nothing) {
  using gradus::parallel::server_mode;
  for (const server_mode mode : {server_mode::synchronous, server_mode::bounded_staleness}) {
    const gradus::parallel::placement_options small_parts{.least_part_bytes = 4096};
    gradus::comm::self alone;
    BOOST_TEST(server_allocation::count_steps(alone, {.colocate = true, .mode = mode, .placed = small_parts}) == 0);
    const auto counts = gradus::comm::run_ranks(2, [&](gradus::comm::threads& world) {
      return server_allocation::count_steps(world,
                                            {.servers = 2, .colocate = true, .mode = mode, .placed = small_parts});
    });
    BOOST_TEST(counts[0] == 0);
    BOOST_TEST(counts[1] == 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()
