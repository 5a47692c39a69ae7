// SPDX-License-Identifier: BSL-1.0
//
// The ring's @post for 1 to 9 ranks: the exact sum, the same bits on all ranks, in the order that it promises.
#include <boost/test/unit_test.hpp>

#include <vector>  // std::vector

#include "../../support/communicators.hpp"  // watchdog
#include "gradus/comm/ring.hpp"             // ring
#include "gradus/comm/threads.hpp"          // run_ranks, threads

namespace {

namespace comm = gradus::comm;

float term(int rank, std::size_t i) {
  return 1.0F / (1.5F + static_cast<float>(i % 1013) + 0.3F * static_cast<float>(rank));
}

/// Chunk c is combined in the order of the ranks c, c+1, ..., around.
std::vector<float> expected_sum(int ranks, std::size_t size) {
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

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_ring_properties)

BOOST_AUTO_TEST_CASE(all_reduce_has_the_promised_bits_on_all_ranks) {
  const communicator_tests::watchdog guard{std::chrono::seconds{120}};
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const gradus::index_t segment_bytes : {4, 52, 4096}) {
      const auto results = comm::run_ranks(ranks, [&](comm::threads& world) {
        comm::ring around{world.duplicate(), {.segment_bytes = segment_bytes}};
        std::vector<std::vector<float>> of_sizes;
        for (const int size : {0, 1, 2, 3, 7, 8, 9, 37, 211, segment_bytes < 100 ? 500 : 20011}) {
          auto& values = of_sizes.emplace_back(static_cast<std::size_t>(size));
          for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = term(world.rank(), i);
          }
          comm::all_reduce(around, values).wait();
        }
        return of_sizes;
      });
      for (const auto& of_rank : results) {
        for (const auto& values : of_rank) {
          const auto expected = expected_sum(ranks, values.size());
          BOOST_TEST(values == expected, values.size()
                                             << " elements on " << ranks << " ranks, segments of " << segment_bytes);
        }
      }
    }
  }
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
