// SPDX-License-Identifier: BSL-1.0
//
// Variables on servers: the worked example of TensorFlow's greedy placement, bounds, and the number of servers.
#include <boost/test/unit_test.hpp>

#include <algorithm>  // std::min_element
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint64_t
#include <string>     // std::to_string
#include <vector>     // std::vector

#include "gradus/core/random.hpp"
#include "gradus/parameter_server/placement.hpp"

namespace {

using namespace gradus::parallel;

/// 784 x 100 weights, 100 biases, 100 x 10 weights, 10 biases, in float.
const std::vector<variable>& small_network() {
  static const std::vector<variable> all{
      {"hidden.weight", 784, 400}, {"hidden.bias", 100, 4}, {"scores.weight", 100, 40}, {"scores.bias", 10, 4}};
  return all;
}

std::vector<int> servers_of(const placement& placed) {
  std::vector<int> servers;
  for (const placed_part& each : placed.parts) {
    servers.push_back(each.server);
  }
  return servers;
}

/// Variables of Inception-v3's proportions: many small ones and a matrix of 8.2 MB.
std::vector<variable> one_large_and_many() {
  std::vector<variable> all{{"scores.weight", 2048, 4004}};
  for (int i = 0; i < 190; ++i) {
    all.push_back({"conv" + std::to_string(i), 64, 7000});
  }
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(parallel_placement)

BOOST_AUTO_TEST_CASE(the_worked_example) {
  BOOST_TEST(
      (servers_of(place(small_network(), 3, {.policy = placement_policy::greedy})) == std::vector<int>{0, 1, 2, 1}));
  BOOST_TEST((servers_of(place(small_network(), 3, {.policy = placement_policy::round_robin})) ==
              std::vector<int>{0, 1, 2, 0}));
}

BOOST_AUTO_TEST_CASE(every_row_is_placed_once) {
  for (const auto policy : {placement_policy::round_robin, placement_policy::greedy, placement_policy::longest_first,
                            placement_policy::partitioned}) {
    for (const int servers : {1, 2, 3, 7, 64}) {
      const auto variables = one_large_and_many();
      const placement placed = place(variables, servers, {.policy = policy});
      std::vector<gradus::index_t> next(variables.size());
      std::vector<gradus::index_t> bytes(static_cast<std::size_t>(servers));
      bool right = true;
      for (const placed_part& part : placed.parts) {
        right = right && part.first_row == next[part.variable] && part.server >= 0 && part.server < servers &&
                part.bytes == part.rows * variables[part.variable].row_bytes;
        next[part.variable] += part.rows;
        bytes[static_cast<std::size_t>(part.server)] += part.bytes;
      }
      for (std::size_t i = 0; i < variables.size(); ++i) {
        right = right && next[i] == variables[i].rows;
      }
      BOOST_TEST(right, name_of(policy) << " on " << servers);
      BOOST_TEST((bytes == placed.server_bytes));
    }
  }
}

BOOST_AUTO_TEST_CASE(longest_first_keeps_its_bound) {
  const gradus::random_stream numbers{3, "sizes"};
  for (std::uint64_t set = 0; set < 200; ++set) {
    std::vector<variable> variables;
    gradus::index_t largest = 0;
    gradus::index_t total = 0;
    for (std::uint64_t i = 0; i < 12; ++i) {
      variables.push_back({"v", 1, 1 + static_cast<gradus::index_t>(1000 * numbers.uniform(i, set))});
      largest = std::max(largest, variables.back().bytes());
      total += variables.back().bytes();
    }
    const double best = std::max(static_cast<double>(largest), static_cast<double>(total) / 4);  // no less is possible
    const placement placed = place(variables, 4, {.policy = placement_policy::longest_first});
    // Graham's bound on the best placement, which may itself be above `best`: with 12 on 4 it is at most 1.5 times.
    BOOST_TEST(static_cast<double>(placed.busiest_bytes()) <= 1.5 * (4.0 / 3 - 1.0 / 12) * best);
  }
}

BOOST_AUTO_TEST_CASE(parts_spread_a_large_variable) {
  const auto variables = one_large_and_many();
  const placement whole = place(variables, 40, {.policy = placement_policy::greedy});
  const placement cut = place(variables, 40, {.policy = placement_policy::partitioned});
  BOOST_TEST(whole.busiest_bytes() >= 2048 * 4004);  // however many servers
  BOOST_TEST(static_cast<double>(cut.busiest_bytes()) < 1.125 * cut.ideal_bytes());
  BOOST_TEST(whole.total_bytes() == cut.total_bytes());
}

BOOST_AUTO_TEST_CASE(a_step_is_bound_by_the_busiest_server_or_by_the_workers) {
  const placement placed =
      place(std::vector<variable>{{"a", 1, 3000}, {"b", 1, 1000}}, 2, {.policy = placement_policy::greedy});
  BOOST_TEST(placed.step_seconds(5, 1000.0) == 15.0);
  BOOST_TEST(placed.step_seconds(1, 1000.0) == 4.0);  // a worker sends all 4000 bytes
  BOOST_TEST(describe(placed, 5, 1000.0) ==
             "server 0: 3000 bytes\nserver 1: 1000 bytes\n"
             "busiest: 3000 bytes, ideal: 2000 bytes, a step of 5 workers at 1000 bytes/s takes at least 15 s\n");
}

BOOST_AUTO_TEST_CASE(a_part_goes_to_the_first_of_the_servers_with_the_fewest_bytes) {
  const gradus::random_stream random{11};
  std::vector<variable> variables;
  for (std::uint64_t i = 0; i < 300; ++i) {
    variables.push_back({std::to_string(i), 1, static_cast<gradus::index_t>(random.below(20, i))});  // equal loads, too
  }
  for (const int servers : {1, 2, 7, 64, 400}) {
    const placement placed = place(variables, servers, {.policy = placement_policy::greedy});
    std::vector<gradus::index_t> bytes(static_cast<std::size_t>(servers));
    for (const placed_part& each : placed.parts) {
      const auto least = std::min_element(bytes.begin(), bytes.end()) - bytes.begin();
      BOOST_REQUIRE_EQUAL(each.server, least);
      bytes[static_cast<std::size_t>(least)] += each.bytes;
    }
    BOOST_TEST(bytes == placed.server_bytes, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(the_number_of_servers) {
  const auto variables = one_large_and_many();  // 93 MB
  const server_plan cut = plan_servers(variables, 16, 0.5, 1.25e9, 16);
  BOOST_TEST(cut.counts[0].communication_seconds > 1.0);
  BOOST_TEST(cut.recommended == 3);  // 16 x 31 MB at 10 Gbit/s: 0.4 s
  const server_plan whole = plan_servers(variables, 64, 0.1, 1.25e9, 64, {.policy = placement_policy::greedy});
  const server_plan parts = plan_servers(variables, 64, 0.1, 1.25e9, 64);
  BOOST_TEST(whole.counts[63].communication_seconds > 0.4);  // the matrix of 8.2 MB, 64 times
  BOOST_TEST(parts.counts[63].communication_seconds < 0.1);
  BOOST_TEST(plan_servers(variables, 1, 10.0, 1.25e9, 4).recommended == 1);
}

BOOST_AUTO_TEST_CASE(mistakes_are_named) {
  BOOST_CHECK_THROW(static_cast<void>(place(small_network(), 0)), gradus::configuration_error);
  BOOST_CHECK_THROW(static_cast<void>(place(std::vector<variable>{{"a", -1, 4}}, 1)), gradus::configuration_error);
  BOOST_CHECK_THROW(static_cast<void>(place(small_network(), 1, {.parts_per_server = 0})), gradus::configuration_error);
  BOOST_CHECK_THROW(static_cast<void>(plan_servers(small_network(), 1, 0.1, 0.0, 4)), gradus::configuration_error);
  BOOST_CHECK_THROW(static_cast<void>(plan_servers(small_network(), 0, 0.1, 1.0, 4)), gradus::configuration_error);
}

BOOST_AUTO_TEST_SUITE_END()
