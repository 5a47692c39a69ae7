// SPDX-License-Identifier: BSL-1.0
//
// Ranks on nodes, played by thread ranks: the all-reduce in two levels passes the conformance suite.
#include <boost/test/unit_test.hpp>

#include <memory>
#include <vector>

#include "../../support/communicators.hpp"  // the suite
#include "gradus/comm/hierarchical.hpp"
#include "gradus/comm/threads.hpp"

namespace {

namespace comm = gradus::comm;
namespace suite = communicator_tests;
using nodes = comm::hierarchical<comm::threads, comm::threads, comm::threads>;
static_assert(comm::communicator<nodes>);

/// Calls body(communicator) on the ranks of nodes; `sizes` holds the number of ranks of each node.
template <class Body>
void run_on_nodes(const std::vector<int>& sizes, comm::hierarchical_options options, const Body& body) {
  struct rank_channels {
    comm::threads local;
    comm::threads across;
  };
  const int most = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::vector<comm::threads>> across;  // by position on the node, then by node among those that have it
  for (int k = 0; k < most; ++k) {
    across.push_back(comm::threads::create(
        static_cast<int>(std::count_if(sizes.begin(), sizes.end(), [k](int size) { return size > k; }))));
  }
  std::vector<int> taken(static_cast<std::size_t>(most));
  std::vector<std::unique_ptr<rank_channels>> channels;
  for (const int size : sizes) {
    std::vector<comm::threads> local = comm::threads::create(size);
    for (std::size_t k = 0; k < local.size(); ++k) {
      channels.push_back(std::make_unique<rank_channels>(
          rank_channels{std::move(local[k]), std::move(across[k][static_cast<std::size_t>(taken[k]++)])}));
    }
  }
  comm::run_ranks(static_cast<int>(channels.size()), [&](comm::threads& world) {
    rank_channels& mine = *channels[static_cast<std::size_t>(world.rank())];
    nodes own{std::move(mine.local), std::move(mine.across), world.duplicate(), options};
    body(own);
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_hierarchical)

BOOST_AUTO_TEST_CASE(collectives_and_messages) {
  const suite::watchdog guard{std::chrono::seconds{120}};
  for (const auto& sizes : std::vector<std::vector<int>>{{1}, {2}, {1, 1}, {2, 2}, {3, 3}, {2, 1}, {1, 3, 2}}) {
    for (const comm::hierarchical_options options :
         {comm::hierarchical_options{.segment_bytes = 1000, .leader_bytes = 0}, comm::hierarchical_options{}}) {
      BOOST_TEST_CONTEXT(sizes.size() << " nodes, the first with " << sizes[0] << " ranks, segments of "
                                      << options.segment_bytes) {
        BOOST_TEST(suite::failure_of([&] {
                     run_on_nodes(sizes, options, [](nodes& own) {
                       for (const auto& each : suite::conformance_cases<nodes>()) {
                         each.run(own);
                       }
                     });
                   }) == "");
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(many_under_way_in_many_segments) {
  const suite::watchdog guard{std::chrono::seconds{300}};
  run_on_nodes({2, 2}, {.segment_bytes = 800, .leader_bytes = 100}, [](nodes& own) {
    for (int round = 0; round < 20; ++round) {
      std::vector<std::vector<float>> data;
      std::vector<comm::request> pending;
      for (const std::size_t size : {10U, 5003U, 24U, 1001U, 9999U}) {
        data.push_back(suite::contributions<float>(own.rank(), size));
      }
      for (auto& each : data) {
        pending.push_back(comm::all_reduce(own, each));
      }
      for (std::size_t k = pending.size(); k > 0; --k) {
        pending[(k + static_cast<std::size_t>(own.rank())) % pending.size()].wait();
      }
      for (const auto& each : data) {
        suite::require_same(each, suite::expected_values<float>(own.size(), each.size()), "sum");
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(parts_of_different_jobs_are_refused) {
  const suite::watchdog guard{std::chrono::seconds{300}};
  const auto results = comm::run_ranks(2, [](comm::threads& world) {
    comm::threads local = std::move(comm::threads::create(1)[0]);
    comm::threads across = std::move(comm::threads::create(1)[0]);  // two nodes, but `across` does not join them
    return suite::failure_of([&] { nodes{std::move(local), std::move(across), world.duplicate()}; });
  });
  for (const std::string& message : results) {
    BOOST_TEST(
        message.find("`across` with the ranks of all nodes that have the same index in `local`; there are 2 nodes") !=
            std::string::npos,
        message);
    BOOST_TEST(message.find("mpi_shared::split_by_node makes both") != std::string::npos, message);
  }
  const auto others = comm::run_ranks(2, [](comm::threads& world) {
    return suite::failure_of([&] {
      nodes{world.duplicate(),
            std::move(comm::threads::create(1)[0]),
            world.duplicate(),
            {.segment_bytes = 100 + world.rank()}};
    });
  });
  for (const std::string& message : others) {
    BOOST_TEST(message.find("the same options on all ranks") != std::string::npos, message);
  }
}

BOOST_AUTO_TEST_SUITE_END()
