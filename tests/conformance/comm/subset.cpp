// SPDX-License-Identifier: BSL-1.0
//
// Subsets of thread ranks: the conformance suite, wrong lists, failures, and which messages they send.
#include <boost/test/unit_test.hpp>

#include <algorithm>    // std::count_if, std::find
#include <chrono>       // std::chrono
#include <cstddef>      // std::byte, std::size_t
#include <memory>       // std::make_shared
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <thread>       // std::this_thread
#include <utility>      // std::move
#include <vector>       // std::vector

#include "../../support/communicators.hpp"            // the suite
#include "../../support/communicators_archetype.hpp"  // minimal_communicator
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/hierarchical.hpp"
#include "gradus/comm/pairwise_sums.hpp"
#include "gradus/comm/recorded.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/subset.hpp"
#include "gradus/comm/threads.hpp"

namespace {

namespace subset_comm = gradus::comm;
namespace subset_suite = communicator_tests;
using subset_of_threads = subset_comm::subset<subset_comm::threads>;
using subset_lists = std::vector<std::vector<int>>;

static_assert(subset_comm::communicator<subset_of_threads>);
static_assert(subset_comm::communicator<subset_comm::subset<subset_suite::minimal_communicator>>);
static_assert(subset_comm::communicator<subset_comm::subset<subset_of_threads>>);

/// The list that has the rank; empty if none has it.
std::vector<int> list_of(const subset_lists& lists, int rank) {
  for (const std::vector<int>& each : lists) {
    if (std::find(each.begin(), each.end(), rank) != each.end()) {
      return each;
    }
  }
  return {};
}

/// Calls body(subset) on the ranks of the lists, and other(subset) on the other ranks.
template <class Body, class Other>
std::string failure_on_subsets(int ranks, const subset_lists& lists, const Body& body, const Other& other) {
  return subset_suite::failure_of([&] {
    subset_comm::run_ranks(ranks, [&](subset_comm::threads& world) {
      subset_of_threads own{world.duplicate(), list_of(lists, world.rank())};
      own.size() == 0 ? other(own) : body(own);
    });
  });
}

/// The messages of the error that each rank gets for its list.
std::vector<std::string> errors_of_lists(const subset_lists& list_of_rank,
                                         const subset_comm::collectives_options& options = {}) {
  return subset_comm::run_ranks(static_cast<int>(list_of_rank.size()), [&](subset_comm::threads& world) {
    return subset_suite::message_of<gradus::configuration_error>([&] {
      const subset_of_threads own{world.duplicate(), list_of_rank[static_cast<std::size_t>(world.rank())], options};
    });
  });
}

void require_error_everywhere(const subset_lists& list_of_rank, std::string_view part,
                              const subset_comm::collectives_options& options = {}) {
  for (const std::string& message : errors_of_lists(list_of_rank, options)) {
    BOOST_TEST(message.find(part) != std::string::npos, message << "\nlacks: " << part);
    BOOST_TEST(message.find("subset.cpp:") != std::string::npos, message);
  }
}

/// A recorder that keeps the calls of a rank.
class kept_calls {
 public:
  using channel = int;
  struct entry {};

  entry begin(channel& on, const subset_comm::call_description& what, std::span<const std::byte> /*memory*/) {
    if (what.kind != subset_comm::call_kind::duplicate) {
      calls.push_back(what);
      channels.push_back(on);
    }
    return {};
  }
  void end(entry& /*of*/) const noexcept {}
  void fail(entry& /*of*/, std::string_view /*reason*/) const noexcept {}

  [[nodiscard]] auto count(subset_comm::call_kind kind) const {
    return std::count_if(calls.begin(), calls.end(), [kind](const auto& each) { return each.kind == kind; });
  }

  std::vector<subset_comm::call_description> calls;
  std::vector<int> channels;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_subset)

BOOST_AUTO_TEST_CASE(collectives_and_messages) {
  const subset_suite::watchdog guard{std::chrono::seconds{300}};
  struct {
    int ranks;
    subset_lists lists;
  } const cases[] = {
      {1, {{0}}},
      {2, {{0, 1}}},
      {3, {{0, 1, 2}}},
      {4, {{0, 2}, {1, 3}}},
      {5, {{0, 2, 4}, {1, 3}}},
      {4, {{0, 1, 3}}},          // rank 2 is in none
      {4, {{3, 2, 1, 0}}},       // reversed
      {3, {{0}, {1}, {2}}},      // one rank each
      {6, {{5, 0}, {2, 1, 3}}},  // rank 4 is in none
  };
  for (const auto& each : cases) {
    BOOST_TEST_CONTEXT(each.ranks << " ranks, the first subset has " << each.lists[0].size()) {
      BOOST_TEST(failure_on_subsets(
                     each.ranks, each.lists,
                     [](subset_of_threads& own) {
                       for (const auto& test : subset_suite::conformance_cases<subset_of_threads>()) {
                         test.run(own);
                       }
                     },
                     [](subset_of_threads& own) {
                       const subset_of_threads copy = own.duplicate();  // as duplicates_are_independent
                       BOOST_TEST(copy.size() == 0);
                     }) == "");
    }
  }
}

BOOST_AUTO_TEST_CASE(failures) {
  const subset_suite::watchdog guard{std::chrono::seconds{120}};
  using test = void (*)(subset_of_threads&);
  const auto nothing = [](subset_of_threads&) {};
  const auto duplicate = [](subset_of_threads& own) { static_cast<void>(own.duplicate()); };
  // Rank 3 is in none. The others have the same numbers in the base.
  const subset_lists but_rank_3{{0, 1, 2}};
  for (const test each : {test{&subset_suite::a_rank_that_fails_is_named<subset_of_threads>},
                          test{&subset_suite::a_rank_that_leaves_is_named<subset_of_threads>}}) {
    BOOST_TEST(failure_on_subsets(4, but_rank_3, each, duplicate) == "");
    BOOST_TEST(failure_on_subsets(3, but_rank_3, each, duplicate) == "");
  }
  for (const test each : {test{&subset_suite::pending_requests_end_when_a_rank_fails<subset_of_threads>},
                          test{&subset_suite::a_wait_has_a_time_limit<subset_of_threads>},
                          test{&subset_suite::a_receive_has_a_time_limit<subset_of_threads>}}) {
    BOOST_TEST(failure_on_subsets(4, but_rank_3, each, nothing) == "");
    BOOST_TEST(failure_on_subsets(3, but_rank_3, each, nothing) == "");
  }
}

BOOST_AUTO_TEST_CASE(errors_of_communication_name_ranks_of_the_base) {
  const subset_suite::watchdog guard{std::chrono::seconds{120}};
  const auto messages = subset_comm::run_ranks(4, [](subset_comm::threads& world) {
    const int first = world.rank() % 2;
    subset_of_threads own{world.duplicate(), {first, first + 2}};
    if (world.rank() == 3) {
      own.fail("the disk is full");
      return std::string{};
    }
    std::vector<float> data(100);
    return subset_suite::message_of<gradus::communication_error>([&] {
      for (;;) {  // the subset of ranks 0 and 2 ends too, though each of them comes
        subset_comm::all_reduce(own, data).wait();
      }
    });
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    BOOST_TEST(messages[rank].find("rank 3 failed: the disk is full") != std::string::npos, messages[rank]);
  }
  const auto late = subset_comm::run_ranks(4, [](subset_comm::threads& world) {
    const int first = world.rank() % 2;
    subset_of_threads own{world.duplicate(), {first, first + 2}};
    std::vector<float> data(100);
    if (world.rank() != 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds{world.rank() == 3 ? 600 : 0});
      return std::string{};
    }
    own.set_time_limit(std::chrono::milliseconds{100});
    return subset_suite::message_of<gradus::communication_error>([&] { subset_comm::all_reduce(own, data).wait(); });
  });
  BOOST_TEST(late[1].find("no progress from rank 3") != std::string::npos, late[1]);
}

BOOST_AUTO_TEST_CASE(wrong_lists_are_errors_on_all_ranks) {
  const subset_suite::watchdog guard{std::chrono::seconds{120}};
  require_error_everywhere({{0, 1}, {0, 1}, {2, 3}, {2, 4}},
                           "comm::subset: expected ranks from 0 to 3, got {2, 4} on rank 3.");
  require_error_everywhere({{0, -1}, {1}, {}}, "expected ranks from 0 to 2, got {0, -1} on rank 0.");
  require_error_everywhere({{0}, {1, 1}, {2}}, "expected a list with each rank once, got {1, 1} on rank 1.");
  require_error_everywhere({{0}, {1}, {0, 1}},
                           "expected a list with the rank that passes it, got {0, 1} on rank 2. Hint: a rank of no "
                           "subset passes an empty list.");
  const std::string_view differ = "expected the same list on all ranks that it names, got ";
  require_error_everywhere({{0, 1}, {1, 0}}, std::string{differ} + "{0, 1} on rank 0; {1, 0} on rank 1.");
  require_error_everywhere({{0}, {1, 2}, {}}, std::string{differ} + "{1, 2} on rank 1; {} on rank 2.");
  require_error_everywhere({{0, 1}, {1, 2}, {1, 2}}, std::string{differ} + "{0, 1} on rank 0; {1, 2} on rank 1.");
  require_error_everywhere({{0}, {}, {2, 1, 0}}, std::string{differ} + "{2, 1, 0} on rank 2; {} on rank 1.");
  require_error_everywhere({{0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {}}, "a power of two of ranks to add in pairs, got {0, 1",
                           {.scatter_in_pairs = true});
  require_error_everywhere({{0}, {1}}, "segment_bytes of at least 1", {.segment_bytes = 0});
  require_error_everywhere({{0}, {1}}, "a node for each of 2 ranks, got 1", {.node_of_rank = {0}});
  const subset_comm::self alone;
  BOOST_CHECK_THROW((subset_comm::subset{alone.duplicate(), {1}}), gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(options_that_differ_are_errors_on_all_ranks) {
  const subset_suite::watchdog guard{std::chrono::seconds{120}};
  const auto messages = subset_comm::run_ranks(3, [](subset_comm::threads& world) {
    return subset_suite::message_of<gradus::configuration_error>([&] {
      const subset_of_threads own{world.duplicate(), {world.rank()}, {.segment_bytes = world.rank() == 2 ? 8 : 16}};
    });
  });
  for (const std::string& message : messages) {
    BOOST_TEST(
        message.find("the same segment_bytes on all ranks, got 16 on ranks 0, 1; 8 on rank 2") != std::string::npos,
        message);
  }
}

BOOST_AUTO_TEST_CASE(members_and_ranks) {
  const subset_suite::watchdog guard{std::chrono::seconds{120}};
  BOOST_TEST(failure_on_subsets(
                 4, {{3, 0}, {1}},
                 [](subset_of_threads& own) {
                   const std::vector<int> list{own.ranks().begin(), own.ranks().end()};
                   const int rank = own.base().rank();
                   subset_suite::require(list == (rank == 1 ? std::vector{1} : std::vector{3, 0}), "the list");
                   subset_suite::require(own.rank() == (rank == 0 ? 1 : 0), "the rank");
                   subset_suite::require(own.options().segment_bytes == 1024 * 1024, "the options");
                 },
                 [](subset_of_threads& own) {  // of none
                   own.set_time_limit(std::chrono::seconds{5});
                   subset_suite::require(own.time_limit() == std::chrono::seconds{5}, "the time limit");
                   std::vector<float> data(4);
                   subset_suite::require_contains(subset_suite::message_of<gradus::configuration_error>(
                                                      [&] { subset_comm::all_reduce(own, data).wait(); }),
                                                  "open communicator");
                 }) == "");
}

BOOST_AUTO_TEST_CASE(a_subset_of_all_ranks_has_the_collectives_of_the_base) {
  const subset_suite::watchdog guard{std::chrono::seconds{120}};
  using subset_comm::call_kind;
  const auto calls_of = [](const std::vector<int>& list) {
    return subset_comm::run_ranks(4, [&](subset_comm::threads& world) {
      const auto calls = std::make_shared<kept_calls>();
      subset_comm::recorded<subset_comm::threads, kept_calls> base{world.duplicate(), calls};
      const auto own_list =
          std::find(list.begin(), list.end(), world.rank()) == list.end() ? std::vector{world.rank()} : list;
      subset_comm::subset own{std::move(base), own_list};
      own.recorder().calls.clear();
      own.recorder().channels.clear();
      std::vector<float> data(100, 1.0F);
      subset_comm::all_reduce(own, data).wait();
      subset_suite::require(data[99] == static_cast<float>(own_list.size()), "the sum");
      subset_comm::broadcast(own, data, own.size() - 1).wait();
      subset_comm::barrier(own).wait();
      return *calls;
    });
  };
  for (const kept_calls& each : calls_of({0, 1, 2, 3})) {
    BOOST_TEST(each.calls.size() == 3U);
    BOOST_TEST((each.channels == std::vector{0, 0, 0}));  // no duplicate
  }
  for (const kept_calls& each : calls_of({0, 1, 3, 2})) {
    BOOST_TEST(each.count(call_kind::all_reduce) == 1);
    BOOST_TEST(each.count(call_kind::send) > 0);
  }
  const auto three = calls_of({1, 3, 0});  // rank 2 is in a subset of its own
  for (const std::size_t rank : {0U, 1U, 3U}) {
    for (const auto& each : three[rank].calls) {
      BOOST_TEST((each.kind == call_kind::barrier || each.kind == call_kind::all_reduce || each.peer != 2));
      BOOST_TEST((each.kind != call_kind::broadcast || each.peer == 0));  // a rank of the base
    }
  }
  BOOST_TEST(three[2].calls.size() == 3U);  // one rank sends nothing
}

BOOST_AUTO_TEST_CASE(nodes_are_those_of_the_ranks_of_the_base) {
  const subset_suite::watchdog guard{std::chrono::seconds{120}};
  const auto calls = subset_comm::run_ranks(5, [](subset_comm::threads& world) {
    const auto kept = std::make_shared<kept_calls>();
    subset_comm::recorded<subset_comm::threads, kept_calls> base{world.duplicate(), kept};
    subset_comm::subset own{
        std::move(base),
        world.rank() == 4 ? std::vector{4} : std::vector{3, 0, 2, 1},
        {.all_reduce = subset_comm::parse_all_reduce_spec("hierarchical_ring"), .node_of_rank = {0, 1, 0, 1, 0}}};
    std::vector<float> data(1000, static_cast<float>(world.rank()));
    subset_comm::all_reduce(own, data).wait();
    subset_suite::require(data[999] == (world.rank() == 4 ? 4.0F : 6.0F), "the sum");
    return *kept;
  });
  // The nodes are {3, 1} and {0, 2}. Between nodes rank 3 sends to rank 0 and rank 1 to rank 2, and back.
  for (int rank = 0; rank < 4; ++rank) {
    BOOST_TEST(calls[static_cast<std::size_t>(rank)].count(subset_comm::call_kind::send) > 0);
    for (const auto& each : calls[static_cast<std::size_t>(rank)].calls) {
      BOOST_TEST((each.kind != subset_comm::call_kind::send || each.peer != (rank ^ 1)), rank << " to " << each.peer);
    }
  }
}

BOOST_AUTO_TEST_CASE(bases) {
  const subset_suite::watchdog guard{std::chrono::seconds{120}};
  const auto sums_are_right = [](auto base) {
    const int rank = base.rank();
    subset_comm::subset own{std::move(base), rank == 1 ? std::vector{1} : std::vector{3, 0, 2}};
    std::vector<float> registered(1000);
    [[maybe_unused]] const auto kept = subset_comm::register_memory(own, registered);
    const auto copy = own.duplicate();
    subset_comm::reserve_messages(own, 4);
    std::vector<float> data(1000, static_cast<float>(rank));
    subset_comm::all_reduce(own, data).wait();
    subset_suite::require(data[999] == (rank == 1 ? 1.0F : 5.0F), "the sum");
    subset_comm::broadcast(own, data, own.size() - 1).wait();
    subset_suite::require(data[999] == (rank == 1 ? 1.0F : 5.0F), "the copy");
  };
  BOOST_TEST(subset_suite::failure_of([&] {
               subset_comm::run_ranks(4, [&](subset_comm::threads& world) {
                 sums_are_right(subset_comm::collectives{world.duplicate()});
                 sums_are_right(subset_comm::pairwise_sums{world.duplicate()});
                 sums_are_right(subset_comm::hierarchical{world.duplicate(), subset_comm::self{}, world.duplicate()});
               });
             }) == "");
  subset_comm::subset alone{subset_comm::self{}, {0}};
  std::vector<float> data(10, 2.0F);
  subset_comm::all_reduce(alone, data).wait();
  BOOST_TEST(data[9] == 2.0F);
}

BOOST_AUTO_TEST_CASE(a_subset_is_a_base_of_other_communicators) {
  const subset_suite::watchdog guard{std::chrono::seconds{120}};
  BOOST_TEST(
      failure_on_subsets(
          4, {{2, 0}, {3, 1}},
          [](subset_of_threads& own) {
            const auto sum_is = [](auto& over, float expected) {
              std::vector<float> data(1000, static_cast<float>(over.rank() + 1));
              subset_comm::all_reduce(over, data).wait();
              subset_suite::require(data[999] == expected, "the sum");
            };
            subset_comm::collectives ring{own.duplicate(), {.all_reduce = subset_comm::parse_all_reduce_spec("ring")}};
            sum_is(ring, 3.0F);
            subset_comm::pairwise_sums tree{own.duplicate()};
            sum_is(tree, 3.0F);
            subset_comm::subset single{own.duplicate(), {own.rank()}};
            sum_is(single, 1.0F);
          },
          [](subset_of_threads&) {}) == "");
}

BOOST_AUTO_TEST_SUITE_END()
