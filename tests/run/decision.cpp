// SPDX-License-Identifier: BSL-1.0
//
// What gradus_run decides when a job has ended.
#include "decision.hpp"

#include <boost/test/unit_test.hpp>

#include <csignal>  // SIGINT, SIGKILL, SIGTERM, SIGUSR1
#include <string>   // std::string
#include <vector>   // std::vector

namespace {

using namespace supervisor;

constexpr ending run_killed{.what = ending::kind::killed, .number = SIGKILL};

ending run_exited(int status) {
  return {.what = ending::kind::exited, .number = status};
}

/// The numbers of ranks of all starts, if each makes progress or not as `progress` says, and the last decision.
struct run_history {
  std::vector<int> ranks;
  decision last;
};

run_history run_starts(const limits& allowed, const std::vector<bool>& progress) {
  run_history all;
  series now;
  for (const bool each : progress) {
    all.ranks.push_back(allowed.ranks[now.choice]);
    all.last = decide(now, {.end = run_killed, .seconds = 5, .progress = each}, allowed);
    if (!all.last.again) {
      break;
    }
    now = all.last.next;
  }
  return all;
}

BOOST_AUTO_TEST_SUITE(run_decision)

BOOST_AUTO_TEST_CASE(a_complete_and_an_interrupted_job_end_it) {
  for (const int status : {0, 75}) {
    const decision what = decide({}, {.end = run_exited(status), .seconds = 5, .progress = true}, {});
    BOOST_TEST(!what.again);
    BOOST_TEST(what.status == status);
  }
}

BOOST_AUTO_TEST_CASE(a_signal_to_the_supervisor_ends_it_with_the_status_of_the_job) {
  BOOST_TEST(decide({}, {.end = run_exited(1), .progress = true, .passed_on = SIGTERM}, {}).status == 1);
  const decision killed = decide({}, {.end = run_killed, .progress = true, .passed_on = SIGTERM}, {});
  BOOST_TEST(!killed.again);
  BOOST_TEST(killed.status == 128 + SIGKILL);
  BOOST_TEST(killed.reason == "SIGTERM was passed on to it");
  BOOST_TEST(status_between_starts(SIGTERM) == 75);
  BOOST_TEST(status_between_starts(SIGUSR1) == 75);
  BOOST_TEST(status_between_starts(SIGINT) == 128 + SIGINT);
}

BOOST_AUTO_TEST_CASE(a_job_that_died_starts_again_whatever_ended_it) {
  for (const ending& end : {run_killed, run_exited(1), run_exited(9), run_exited(137),
                            ending{.what = ending::kind::silent, .number = SIGKILL}}) {
    const decision what = decide({}, {.end = end, .seconds = 5, .progress = true}, {});
    BOOST_TEST(what.again);
    BOOST_TEST(what.next.starts == 2);
    BOOST_TEST(what.next.useless == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_program_that_is_not_there_is_not_retried) {
  for (const int status : {126, 127}) {
    const decision what = decide({.any_progress = true}, {.end = run_exited(status), .progress = true}, {});
    BOOST_TEST(!what.again);
    BOOST_TEST(what.status == status);
  }
}

BOOST_AUTO_TEST_CASE(a_usage_error_is_not_retried_unless_the_command_has_worked_before) {
  for (const int status : {2, 64, 255}) {
    const attempt refused{.end = run_exited(status), .seconds = 1, .progress = false};
    BOOST_TEST(!decide({}, refused, {}).again);
    BOOST_TEST(decide({}, refused, {}).status == status);
    BOOST_TEST(decide({.starts = 2, .any_progress = true}, refused, {}).again);
    BOOST_TEST(decide({}, {.end = run_exited(status), .seconds = 1, .progress = true}, {}).again);
    BOOST_TEST(decide({}, {.end = run_exited(status), .seconds = 2 * at_once, .progress = false}, {}).again);
  }
}

BOOST_AUTO_TEST_CASE(two_starts_in_a_row_without_progress_are_the_last) {
  const limits allowed{.ranks = {8}, .restarts = 10};
  const run_history all = run_starts(allowed, {true, false, true, false, false, true});
  BOOST_TEST(all.ranks.size() == 5);
  BOOST_TEST(!all.last.again);
  BOOST_TEST(all.last.status == 128 + SIGKILL);
  BOOST_TEST(all.last.reason == "2 starts in a row made no progress (--useless-starts 2)");
}

BOOST_AUTO_TEST_CASE(each_start_without_progress_takes_the_next_smaller_number_of_ranks) {
  const limits allowed{.ranks = {8, 4, 2}, .restarts = 10};
  const run_history all = run_starts(allowed, {true, false, true, true, false, true, false, false, true});
  const std::vector<int> expected{8, 8, 4, 4, 4, 2, 2, 2};
  BOOST_TEST(all.ranks == expected, boost::test_tools::per_element());
  BOOST_TEST(!all.last.again);
  BOOST_TEST(run_starts(allowed, {false}).last.reason == "no progress on 8 ranks");
}

BOOST_AUTO_TEST_CASE(useless_starts_are_limited) {
  for (const int limit : {1, 2, 5}) {
    const run_history all =
        run_starts({.ranks = {8}, .useless_starts = limit}, {false, false, false, false, false, false, false});
    BOOST_TEST(all.last.reason.find(" made no progress (--useless-starts " + std::to_string(limit) + ")") !=
               std::string::npos);
    BOOST_TEST(all.ranks.size() == static_cast<std::size_t>(limit));
  }
}

BOOST_AUTO_TEST_CASE(restarts_are_limited) {
  const run_history all = run_starts({.ranks = {8}, .restarts = 2}, {true, true, true, true});
  BOOST_TEST(all.ranks.size() == 3);
  BOOST_TEST(all.last.reason == "--restarts 2 are used up");
  BOOST_TEST(!run_starts({.ranks = {8}, .restarts = 0}, {true}).last.again);
}

BOOST_AUTO_TEST_CASE(pauses_grow_without_progress_up_to_a_minute) {
  const limits allowed{.ranks = {10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, .restarts = 100, .first_pause = 1};
  series now;
  std::vector<double> pauses;
  for (int i = 0; i < 8; ++i) {
    now = decide(now, {.end = run_killed, .progress = false}, allowed).next;
    pauses.push_back(now.pause);
  }
  const std::vector<double> expected{1, 2, 4, 8, 16, 32, 60, 60};
  BOOST_TEST(pauses == expected, boost::test_tools::per_element());
  BOOST_TEST(decide(now, {.end = run_killed, .progress = true}, allowed).next.pause == 1);
}

BOOST_AUTO_TEST_CASE(endings_have_names) {
  BOOST_TEST(text_of(run_killed) == "SIGKILL");
  BOOST_TEST(text_of(run_exited(9)) == "exit status 9");
  BOOST_TEST(text_of(run_exited(137)) == "exit status 137 (128 + SIGKILL)");
  BOOST_TEST(text_of({.what = ending::kind::silent, .number = SIGKILL}) == "silence");
}

BOOST_AUTO_TEST_CASE(a_status_that_a_signal_hides_is_that_of_an_interrupted_job) {
  const auto status_after = [](int signal, int status, bool hidden) {
    return decide({}, {.end = run_exited(status), .passed_on = signal}, {.signals_hide_status = hidden}).status;
  };
  BOOST_TEST(status_after(SIGUSR1, 0, true) == 75);
  BOOST_TEST(status_after(SIGINT, 0, true) == 128 + SIGINT);
  BOOST_TEST(status_after(SIGUSR1, 3, true) == 3);
  BOOST_TEST(status_after(SIGUSR1, 0, false) == 0);
  BOOST_TEST(status_after(0, 0, true) == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
