// SPDX-License-Identifier: BSL-1.0
//
// The command line of gradus_run.
#include "settings.hpp"

#include <boost/test/unit_test.hpp>

#include <stdexcept>  // std::invalid_argument
#include <string>     // std::string
#include <vector>     // std::vector

namespace {

using namespace supervisor;

settings settings_of(std::vector<std::string> words) {
  words.insert(words.begin(), "gradus_run");
  std::vector<char*> pointers;
  for (std::string& each : words) {
    pointers.push_back(each.data());
  }
  settings chosen;
  static_cast<void>(read_settings(static_cast<int>(pointers.size()), pointers.data(), chosen));
  return chosen;
}

std::string refusal_of(const std::vector<std::string>& words) {
  try {
    static_cast<void>(settings_of(words));
  } catch (const std::invalid_argument& failure) {
    return failure.what();
  }
  return "accepted";
}

BOOST_AUTO_TEST_SUITE(run_settings)

BOOST_AUTO_TEST_CASE(options_end_where_the_command_begins) {
  const settings chosen = settings_of({"--ranks", "8", "--fewer", "4,2", "--checkpoints", "a", "b", "--", "mpiexec",
                                       "-n", "{ranks}", "p", "--fewer", "--", "[x,y]", ""});
  const std::vector<int> ranks{8, 4, 2};
  const std::vector<std::string> folders{"a", "b"};
  const std::vector<std::string> command{"mpiexec", "-n", "4", "p", "--fewer", "--", "[x,y]", ""};
  BOOST_TEST(chosen.allowed.ranks == ranks, boost::test_tools::per_element());
  BOOST_TEST(chosen.checkpoints == folders, boost::test_tools::per_element());
  BOOST_TEST(command_on(chosen.command, 4) == command, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_number_of_ranks_is_replaced_wherever_it_stands) {
  const std::vector<std::string> expected{"--ranks=12", "12:12", "{rank}"};
  BOOST_TEST(command_on({"--ranks={ranks}", "{ranks}:{ranks}", "{rank}"}, 12) == expected,
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_command_line_that_makes_no_sense_is_refused) {
  BOOST_TEST(refusal_of({"--", "p"}) == "accepted");
  BOOST_TEST(refusal_of({"--ranks", "2"}).find("expected -- and the command") == 0);
  BOOST_TEST(refusal_of({"--"}).find("expected -- and the command") == 0);
  BOOST_TEST(refusal_of({"--ranks", "2", "--", "p"}).find("--ranks: expected {ranks}") == 0);
  BOOST_TEST(refusal_of({"--", "p", "{ranks}"}).find("--ranks: expected the number") == 0);
  BOOST_TEST(refusal_of({"--fewer", "2", "--", "p"}).find("--fewer: expected --ranks") == 0);
  for (const char* const fewer : {"4", "3,3", "2,", "x", "0", "-1", "2,1x", ""}) {
    BOOST_TEST(refusal_of({"--ranks", "4", "--fewer", fewer, "--", "p", "{ranks}"}).find("--fewer: ") == 0, fewer);
  }
  for (const char* const option : {"--restarts", "--pause", "--grace", "--silent-for", "--time-limit"}) {
    BOOST_TEST(refusal_of({option, "-1", "--", "p"}).find(option) == 0, option);
    BOOST_TEST(refusal_of({option, "x", "--", "p"}).find("accepted") == std::string::npos, option);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
