// SPDX-License-Identifier: BSL-1.0
//
// Communicators without their types: the conformance suite over thread ranks, by `begin` and by functions on spans.
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../../support/communicators.hpp"           // the suite
#include "../../support/communicators_by_order.hpp"  // matched_by_order
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/flight_recorder.hpp"
#include "gradus/comm/forwarding.hpp"
#include "gradus/comm/pairwise_sums.hpp"
#include "gradus/comm/recorded.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/subset.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/core/bfloat16.hpp"

namespace any_communicators {

namespace comm = gradus::comm;
namespace suite = communicator_tests;

/// Thread ranks without `begin`, as a communicator of a program that has the required functions only.
class by_spans : public comm::forwarding<by_spans> {
 public:
  static constexpr std::string_view name = "by_spans";
  template <class Element>
  static constexpr bool supports = comm::transferable<Element>;

  explicit by_spans(comm::threads base) : base_{std::move(base)} {}

  template <comm::transferable Element>
  [[nodiscard]] comm::request all_reduce(std::span<Element> data, comm::reduction operation) {
    ++all_reduces;
    return base_.all_reduce(data, operation);
  }
  [[nodiscard]] by_spans duplicate() { return by_spans{base_.duplicate()}; }

  int all_reduces = 0;

 private:
  friend class comm::forwarding<by_spans>;
  [[nodiscard]] comm::threads& inner() noexcept { return base_; }
  [[nodiscard]] const comm::threads& inner() const noexcept { return base_; }

  comm::threads base_;
};

static_assert(comm::begins_transfers<comm::threads>);
static_assert(comm::begins_transfers<comm::recorded<comm::threads>>);
static_assert(comm::begins_transfers<comm::subset<comm::threads>>);
static_assert(comm::begins_transfers<comm::any_communicator>);
static_assert(!comm::begins_transfers<by_spans>);
static_assert(!comm::begins_transfers<gradus_test::matched_by_order<comm::threads>>);

/// Runs the suite on communicators that make(world) makes.
template <class Make>
void run_suite(const Make& make) {
  const suite::watchdog guard{std::chrono::seconds{120}};
  for (const int ranks : {1, 2, 4}) {
    BOOST_TEST_CONTEXT(ranks << " ranks") {
      BOOST_TEST(suite::failure_of([&] {
                   comm::run_ranks(ranks, [&](comm::threads& world) {
                     comm::any_communicator own = make(world);
                     for (const auto& each : suite::conformance_cases<comm::any_communicator>()) {
                       each.run(own);
                     }
                   });
                 }) == "");
    }
  }
}

BOOST_AUTO_TEST_SUITE(comm_any_communicator)

BOOST_AUTO_TEST_CASE(thread_ranks) {
  run_suite([](comm::threads& world) { return comm::any_communicator{world}; });
}
BOOST_AUTO_TEST_CASE(ranks_that_it_owns) {
  run_suite([](comm::threads& world) { return comm::any_communicator{world.duplicate()}; });
}
BOOST_AUTO_TEST_CASE(a_communicator_with_functions_on_spans_only) {
  run_suite([](comm::threads& world) { return comm::any_communicator{by_spans{world.duplicate()}}; });
}
BOOST_AUTO_TEST_CASE(collectives_of_messages) {
  run_suite([](comm::threads& world) {
    return comm::any_communicator{comm::collectives<comm::any_communicator>{world.duplicate()}};
  });
}
BOOST_AUTO_TEST_CASE(all_ranks_in_another_order) {
  run_suite([](comm::threads& world) {
    std::vector<int> backwards;
    for (int rank = world.size(); rank-- > 0;) {
      backwards.push_back(rank);
    }
    comm::any_communicator all{world};
    return comm::split(all, std::move(backwards));
  });
}
BOOST_AUTO_TEST_CASE(sums_in_the_order_of_the_tree) {
  run_suite([](comm::threads& world) {
    return comm::any_communicator{std::make_unique<comm::pairwise_sums_link>(world.duplicate())};
  });
}

BOOST_AUTO_TEST_CASE(failures) {
  const suite::watchdog guard{std::chrono::seconds{120}};
  using any = comm::any_communicator;
  for (void (*const test)(any&) :
       {&suite::a_rank_that_fails_is_named<any>, &suite::pending_requests_end_when_a_rank_fails<any>,
        &suite::a_rank_that_leaves_is_named<any>, &suite::a_wait_has_a_time_limit<any>}) {
    for (const int ranks : {2, 4}) {  // with one rank nothing waits, and a link goes on working
      BOOST_TEST(suite::failure_of([&] {
                   comm::run_ranks(ranks, [test](comm::threads& world) {
                     any own{world.duplicate()};
                     test(own);
                   });
                 }) == "");
    }
  }
}

BOOST_AUTO_TEST_CASE(functions_that_a_wrapper_declares_again_are_called) {
  comm::run_ranks(2, [](comm::threads& world) {
    by_spans own{world.duplicate()};
    comm::any_communicator all{own};
    std::vector<gradus::bfloat16> values(3, gradus::bfloat16{1.5F});
    comm::all_reduce(all, values).wait();
    suite::require(own.all_reduces == 1, "another function was called");
    suite::require(static_cast<float>(values[2]) == 3.0F, "another sum");
  });
}

BOOST_AUTO_TEST_CASE(what_a_communicator_can_do_is_asked_of_its_link) {
  comm::run_ranks(2, [](comm::threads& world) {
    comm::any_communicator all{world};
    suite::require(all.link().properties().name == "threads", "name");
    suite::require(all.link().properties().matches_tags && all.link().properties().makes_windows, "threads");
    suite::require(!all.link().properties().knows_nodes && all.link().node() == nullptr, "nodes of threads");
    gradus_test::matched_by_order<comm::threads> by_order{world.duplicate()};
    suite::require(!comm::any_communicator{by_order}.link().properties().matches_tags, "tags");
    comm::pairwise_sums_link tree{world.duplicate()};
    suite::require(tree.properties().sums_in_tree && tree.properties().makes_windows, "tree");
    suite::require(tree.duplicate()->properties().sums_in_tree, "a duplicate of a tree");

    std::int32_t own[2] = {world.rank(), 7};
    {
      const auto window = all.link().make_window(std::as_writable_bytes(std::span{own}));
      const auto& others = *reinterpret_cast<const std::int32_t*>(window->of(1 - world.rank()).data());
      suite::require(window->use([&] { suite::require(others == 1 - world.rank(), "the other's array"); }), "in use");
      comm::barrier(all).wait();
    }
  });
  comm::self alone;
  suite::require(comm::any_communicator{alone}.link().make_window({}) == nullptr, "windows of one process");
}

BOOST_AUTO_TEST_CASE(a_communicator_that_was_moved_from_is_refused) {
  comm::self alone;
  comm::any_communicator first{alone};
  const comm::any_communicator second{std::move(first)};
  BOOST_TEST(second.size() == 1);
  BOOST_TEST(first.size() == 0);  // NOLINT(bugprone-use-after-move): that is what is asked
  BOOST_TEST(suite::failure_of([&] { comm::barrier(first).wait(); }).find("moved from") != std::string::npos);
}

/// Elements are combined in the order of the sources, and doubles that are only added give the bits of the others.
BOOST_AUTO_TEST_CASE(doubles_to_add_are_added_in_the_order_of_the_ranks) {
  std::vector<std::vector<double>> sources;
  for (int rank = 0; rank < 5; ++rank) {
    for (auto& numbers = sources.emplace_back(); numbers.size() < 70;) {
      numbers.push_back(1.0 / (1.0 + rank + 3.0 * static_cast<double>(numbers.size())));
    }
  }
  std::vector<const std::byte*> from;
  for (const auto& each : sources) {
    from.push_back(reinterpret_cast<const std::byte*>(each.data()));
  }
  const auto combined = [&](const comm::element_type& element) {
    std::vector<double> result(60, -1.0);
    std::byte* const to[] = {reinterpret_cast<std::byte*>(result.data())};
    const std::span<std::byte* const> targets{to};
    element.combine(comm::reduction::sum, from, 5, 65, targets, -5);
    return result;
  };
  BOOST_TEST((combined(comm::doubles_to_add) == combined(comm::element_type_of<double>)));
  std::vector<double> first = sources[0];
  std::vector<double> second = sources[0];
  comm::doubles_to_add.accumulate(comm::reduction::sum, reinterpret_cast<std::byte*>(first.data()), from[1], 70);
  comm::element_type_of<double>.accumulate(comm::reduction::sum, reinterpret_cast<std::byte*>(second.data()), from[1],
                                           70);
  BOOST_TEST((first == second));
  BOOST_TEST(first[3] == sources[0][3] + sources[1][3]);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace any_communicators
