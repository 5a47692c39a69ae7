// SPDX-License-Identifier: BSL-1.0
//
// The conformance suite of communicators, for any number of ranks, in threads or processes.
#pragma once

#include <chrono>      // std::chrono
#include <cstdint>     // std::int32_t, std::int64_t, std::uint8_t
#include <functional>  // std::function
#include <string>      // std::string, std::to_string
#include <vector>      // std::vector

#include "gradus/comm/communicator.hpp"
#include "gradus/conformance/communicator_arguments.hpp"
#include "gradus/conformance/communicator_collectives.hpp"
#include "gradus/conformance/communicator_failures.hpp"
#include "gradus/conformance/communicator_messages.hpp"
#include "gradus/conformance/sanitizers.hpp"
#include "gradus/conformance/suite.hpp"
#include "gradus/conformance/watchdog.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/element.hpp"

namespace gradus::conformance {

/// A named test case that all ranks run.
template <class Communicator>
struct test_case {
  std::string name;                        ///< of the case, in reports
  std::function<void(Communicator&)> run;  ///< throws where the communicator does not meet the contract
};

/// Appends the cases of the collectives for one element type.
template <class Communicator, class Element>
void add_collectives(std::vector<test_case<Communicator>>& cases) {
  const std::string suffix = "<" + std::string{gradus::element_name<Element>} + ">";
  cases.push_back({"all_reduce_reduces" + suffix, &all_reduce_reduces<Communicator, Element>});
  cases.push_back({"broadcast_copies_the_root" + suffix, &broadcast_copies_the_root<Communicator, Element>});
  cases.push_back({"reduce_scatter_gives_each_rank_its_block" + suffix,
                   &reduce_scatter_gives_each_rank_its_block<Communicator, Element>});
  cases.push_back({"all_gather_collects_all_blocks" + suffix, &all_gather_collects_all_blocks<Communicator, Element>});
}

/// The cases that leave the communicator in working order. All ranks run them in this order.
template <comm::communicator Communicator>
std::vector<test_case<Communicator>> conformance_cases() {
  std::vector<test_case<Communicator>> cases;
  add_collectives<Communicator, float>(cases);
#if !GRADUS_THREAD_SANITIZER  // data races do not depend on the element type
  add_collectives<Communicator, double>(cases);
  add_collectives<Communicator, std::int32_t>(cases);
  add_collectives<Communicator, std::int64_t>(cases);
  add_collectives<Communicator, std::uint8_t>(cases);
  add_collectives<Communicator, gradus::bfloat16>(cases);
#endif
  cases.push_back(
      {"rounded_sums_have_the_same_bits_everywhere", &rounded_sums_have_the_same_bits_everywhere<Communicator>});
  cases.push_back({"no_rank_leaves_a_barrier_before_all_have_entered",
                   &no_rank_leaves_a_barrier_before_all_have_entered<Communicator>});
  cases.push_back({"messages_arrive", &messages_arrive<Communicator>});
  cases.push_back({"messages_match_by_tag_and_order", &messages_match_by_tag_and_order<Communicator>});
  cases.push_back({"many_requests_are_under_way", &many_requests_are_under_way<Communicator>});
  cases.push_back({"duplicates_are_independent", &duplicates_are_independent<Communicator>});
  cases.push_back({"dropped_requests_complete", &dropped_requests_complete<Communicator>});
  cases.push_back({"bad_arguments_are_refused", &bad_arguments_are_refused<Communicator>});
  cases.push_back({"disagreement_is_named_on_all_ranks", &disagreement_is_named_on_all_ranks<Communicator>});
  return cases;
}

/// Options of check_communicator.
struct communicator_options {
  std::vector<int> ranks{1, 2, 3, 4};  ///< numbers of ranks; in a job that a launcher started, its own number
  /// Also runs the cases that leave the communicator failed. Set it to false if the job cannot continue after a
  /// failure.
  bool failures = true;
  std::chrono::seconds time_limit{300};  ///< after this time the program ends, because a case hangs
};

/// Runs all cases and returns their results.
/// @param on_ranks  on_ranks(n, body) makes n ranks, calls body(communicator) on all of them in parallel, and rethrows
///                  an exception of a body. body is a std::function<void(Communicator&)>
///
/// @code
///   int main() {
///     return gradus::conformance::report(gradus::conformance::check_communicator<mine>(
///         [](int n, const auto& body) { run_my_ranks(n, [&](mine& world) { body(world); }); }));
///   }
/// @endcode
template <class Communicator, class OnRanks>
[[nodiscard]] std::vector<result> check_communicator(const OnRanks& on_ranks,
                                                     const communicator_options& options = {}) {
  static_assert(comm::explain_communicator<Communicator>());
  const watchdog guard{options.time_limit};
  std::vector<test_case<Communicator>> cases = conformance_cases<Communicator>();
  if (options.failures) {
    cases.push_back({"a_rank_that_fails_is_named", &a_rank_that_fails_is_named<Communicator>});
    cases.push_back({"pending_requests_end_when_a_rank_fails", &pending_requests_end_when_a_rank_fails<Communicator>});
    cases.push_back({"a_rank_that_leaves_is_named", &a_rank_that_leaves_is_named<Communicator>});
    cases.push_back({"a_wait_has_a_time_limit", &a_wait_has_a_time_limit<Communicator>});
    cases.push_back({"a_receive_has_a_time_limit", &a_receive_has_a_time_limit<Communicator>});
  }
  std::vector<result> results;
  for (const int ranks : options.ranks) {
    for (const auto& each : cases) {
      const std::function<void(Communicator&)> body = each.run;
      run_case(results, each.name + " on " + std::to_string(ranks) + " ranks", [&] { on_ranks(ranks, body); });
    }
  }
  return results;
}

}  // namespace gradus::conformance
