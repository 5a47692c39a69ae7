// SPDX-License-Identifier: BSL-1.0
//
// Ranks learn of a command line that one of them cannot follow.
#include <boost/test/unit_test.hpp>

#include <gradus/comm/command_line.hpp>
#include <gradus/comm/threads.hpp>

#include <string>
#include <vector>

namespace comm = gradus::comm;

namespace {

/// What every rank gets, each with a command line of its own.
std::vector<comm::command_line> agree(const std::vector<comm::command_line>& own) {
  return comm::run_ranks(static_cast<int>(own.size()), [&](comm::threads& world) {
    return comm::agree(world, own[static_cast<std::size_t>(world.rank())]);
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_command_line)

BOOST_AUTO_TEST_CASE(all_go_on_if_all_can) {
  for (const comm::command_line& each : agree(std::vector<comm::command_line>(3))) {
    BOOST_TEST(!each.ends());
  }
}

BOOST_AUTO_TEST_CASE(the_lowest_rank_that_ends_speaks_and_all_end) {
  const auto all = agree({{}, {.status = 3, .text = "no such option"}, {}, {.status = 2, .text = "another"}});
  const std::vector<int> statuses{2, 3, 2, 2};
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    BOOST_TEST(all[rank].status == statuses[rank]);
    BOOST_TEST(all[rank].rank == 1);
    BOOST_TEST(all[rank].text ==
               "no such option\nRank 1 ends because of its command line, and with it all ranks; ranks "
               "0, 2 could have gone on.\n");
  }
}

BOOST_AUTO_TEST_CASE(what_all_ranks_find_is_said_as_it_is) {
  for (const comm::command_line& each : agree({{.status = 0, .text = "help\n"}, {.status = 0, .text = "help\n"}})) {
    BOOST_TEST(each.status == 0);
    BOOST_TEST(each.rank == 0);
    BOOST_TEST(each.text == "help\n");
  }
  BOOST_TEST(agree({{.status = 2, .text = ""}, {}})[1].text.starts_with("\nRank 0 ends"));
}

BOOST_AUTO_TEST_SUITE_END()
