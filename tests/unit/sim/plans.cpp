// SPDX-License-Identifier: BSL-1.0
//
// Plans as data are those that are run: message schedules of comm, transfers of parallel::all_reduce.
#include <boost/test/unit_test.hpp>

#include <map>      // std::map
#include <utility>  // std::pair
#include <vector>   // std::vector

#include "gradus/comm/message_schedule.hpp"
#include "gradus/core/error.hpp"
#include "gradus/parallel/transfer_plan.hpp"
#include "workloads.hpp"

namespace {

namespace comm = gradus::comm;
namespace parallel = gradus::parallel;
using gradus::index_t;

}  // namespace

BOOST_AUTO_TEST_SUITE(simulated_plans)

BOOST_AUTO_TEST_CASE(what_a_rank_sends_another_receives) {
  for (const comm::call_kind kind :
       {comm::call_kind::all_reduce, comm::call_kind::broadcast, comm::call_kind::reduce_scatter,
        comm::call_kind::all_gather, comm::call_kind::barrier}) {
    for (int algorithm = 1; algorithm < 8; ++algorithm) {
      for (const int size : {2, 3, 7, 8}) {
        if (kind == comm::call_kind::reduce_scatter && algorithm == 2 && size % 2 == 1) {
          continue;  // adds in pairs
        }
        std::vector<int> ranks;
        std::vector<int> nodes;
        for (int i = 0; i < size; ++i) {
          ranks.push_back(3 * i + 1);  // of a larger communicator
          nodes.push_back(i / 3);
        }
        std::map<std::pair<int, int>, std::vector<index_t>> sent;
        std::map<std::pair<int, int>, std::vector<index_t>> received;
        for (int i = 0; i < size; ++i) {
          const auto plan = comm::message_schedule_of({.kind = kind,
                                                       .algorithm = static_cast<comm::all_reduce_algorithm>(algorithm),
                                                       .count = 1000,
                                                       .segment = 64},
                                                      ranks, i, nodes);
          const int own = ranks[static_cast<std::size_t>(i)];
          for (const comm::scheduled_send& each : plan->sends()) {
            sent[{own, each.peer}].push_back(each.range.size());
            BOOST_TEST(each.range.size() <= 64);
          }
          for (const comm::scheduled_receive& each : plan->receives()) {
            received[{each.peer, own}].push_back(each.range.size());
          }
        }
        BOOST_TEST(!sent.empty());
        BOOST_TEST((sent == received), name_of(kind) << " " << algorithm << " of " << size);
      }
    }
  }
  const std::vector<int> two{0, 1};
  BOOST_CHECK_THROW(static_cast<void>(comm::message_schedule_of({}, two, 2, {})), gradus::configuration_error);
  BOOST_CHECK_THROW(static_cast<void>(comm::message_schedule_of({}, two, -1, {})), gradus::configuration_error);
  BOOST_CHECK_THROW(static_cast<void>(comm::message_schedule_of({}, two, 0, std::vector<int>{0})),
                    gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(transfers_travel_in_the_order_of_the_options) {
  const auto work = gradus_test::simulated_workload({100, 200, 300, 400}, 1, 1);
  const parallel::all_reduce options{
      .bucket_bytes = 1200, .first_bucket_bytes = 1200, .partition_bytes = 800, .order = {5, 3, 1, 2, 0, 4}};
  const auto plan = parallel::plan_transfers(options, work.segments, work.elements, 4);
  BOOST_TEST(plan.buckets.size() == 3);  // 400 elements, 300, and what is left
  BOOST_TEST(plan.parts.size() == 6);
  index_t elements = 0;
  for (const parallel::part& each : plan.parts) {
    elements += each.size();
    BOOST_TEST(each.size() <= 200);
  }
  BOOST_TEST(elements > 0);
  parallel::all_reduce wrong = options;
  wrong.order = {0, 0, 1, 2, 3, 4};
  BOOST_CHECK_THROW(static_cast<void>(parallel::plan_transfers(wrong, work.segments, work.elements, 4)),
                    gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(credit_is_for_parts_that_travel_together) {
  BOOST_TEST(parallel::has_credit(0, 1000, 10));
  BOOST_TEST(parallel::has_credit(6, 4, 10));
  BOOST_TEST(!parallel::has_credit(7, 4, 10));
}

BOOST_AUTO_TEST_SUITE_END()
