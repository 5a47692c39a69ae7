// SPDX-License-Identifier: BSL-1.0
//
// The words of an all_reduce_spec, and the choice of a rule by size.
#include <boost/test/unit_test.hpp>

#include <string>

#include "gradus/comm/all_reduce_rule.hpp"

namespace comm = gradus::comm;
using enum comm::all_reduce_algorithm;

namespace {

std::string refusal(const char* spec) {
  try {
    static_cast<void>(comm::parse_all_reduce_spec(spec));
  } catch (const gradus::format_error& failure) {
    return failure.what();
  }
  return "no exception";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_all_reduce_rule)

BOOST_AUTO_TEST_CASE(one_algorithm_for_all_sizes) {
  const auto rules = comm::parse_all_reduce_spec("xring");
  BOOST_TEST((rules == std::vector<comm::all_reduce_rule>{{.algorithm = ring}}));
}

BOOST_AUTO_TEST_CASE(limits_are_elements_and_hold_for_the_range_before) {
  const auto rules = comm::parse_all_reduce_spec("pscpu:32k:nccl/rechd:2M:xring#2");
  BOOST_TEST((rules == std::vector<comm::all_reduce_rule>{
                           {.algorithm = tree, .largest_elements = 32 * 1024},
                           {.algorithm = hierarchical_halving_doubling, .largest_elements = 2 * 1024 * 1024},
                           {.algorithm = ring, .rings = 2}}));
  BOOST_TEST((comm::choose(rules, 32 * 1024, 4).algorithm == tree));
  BOOST_TEST((comm::choose(rules, 32 * 1024 + 1, 4).algorithm == hierarchical_halving_doubling));
  BOOST_TEST((comm::choose(rules, gradus::index_t{1} << 30, 4).algorithm == ring));
}

BOOST_AUTO_TEST_CASE(rules_by_bytes) {
  const std::vector<comm::all_reduce_rule> rules{{.algorithm = recursive_doubling, .largest_bytes = 1000},
                                                 {.algorithm = ring}};
  BOOST_TEST((comm::choose(rules, 125, 8).algorithm == recursive_doubling));
  BOOST_TEST((comm::choose(rules, 126, 8).algorithm == ring));
  BOOST_TEST(comm::describe(rules) == "recursive_doubling up to 1000 bytes, ring");
}

BOOST_AUTO_TEST_CASE(every_name_is_a_word) {
  for (const auto name : comm::all_reduce_algorithm_names) {
    BOOST_TEST(comm::name_of(comm::parse_all_reduce_spec(name)[0].algorithm) == name);
  }
}

BOOST_AUTO_TEST_CASE(mistakes_are_named) {
  BOOST_TEST(refusal("").find("expected one of nccl,") != std::string::npos, refusal(""));
  BOOST_TEST(refusal("bucket").find("'bucket'") != std::string::npos, refusal("bucket"));
  BOOST_TEST(refusal("xring:64K").find("an algorithm after the last limit") != std::string::npos, refusal("xring:64K"));
  BOOST_TEST(refusal("xring:many:xring").find("a limit such as") != std::string::npos, refusal("xring:many:xring"));
  BOOST_TEST(refusal("xring:-1:xring").find("a limit such as") != std::string::npos);
  BOOST_TEST(refusal("xring:99999999999T:xring").find("a limit such as") != std::string::npos);
  BOOST_TEST(refusal("xring:64K:tree:32K:xring").find("limits that ascend") != std::string::npos);
  BOOST_TEST(refusal("xring#0").find("a number from 1 to 64") != std::string::npos, refusal("xring#0"));
  BOOST_TEST(refusal("xring#x").find("a number from 1 to 64") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
