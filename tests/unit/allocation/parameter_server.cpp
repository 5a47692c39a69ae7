// SPDX-License-Identifier: BSL-1.0
//
// A step with a parameter server allocates nothing, on the worker and on the server.
#include "gradus/parallel/parameter_server/parameter_server.hpp"

#include <boost/test/unit_test.hpp>
#include <span>
#include <vector>

#include "counter.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/sgd.hpp"

BOOST_AUTO_TEST_SUITE(allocation)

BOOST_AUTO_TEST_CASE(a_step_with_a_parameter_server_allocates_nothing) {
  using gradus::parallel::server_mode;
  const std::vector<gradus::optim::segment> segments{{.name = "b.weights", .offset = 0, .size = 30000},
                                                     {.name = "a.weights", .offset = 30000, .size = 100}};
  for (const server_mode mode : {server_mode::synchronous, server_mode::bounded_staleness}) {
    gradus::comm::self alone;
    std::vector<float> values(30100, 1.0F);
    std::vector<float> gradients(30100, 0.5F);
    gradus::parallel::parameter_server::state<float, gradus::comm::self> servers{
        {.colocate = true, .mode = mode, .placed = {.least_part_bytes = 4096}}, alone, {values, gradients, segments}};
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
    step();
    const long before = gradus_test::allocations.load();
    step();
    step();
    BOOST_TEST(gradus_test::allocations.load() == before);
    BOOST_TEST(values[0] < 1.0F);
  }
}

BOOST_AUTO_TEST_SUITE_END()
