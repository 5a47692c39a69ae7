// SPDX-License-Identifier: BSL-1.0
//
// The queue of events against a list that is sorted.
#include <boost/test/unit_test.hpp>

#include <algorithm>  // std::min_element
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint32_t
#include <utility>    // std::pair
#include <vector>     // std::vector

#include "gradus/core/index.hpp"
#include "gradus/sim/detail/replay/events.hpp"
#include "sweep.hpp"

BOOST_AUTO_TEST_SUITE(simulated_events)

BOOST_AUTO_TEST_CASE(events_come_in_the_order_of_time_whatever_their_lanes) {
  using gradus::sim::detail::event_queue;
  gradus_test::sweep("events_come_in_the_order_of_time_whatever_their_lanes", 300, [](gradus_test::sweep_case& draw) {
    const gradus::index_t lanes = draw.between("lanes", 0, 5);
    const gradus::index_t pushes = draw.between("pushes", 1, 120);
    const bool in_order = draw.flip("in order");  // of a lane, as those of ports are
    event_queue queue{static_cast<std::size_t>(lanes)};
    std::vector<std::pair<double, std::uint32_t>> expected;  // time and number of what is in the queue
    std::vector<double> last(static_cast<std::size_t>(lanes) + 1, 0);
    std::uint32_t number = 0;
    double now = 0;
    const auto pop = [&] {
      const auto soonest = std::min_element(expected.begin(), expected.end());
      const auto found = queue.pop();
      if (found.item != soonest->second || found.time != soonest->first) {
        draw.fail("another event than the soonest one");
      }
      now = found.time;
      expected.erase(soonest);
    };
    for (gradus::index_t i = 0; i < pushes; ++i) {
      const gradus::index_t lane = draw.between("lane", 0, lanes);
      double& before = last[static_cast<std::size_t>(lane)];
      const double time = (in_order && before > now ? before : now) + static_cast<double>(draw.between("later", 0, 3));
      before = time;
      queue.push(lane == lanes ? event_queue::no_lane : static_cast<std::uint32_t>(lane), time, 0, 0, 0, number);
      expected.emplace_back(time, number++);
      while (!expected.empty() && draw.flip("pop", 2)) {
        pop();
      }
    }
    while (!expected.empty()) {
      pop();
    }
    if (!queue.empty() || queue.pushed() != number) {
      draw.fail("events that nobody pushed");
    }
  });
}

BOOST_AUTO_TEST_SUITE_END()
