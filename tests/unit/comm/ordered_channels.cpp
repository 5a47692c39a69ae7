// SPDX-License-Identifier: BSL-1.0
//
// Lines between ranks whose messages are matched by their order, and communicators of some ranks.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "../../support/communicators.hpp"
#include "../../support/communicators_by_order.hpp"
#include "gradus/comm/ordered_channels.hpp"
#include "gradus/comm/threads.hpp"

namespace message_line_tests {

namespace comm = gradus::comm;
namespace suite = communicator_tests;
using by_order = gradus_test::matched_by_order<comm::threads>;
using lines_type = comm::ordered_channels;
static_assert(comm::communicator<by_order>);
static_assert(!comm::matches_tags<by_order>);
static_assert(comm::matches_tags<comm::threads>);
static_assert(comm::splits_itself<by_order>);
static_assert(!comm::splits_itself<comm::threads>);

template <class Test>
std::string on_ranks(int ranks, const Test& test) {
  return suite::failure_of([&] {
    comm::run_ranks(ranks, [&](comm::threads& world) {
      world.set_time_limit(std::chrono::seconds{60});
      lines_type lines{by_order{world.duplicate()}};
      test(world, lines);
    });
  });
}

std::vector<float> content(int of) {
  return {static_cast<float>(of), static_cast<float>(of + 1000)};
}

BOOST_AUTO_TEST_SUITE(comm_message_lines)

// Two lines in each direction; the receiver begins its messages in another order than the sender.
BOOST_AUTO_TEST_CASE(messages_of_lines_do_not_wait_for_each_other) {
  const suite::watchdog guard{std::chrono::seconds{100}};
  constexpr int messages = 5;
  BOOST_TEST(
      on_ranks(2, [](comm::threads& world, lines_type& lines) {
        const int rank = world.rank();
        std::size_t numbers[4];
        for (int k = 0; k < 4; ++k) {
          numbers[k] = lines.connect(k % 2, 1 - k % 2);
        }
        std::vector<std::vector<float>> in;
        std::vector<std::vector<float>> out;
        std::vector<comm::request> requests;
        in.reserve(2 * messages);
        out.reserve(2 * messages);
        const auto of_line = [&](std::size_t line) {
          return static_cast<int>(line) % 2 == rank ? &out : &in;  // rank 0 sends on lines 0 and 2
        };
        const auto begin = [&](std::size_t line, int m) {
          std::vector<std::vector<float>>& to = *of_line(line);
          to.push_back(content(100 * static_cast<int>(line) + m));
          if (&to == &out) {
            requests.push_back(lines.send(line, std::span<const float>{to.back()}));
          } else {
            to.back() = {-1, -1};
            requests.push_back(lines.receive(line, std::span{to.back()}));
          }
        };
        for (int m = 0; m < messages; ++m) {
          for (const std::size_t line : {rank == 0 ? numbers[0] : numbers[2], rank == 0 ? numbers[2] : numbers[0]}) {
            begin(line, m);
          }
        }
        for (int m = 0; m < messages; ++m) {
          begin(rank == 0 ? numbers[1] : numbers[3], m);
        }
        for (int m = 0; m < messages; ++m) {
          begin(rank == 0 ? numbers[3] : numbers[1], m);
        }
        for (std::size_t k = requests.size(); k-- > 0;) {  // the last one first
          requests[k].wait();
        }
        std::vector<std::vector<float>> want;
        if (rank == 1) {
          for (int m = 0; m < messages; ++m) {
            want.push_back(content(200 + m));
            want.push_back(content(m));
          }
        } else {
          for (const int line : {1, 3}) {
            for (int m = 0; m < messages; ++m) {
              want.push_back(content(100 * line + m));
            }
          }
        }
        if (in != want) {
          throw std::logic_error{"other content"};
        }
      }) == "");
}

BOOST_AUTO_TEST_CASE(pairs_of_ranks_get_lines_at_the_same_time) {
  const suite::watchdog guard{std::chrono::seconds{100}};
  BOOST_TEST(on_ranks(5, [](comm::threads& world, lines_type& lines) {
               const int first = world.rank() / 2 * 2;  // rank 4 has no partner, and no line
               const std::size_t line = first == 4 ? lines.connect(0, 1) : lines.connect(first, first + 1);
               std::vector<float> data = content(world.rank());
               if (first < 4 && world.rank() == first) {
                 lines.send(line, std::span<const float>{data}).wait();
               } else if (first < 4) {
                 lines.receive(line, std::span{data}).wait();
               }
               if (data != content(first)) {
                 throw std::logic_error{"other content"};
               }
             }) == "");
}

BOOST_AUTO_TEST_CASE(a_rank_that_is_late_or_fails_is_named) {
  const suite::watchdog guard{std::chrono::seconds{100}};
  const std::string late = on_ranks(2, [](comm::threads& world, lines_type& /*unused*/) {
    comm::threads own = world.duplicate();
    own.set_time_limit(std::chrono::milliseconds{300});
    lines_type lines{by_order{std::move(own)}};
    const std::size_t line = lines.connect(1, 0);
    std::vector<float> data(2);
    if (world.rank() == 0) {
      lines.receive(line, std::span{data}).wait();
    }
    comm::barrier(world).wait();
  });
  BOOST_TEST(late.find("receive from rank 1") != std::string::npos, late);
  BOOST_TEST(late.find("0.3 s") != std::string::npos, late);
  const std::string failed = on_ranks(3, [](comm::threads& world, lines_type& lines) {
    const std::size_t line = lines.connect(2, 0);
    std::vector<float> data(2);
    if (world.rank() == 0) {
      auto first = lines.receive(line, std::span{data});
      auto second = lines.receive(line, std::span{data});
      second.wait();
    }
    if (world.rank() == 2) {
      throw std::runtime_error{"no more disk"};
    }
    comm::barrier(world).wait();
  });
  BOOST_TEST(failed.find("no more disk") != std::string::npos, failed);
}

BOOST_AUTO_TEST_CASE(some_ranks_get_a_communicator) {
  const suite::watchdog guard{std::chrono::seconds{100}};
  BOOST_TEST(on_ranks(5, [](comm::threads& world, lines_type& /*unused*/) {
               const auto check = [&](auto&& group) {
                 std::vector<float> sum{static_cast<float>(group.rank() + 1)};
                 if (world.rank() == 4) {
                   if (group.size() != 0) {
                     throw std::logic_error{"a rank of no group is in one"};
                   }
                   return;
                 }
                 if (group.size() != 2 || group.rank() != (world.rank() < 2 ? 1 : 0)) {
                   throw std::logic_error{"another group"};
                 }
                 comm::all_reduce(group, sum).wait();
                 if (sum.front() != 3) {
                   throw std::logic_error{"another sum"};
                 }
               };
               const int other = world.rank() % 2;
               const std::vector<int> list =
                   world.rank() == 4 ? std::vector<int>{} : std::vector<int>{other + 2, other};  // {2, 0} and {3, 1}
               by_order ordered{world.duplicate()};
               check(comm::split(world, list));
               check(comm::split(ordered, list));
             }) == "");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace message_line_tests
