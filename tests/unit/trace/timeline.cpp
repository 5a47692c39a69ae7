// SPDX-License-Identifier: BSL-1.0
//
// Arrivals at collectives of subsets of the ranks, which are recorded over one communicator.
#include <boost/test/unit_test.hpp>

#include <cstddef>  // std::size_t
#include <cstdint>  // std::int32_t, std::int64_t, std::uint8_t
#include <utility>  // std::move
#include <vector>   // std::vector

#include "gradus/comm/call.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/subset.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/trace/span.hpp"
#include "gradus/trace/timeline.hpp"
#include "gradus/trace/transfers.hpp"

namespace {

namespace timeline_trace = gradus::trace;
namespace timeline_comm = gradus::comm;

timeline_trace::span all_reduce_span(std::int64_t begin, std::int32_t tag) {
  timeline_trace::span one;
  one.begin = begin;
  one.end = 1000;
  one.what = timeline_trace::category::communicate;
  one.operation = static_cast<std::uint8_t>(timeline_comm::call_kind::all_reduce);
  one.tag = tag;
  return one;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trace_timeline)

BOOST_AUTO_TEST_CASE(ranks_of_a_subset_wait_only_for_each_other) {
  std::vector<timeline_trace::rank_timeline> ranks(4);
  for (std::size_t rank = 0; rank < 4; ++rank) {  // ranks 0 and 2 come at 0 and 20, ranks 1 and 3 at 100 and 300
    ranks[rank].spans = {
        all_reduce_span(rank % 2 == 0 ? 10 * static_cast<std::int64_t>(rank) : 100 * static_cast<std::int64_t>(rank),
                        rank % 2 == 0 ? 1 : 2)};
  }
  const timeline_trace::timeline all{std::move(ranks)};
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const auto last = all.all_arrived(all.ranks()[rank].spans[0]);
    BOOST_REQUIRE(last.has_value());
    BOOST_TEST(last->rank == (rank % 2 == 0 ? 2 : 3));
    BOOST_TEST(last->time == (rank % 2 == 0 ? 20 : 300));
  }
}

BOOST_AUTO_TEST_CASE(a_collective_of_all_ranks_has_arrived_when_all_have_recorded_it) {
  std::vector<timeline_trace::rank_timeline> ranks(3);
  ranks[0].spans = {all_reduce_span(0, 0)};
  ranks[1].spans = {all_reduce_span(5, 0)};
  BOOST_TEST(!timeline_trace::timeline{ranks}.all_arrived(ranks[0].spans[0]).has_value());
  ranks[2].spans = {all_reduce_span(7, 0)};
  BOOST_TEST(timeline_trace::timeline{ranks}.all_arrived(ranks[0].spans[0])->rank == 2);
}

// As of a communicator of a device's memory: the other one has the messages of the comparison.
BOOST_AUTO_TEST_CASE(clocks_are_compared_over_another_communicator) {
  timeline_comm::run_ranks(2, [](timeline_comm::threads& world) {
    timeline_trace::recorder of_hosts;
    auto hosts = timeline_trace::traced(world.duplicate(), of_hosts);
    timeline_trace::recorder recorder;
    auto own = timeline_trace::traced(world.duplicate(), recorder, hosts);
    const std::size_t before = recorder.read().spans.size();
    std::vector<float> data(100);
    timeline_comm::all_reduce(own, data).wait();
    if (world.rank() != 0) {
      return;
    }
    BOOST_TEST(before == 0U);
    BOOST_TEST(recorder.first_clock().has_value());
    std::size_t messages = 0;
    for (const timeline_trace::span& one : of_hosts.read().spans) {
      messages += one.is_message() ? 1U : 0U;
    }
    BOOST_TEST(messages > 0U);
    std::size_t collectives = 0;
    for (const timeline_trace::span& one : recorder.read().spans) {
      collectives += one.is_collective() ? 1U : 0U;
    }
    BOOST_TEST(collectives == 1U);
  });
}

BOOST_AUTO_TEST_CASE(traced_subsets) {
  const auto tags = timeline_comm::run_ranks(4, [](timeline_comm::threads& world) {
    timeline_trace::recorder recorder;
    auto base = timeline_trace::traced(world.duplicate(), recorder);
    const int first = world.rank() % 2;
    timeline_comm::subset own{std::move(base), {first, first + 2}};
    std::vector<float> data(100);
    timeline_comm::all_reduce(own, data).wait();
    std::vector<int> found;
    for (const timeline_trace::span& one : recorder.read().spans) {
      if (one.is_collective() && one.tag != 0) {  // the others are of the constructor
        found.push_back(one.tag);
      }
    }
    return found;
  });
  for (std::size_t rank = 0; rank < 4; ++rank) {
    BOOST_TEST((tags[rank] == std::vector<int>{rank % 2 == 0 ? 1 : 2}));
  }
}

BOOST_AUTO_TEST_SUITE_END()
