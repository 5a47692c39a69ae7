// SPDX-License-Identifier: BSL-1.0
//
// Sums in the order of one tree over thread ranks: the conformance suite, and the bits of the sums.
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../../support/communicators.hpp"            // the suite
#include "../../support/communicators_archetype.hpp"  // minimal_communicator
#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/pairwise_sums.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/core/random.hpp"

namespace {

namespace tree_comm = gradus::comm;
namespace tree_suite = communicator_tests;
using tree_of_threads = tree_comm::pairwise_sums<tree_comm::threads>;
using tree_of_collectives = tree_comm::pairwise_sums<tree_comm::collectives<tree_comm::threads>>;

static_assert(tree_comm::communicator<tree_of_threads>);
static_assert(tree_comm::communicator<tree_comm::pairwise_sums<tree_suite::minimal_communicator>>);
static_assert(tree_comm::makes_windows<tree_of_threads, float>);
static_assert(!tree_comm::makes_windows<tree_of_collectives, float>);

/// Numbers of several magnitudes, so that sums in another order have other bits.
template <class Element>
std::vector<Element> tree_contribution(int rank, std::size_t count) {
  const gradus::random_stream stream{static_cast<std::uint64_t>(rank), "contribution"};
  std::vector<Element> numbers;
  for (std::uint64_t i = 0; i < count; ++i) {
    numbers.push_back(static_cast<Element>(static_cast<float>(stream.normal(i)) *
                                           static_cast<float>(1U << stream.below(9, count + i))));
  }
  return numbers;
}

/// The sums over ranks [first, first + ranks), neighbors first.
template <class Element>
std::vector<Element> tree_sum(int first, int ranks, std::size_t count) {
  if (ranks == 1) {
    return tree_contribution<Element>(first, count);
  }
  std::vector<Element> sums = tree_sum<Element>(first, ranks / 2, count);
  const std::vector<Element> others = tree_sum<Element>(first + ranks / 2, ranks / 2, count);
  for (std::size_t i = 0; i < count; ++i) {
    sums[i] = static_cast<Element>(sums[i] + others[i]);
  }
  return sums;
}

template <class Communicator>
void require_tree_sums(Communicator& world, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(world.size());
  auto data = tree_contribution<float>(world.rank(), count * ranks);
  const auto want = tree_sum<float>(0, world.size(), count * ranks);
  std::vector<float> part(count);
  tree_comm::reduce_scatter(world, std::span<const float>{data}, part).wait();
  for (std::size_t i = 0; i < count; ++i) {
    tree_suite::require(part[i] == want[static_cast<std::size_t>(world.rank()) * count + i], "reduce_scatter");
  }
  tree_comm::all_reduce(world, data).wait();
  tree_suite::require(data == want, "all_reduce");
}

template <class Element>
void check_contributions() {
  for (const int ranks : {1, 2, 4, 8, 16}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{200}}) {
      std::vector<std::vector<Element>> all;
      for (int rank = 0; rank < ranks; ++rank) {
        all.push_back(tree_contribution<Element>(rank, count));
      }
      std::vector<Element> sums(count);
      tree_comm::detail::add_in_tree<Element>(
          ranks, 0, static_cast<gradus::index_t>(count),
          [&](int rank) { return static_cast<const Element*>(all[static_cast<std::size_t>(rank)].data()); },
          [&](gradus::index_t i, const Element* values, gradus::index_t of) {
            std::copy(values, values + of, sums.begin() + i);
          });
      BOOST_TEST((sums == tree_sum<Element>(0, ranks, count)));
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_pairwise_sums)

BOOST_AUTO_TEST_CASE(collectives_and_messages) {
  const tree_suite::watchdog guard{std::chrono::seconds{120}};
  for (const int ranks : {1, 2, 4}) {
    BOOST_TEST_CONTEXT(ranks << " ranks") {
      BOOST_TEST(tree_suite::failure_of([&] {
                   tree_comm::run_ranks(ranks, [&](tree_comm::threads& world) {
                     tree_of_threads own{world.duplicate()};
                     for (const auto& each : tree_suite::conformance_cases<tree_of_threads>()) {
                       each.run(own);
                     }
                   });
                 }) == "");
    }
  }
}

BOOST_AUTO_TEST_CASE(failures) {
  const tree_suite::watchdog guard{std::chrono::seconds{120}};
  for (void (*const test)(tree_of_threads&) : {&tree_suite::a_rank_that_fails_is_named<tree_of_threads>,
                                               &tree_suite::pending_requests_end_when_a_rank_fails<tree_of_threads>,
                                               &tree_suite::a_rank_that_leaves_is_named<tree_of_threads>,
                                               &tree_suite::a_wait_has_a_time_limit<tree_of_threads>}) {
    for (const int ranks : {1, 2, 4}) {
      BOOST_TEST(tree_suite::failure_of([&] {
                   tree_comm::run_ranks(ranks, [test](tree_comm::threads& world) {
                     tree_of_threads own{world.duplicate()};
                     test(own);
                   });
                 }) == "");
    }
  }
}

BOOST_AUTO_TEST_CASE(sums_are_those_of_the_tree) {
  const tree_suite::watchdog guard{std::chrono::seconds{120}};
  for (const int ranks : {1, 2, 4, 8}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{37}, std::size_t{5000}}) {
      for (const std::string_view name : tree_comm::all_reduce_algorithm_names) {
        BOOST_TEST_CONTEXT(ranks << " ranks, " << count << " elements, " << name) {
          BOOST_TEST(tree_suite::failure_of([&] {
                       tree_comm::run_ranks(ranks, [&](tree_comm::threads& world) {
                         tree_of_threads own{world.duplicate()};
                         require_tree_sums(own, count);
                         tree_of_collectives around{tree_comm::collectives{
                             world.duplicate(),
                             {.all_reduce = tree_comm::parse_all_reduce_spec(name),
                              .node_of_rank = std::vector<int>(static_cast<std::size_t>(ranks), 0)}}};
                         require_tree_sums(around, count);
                       });
                     }) == "");
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(contributions_in_shared_memory) {
  check_contributions<float>();
  check_contributions<double>();
  check_contributions<gradus::bfloat16>();
  check_contributions<gradus::float16>();
}

BOOST_AUTO_TEST_CASE(a_power_of_two_of_ranks) {
  const tree_suite::watchdog guard{std::chrono::seconds{120}};
  const std::string message = tree_suite::failure_of(
      [] { tree_comm::run_ranks(3, [](tree_comm::threads& world) { tree_of_threads own{world.duplicate()}; }); });
  BOOST_TEST_INFO(message);
  BOOST_TEST(message.find("power of two of ranks") != std::string::npos);
  const std::string in_pairs = tree_suite::failure_of([] {
    tree_comm::run_ranks(3, [](tree_comm::threads& world) {
      const tree_comm::collectives own{world.duplicate(), {.scatter_in_pairs = true}};
    });
  });
  BOOST_TEST_INFO(in_pairs);
  BOOST_TEST(in_pairs.find("a power of two of ranks to add in pairs") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
