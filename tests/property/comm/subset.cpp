// SPDX-License-Identifier: BSL-1.0
//
// Collectives and messages of random subsets, for 1 to 7 ranks and every algorithm: those of plain sums and copies.
#include <boost/test/unit_test.hpp>

#include <algorithm>  // std::find
#include <chrono>     // std::chrono
#include <cstddef>    // std::ptrdiff_t, std::size_t
#include <cstdint>    // std::int64_t, std::uint64_t
#include <span>       // std::span
#include <string>     // std::to_string
#include <thread>     // std::this_thread
#include <utility>    // std::swap
#include <vector>     // std::vector

#include "../../support/communicators.hpp"  // watchdog
#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/comm/subset.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/random.hpp"

namespace {

namespace comm = gradus::comm;

/// Whole numbers, so that sums are exact in any order.
std::vector<std::int64_t> numbers_of(int rank, std::size_t size, std::uint64_t round) {
  std::vector<std::int64_t> numbers(size);
  for (std::size_t i = 0; i < size; ++i) {
    numbers[i] = static_cast<std::int64_t>(gradus::random_stream{round, std::to_string(rank)}.below(1000, i)) - 500;
  }
  return numbers;
}

/// Ranks in random order, split into random lists; those of the last list belong to no subset.
std::vector<std::vector<int>> random_lists(int ranks, const gradus::random_stream& stream) {
  std::vector<int> order;
  for (int rank = 0; rank < ranks; ++rank) {
    order.push_back(rank);
  }
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<std::size_t>(stream.below(i, i))]);
  }
  std::vector<std::vector<int>> lists(1);
  for (std::size_t i = 0; i < order.size(); ++i) {
    lists.back().push_back(order[i]);
    if (stream.below(3, 100 + i) == 0) {
      lists.emplace_back();
    }
  }
  return lists;
}

/// Compares all operations of this rank's subset with plain loops over the ranks of the list.
bool operations_are_right(comm::subset<comm::threads>& own, const std::vector<int>& list, std::size_t size,
                          std::uint64_t round) {
  const auto members = list.size();
  const int base_rank = list[static_cast<std::size_t>(own.rank())];
  std::vector<std::int64_t> sums(size * members);
  for (const int rank : list) {
    const auto theirs = numbers_of(rank, size * members, round);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += theirs[i];
    }
  }
  const auto part_of_sums = [&](std::size_t position) {
    return std::vector<std::int64_t>(sums.begin() + static_cast<std::ptrdiff_t>(position * size),
                                     sums.begin() + static_cast<std::ptrdiff_t>((position + 1) * size));
  };
  const auto mine = numbers_of(base_rank, size * members, round);
  bool right = own.size() == static_cast<int>(members);

  auto data = mine;
  comm::all_reduce(own, data).wait();
  right = right && data == sums;

  std::vector<std::int64_t> part(size);
  comm::reduce_scatter(own, std::span<const std::int64_t>{mine}, part).wait();
  right = right && part == part_of_sums(static_cast<std::size_t>(own.rank()));

  std::vector<std::int64_t> all(size * members);
  comm::all_gather(own, std::span<const std::int64_t>{part}, all).wait();
  right = right && all == sums;

  const int root = static_cast<int>(round % members);
  data = mine;
  comm::broadcast(own, data, root).wait();
  right = right && data == numbers_of(list[static_cast<std::size_t>(root)], size * members, round);

  if (members > 1) {  // each rank sends to the next
    const int next = (own.rank() + 1) % own.size();
    const int previous = (own.rank() + own.size() - 1) % own.size();
    auto sent = comm::send(own, next, mine, 3);
    comm::receive(own, previous, data, 3).wait();
    sent.wait();
    right = right && data == numbers_of(list[static_cast<std::size_t>(previous)], size * members, round);
  }
  comm::barrier(own).wait();
  return right;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_subset_properties)

BOOST_AUTO_TEST_CASE(operations_of_random_subsets_are_right) {
  const communicator_tests::watchdog guard{std::chrono::seconds{300}};
  std::uint64_t round = 0;
  for (int ranks = 1; ranks <= 7; ++ranks) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      for (const auto name : comm::all_reduce_algorithm_names) {
        const gradus::random_stream stream{++round, "lists"};
        const std::vector<std::vector<int>> lists = random_lists(ranks, stream);
        const bool last_in_none = repeat == 2;
        const auto results = comm::run_ranks(ranks, [&](comm::threads& world) {
          std::size_t at = 0;
          while (std::find(lists[at].begin(), lists[at].end(), world.rank()) == lists[at].end()) {
            ++at;
          }
          const bool in_none = last_in_none && at + 1 == lists.size();
          comm::subset own{world.duplicate(),
                           in_none ? std::vector<int>{} : lists[at],
                           {.all_reduce = comm::parse_all_reduce_spec(name),
                            .segment_bytes = 512,
                            .node_of_rank = std::vector<int>(static_cast<std::size_t>(ranks), 0)}};
          comm::subset other = own.duplicate();
          if (in_none) {
            return own.size() == 0 && other.size() == 0;
          }
          bool right = true;
          for (const std::size_t size : {0, 1, 130, 3001}) {
            std::this_thread::sleep_for(std::chrono::microseconds{
                static_cast<int>(gradus::random_stream{round, "late"}.below(100, static_cast<std::uint64_t>(at)))});
            right = operations_are_right(size % 2 == 0 ? own : other, lists[at], size, round) && right;
          }
          return right;
        });
        for (std::size_t rank = 0; rank < results.size(); ++rank) {
          BOOST_TEST(results[rank], name << ", round " << round << ", rank " << rank << " of " << ranks);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(nodes_are_those_of_the_ranks_of_the_base) {
  const communicator_tests::watchdog guard{std::chrono::seconds{120}};
  for (const auto* const spec : {"hierarchical_ring", "hierarchical_halving_doubling"}) {
    const auto results = comm::run_ranks(7, [&](comm::threads& world) {
      const std::vector<int> list =
          world.rank() % 3 == 2 ? std::vector{5, 2} : std::vector{6, 0, 4, 3, 1};  // 2 or 3 ranks a node
      comm::subset own{world.duplicate(),
                       list,
                       {.all_reduce = comm::parse_all_reduce_spec(spec), .node_of_rank = {0, 0, 0, 1, 1, 2, 2}}};
      return operations_are_right(own, list, 1009, 1);
    });
    for (const bool right : results) {
      BOOST_TEST(right, spec);
    }
  }
}

BOOST_AUTO_TEST_CASE(all_ranks_of_a_subset_have_the_same_bits) {
  const communicator_tests::watchdog guard{std::chrono::seconds{120}};
  for (const auto name : comm::all_reduce_algorithm_names) {
    const auto results = comm::run_ranks(6, [&](comm::threads& world) {
      comm::subset own{world.duplicate(),
                       world.rank() == 2 ? std::vector{2} : std::vector{4, 0, 5, 1, 3},
                       {.all_reduce = comm::parse_all_reduce_spec(name), .node_of_rank = {0, 0, 0, 1, 1, 1}}};
      std::vector<float> values(1009);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = 1.0F / (1.5F + static_cast<float>(i) + 0.3F * static_cast<float>(own.rank()));
      }
      comm::all_reduce(own, values).wait();
      return values;
    });
    for (const std::size_t rank : {1U, 3U, 4U, 5U}) {
      BOOST_TEST((results[rank] == results[0]), name << " on rank " << rank);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
