// SPDX-License-Identifier: BSL-1.0
//
// Collectives over messages, for 1 to 9 ranks, every algorithm, every element type and awkward sizes, with ranks that
// come late: the right results, and the same bits on all ranks.
#include <boost/test/unit_test.hpp>

#include <algorithm>  // std::max, std::min
#include <chrono>     // std::chrono::microseconds
#include <cstdint>    // std::int32_t, std::int64_t, std::uint8_t
#include <string>     // std::to_string
#include <thread>     // std::this_thread
#include <vector>     // std::vector

#include "../../support/communicators.hpp"  // repeated, same, watchdog
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/comm/tune.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/core/random.hpp"

namespace {

namespace comm = gradus::comm;
namespace suite = communicator_tests;

float term(int rank, std::size_t i) {
  return 1.0F / (1.5F + static_cast<float>(i % 1013) + 0.3F * static_cast<float>(rank));
}

/// Small enough that sums of nine are exact in every type.
template <class Element>
Element whole_number(int rank, std::size_t i) {
  return static_cast<Element>(static_cast<float>((static_cast<std::size_t>(rank) * 7 + i * 3 + 1) % 23));
}

constexpr std::size_t whole_number_period = 23;

/// Chunk c is combined in the order of the ranks c, c+1, ..., around.
std::vector<float> ring_sum(int ranks, std::size_t size) {
  std::vector<float> values(size);
  for (int chunk = 0; chunk < ranks; ++chunk) {
    const std::size_t begin = size * static_cast<std::size_t>(chunk) / static_cast<std::size_t>(ranks);
    const std::size_t end = size * static_cast<std::size_t>(chunk + 1) / static_cast<std::size_t>(ranks);
    for (std::size_t i = begin; i < end; ++i) {
      values[i] = term(chunk, i);
      for (int k = 1; k < ranks; ++k) {
        values[i] = term((chunk + k) % ranks, i) + values[i];
      }
    }
  }
  return values;
}

/// Ranks of two nodes in turn: uneven nodes for an odd number of ranks.
std::vector<int> two_nodes(int ranks) {
  std::vector<int> nodes(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    nodes[i] = static_cast<int>(i) % 2;
  }
  return nodes;
}

/// A few microseconds, different for every call.
void come_late(gradus::random_stream& stream, std::uint64_t& calls) {
  std::this_thread::sleep_for(std::chrono::microseconds{static_cast<int>(200 * stream.uniform(calls++))});
}

template <class Element>
std::vector<Element> whole_numbers(int rank, std::size_t size) {
  return suite::repeated<Element>(size, whole_number_period,
                                  [rank](std::size_t i) { return whole_number<Element>(rank, i); });
}

/// The reductions of the whole numbers of all ranks.
template <class Element>
std::vector<Element> expected_result(int ranks, std::size_t size, comm::reduction operation) {
  return suite::repeated<Element>(size, whole_number_period, [&](std::size_t i) {
    auto value = whole_number<Element>(0, i);
    for (int rank = 1; rank < ranks; ++rank) {
      const auto other = whole_number<Element>(rank, i);
      value = operation == comm::reduction::sum       ? static_cast<Element>(value + other)
              : operation == comm::reduction::maximum ? std::max(value, other)
                                                      : std::min(value, other);
    }
    return value;
  });
}

template <class Element>
bool all_reduce_is_right(comm::collectives<comm::threads>& world, std::size_t size, comm::reduction operation) {
  auto values = whole_numbers<Element>(world.rank(), size);
  comm::all_reduce(world, values, operation).wait();
  return suite::same(values, expected_result<Element>(world.size(), size, operation));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_collectives_properties)

BOOST_AUTO_TEST_CASE(all_reduce_is_right_for_every_algorithm) {
  const suite::watchdog guard{std::chrono::seconds{300}};
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const auto* const spec :
         {"ring", "ring#2", "ring#3", "halving_doubling", "binary_blocks", "recursive_doubling", "tree",
          "hierarchical_ring", "hierarchical_halving_doubling"}) {
      for (const gradus::index_t segment_bytes : {16, 4096}) {
        const auto results = comm::run_ranks(ranks, [&](comm::threads& world) {
          comm::collectives own{world.duplicate(),
                                {.all_reduce = comm::parse_all_reduce_spec(spec),
                                 .segment_bytes = segment_bytes,
                                 .node_of_rank = two_nodes(ranks)}};
          gradus::random_stream stream{17, std::to_string(world.rank())};
          std::uint64_t calls = 0;
          bool right = true;
          for (const std::size_t size : {0, 1, 2, 3, 7, 8, 9, 37, 211, segment_bytes < 100 ? 97 : 20011}) {
            come_late(stream, calls);
            right = right && all_reduce_is_right<float>(own, size, comm::reduction::sum);
            come_late(stream, calls);
            right = right && all_reduce_is_right<std::int32_t>(own, size, comm::reduction::maximum);
          }
          right = right && all_reduce_is_right<double>(own, 101, comm::reduction::minimum);
          right = right && all_reduce_is_right<std::int64_t>(own, 101, comm::reduction::sum);
          right = right && all_reduce_is_right<std::uint8_t>(own, 101, comm::reduction::sum);
          right = right && all_reduce_is_right<gradus::bfloat16>(own, 101, comm::reduction::sum);
          right = right && all_reduce_is_right<gradus::float16>(own, 101, comm::reduction::sum);
          // Several under way, waited for in another order.
          std::vector<float> first(333, 1.0F);
          std::vector<float> second(5, 2.0F);
          auto one = comm::all_reduce(own, first);
          auto other = comm::all_reduce(own, second);
          other.wait();
          one.wait();
          return right && first == std::vector<float>(333, static_cast<float>(ranks)) &&
                 second == std::vector<float>(5, 2.0F * static_cast<float>(ranks));
        });
        for (const bool right : results) {
          BOOST_TEST(right, spec << " on " << ranks << " ranks, segments of " << segment_bytes << " bytes");
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(long_arrays_are_right_too) {
  const suite::watchdog guard{std::chrono::seconds{300}};
  for (const auto name : comm::all_reduce_algorithm_names) {
    const auto results = comm::run_ranks(5, [&](comm::threads& world) {
      comm::collectives own{world.duplicate(),
                            {.all_reduce = comm::parse_all_reduce_spec(name), .node_of_rank = two_nodes(5)}};
      return all_reduce_is_right<float>(own, 1000003, comm::reduction::sum);  // a prime
    });
    for (const bool right : results) {
      BOOST_TEST(right, name);
    }
  }
}

BOOST_AUTO_TEST_CASE(long_arrays_of_every_type_are_right_too) {
  const suite::watchdog guard{std::chrono::seconds{300}};
  for (const auto* const spec : {"ring#2", "halving_doubling"}) {
    const auto results = comm::run_ranks(3, [&](comm::threads& world) {
      constexpr std::size_t size = 1000003;
      comm::collectives own{world.duplicate(), {.all_reduce = comm::parse_all_reduce_spec(spec)}};
      return std::vector<bool>{all_reduce_is_right<double>(own, size, comm::reduction::sum),
                               all_reduce_is_right<std::int32_t>(own, size, comm::reduction::maximum),
                               all_reduce_is_right<std::int64_t>(own, size, comm::reduction::sum),
                               all_reduce_is_right<std::uint8_t>(own, size, comm::reduction::sum),
                               all_reduce_is_right<gradus::bfloat16>(own, size, comm::reduction::sum),
                               all_reduce_is_right<gradus::float16>(own, size, comm::reduction::sum)};
    });
    for (const auto& of_rank : results) {
      for (std::size_t type = 0; type < of_rank.size(); ++type) {
        BOOST_TEST(of_rank[type], spec << ", type " << type);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(all_ranks_have_the_same_bits) {
  const suite::watchdog guard{std::chrono::seconds{300}};
  for (int ranks = 2; ranks <= 9; ++ranks) {
    for (const auto name : comm::all_reduce_algorithm_names) {
      const auto results = comm::run_ranks(ranks, [&](comm::threads& world) {
        comm::collectives own{world.duplicate(),
                              {.all_reduce = comm::parse_all_reduce_spec(name), .node_of_rank = two_nodes(ranks)}};
        std::vector<float> values(1009);
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] = term(world.rank(), i);
        }
        comm::all_reduce(own, values).wait();
        return values;
      });
      for (const auto& of_rank : results) {
        BOOST_TEST((of_rank == results[0]), name << " on " << ranks << " ranks");
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_ring_combines_in_the_order_that_it_promises) {
  const suite::watchdog guard{std::chrono::seconds{120}};
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const auto results = comm::run_ranks(ranks, [&](comm::threads& world) {
      comm::collectives own{world.duplicate(),
                            {.all_reduce = comm::parse_all_reduce_spec("ring"), .segment_bytes = 52}};
      std::vector<float> values(500);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = term(world.rank(), i);
      }
      comm::all_reduce(own, values).wait();
      return values;
    });
    for (const auto& of_rank : results) {
      BOOST_TEST((of_rank == ring_sum(ranks, 500)), ranks << " ranks");
    }
  }
}

BOOST_AUTO_TEST_CASE(the_other_collectives_are_right) {
  const suite::watchdog guard{std::chrono::seconds{300}};
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const auto results = comm::run_ranks(ranks, [&](comm::threads& world) {
      comm::collectives own{world.duplicate(), {.segment_bytes = 4096}};
      gradus::random_stream stream{18, std::to_string(world.rank())};
      std::uint64_t calls = 0;
      bool right = true;
      for (const std::size_t size : {0, 1, 5, 997, 70001}) {
        const int root = static_cast<int>(size) % ranks;
        const auto mine = whole_numbers<std::int32_t>(world.rank(), size);
        const auto of_root = whole_numbers<std::int32_t>(root, size);
        const auto sum = expected_result<std::int32_t>(ranks, size, comm::reduction::sum);
        come_late(stream, calls);
        auto values = mine;
        comm::broadcast(own, values, root).wait();
        right = right && values == of_root;
        come_late(stream, calls);
        values.assign(size, -1);
        own.reduce(std::span<const std::int32_t>{mine}, std::span{values}, root, comm::reduction::sum).wait();
        right = right && values == (world.rank() == root ? sum : std::vector<std::int32_t>(size, -1));
        come_late(stream, calls);
        comm::barrier(own).wait();
      }
      return right;
    });
    for (const bool right : results) {
      BOOST_TEST(right, ranks << " ranks");
    }
  }
}

BOOST_AUTO_TEST_CASE(tuning_gives_all_ranks_the_same_rules_for_all_sizes) {
  const suite::watchdog guard{std::chrono::seconds{120}};
  const auto results = comm::run_ranks(3, [](comm::threads& world) {
    return comm::tune_all_reduce(world, {.smallest_bytes = 64, .largest_bytes = 4096, .repeats = 3}).rules;
  });
  comm::require_all_reduce_rules(results[0]);
  BOOST_TEST((results[1] == results[0] && results[2] == results[0]));
  BOOST_CHECK_THROW(static_cast<void>(comm::run_ranks(
                        1, [](comm::threads& world) { return comm::tune_all_reduce(world, {.repeats = 0}).rules; })),
                    gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(parts_cover_everything_in_order) {
  for (const gradus::index_t count : {0, 1, 5, 16, 97, 1000003}) {
    for (const gradus::index_t parts : {1, 2, 3, 7, 128}) {
      bool right =
          comm::detail::part_bound(count, parts, 0) == 0 && comm::detail::part_bound(count, parts, parts) == count;
      for (gradus::index_t i = 0; i < parts; ++i) {
        const auto size = comm::detail::part_bound(count, parts, i + 1) - comm::detail::part_bound(count, parts, i);
        right = right && (size == count / parts || size == (count + parts - 1) / parts) &&
                comm::detail::part_bound(count, parts, i) == count * i / parts;
      }
      BOOST_TEST(right, count << " in " << parts);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
