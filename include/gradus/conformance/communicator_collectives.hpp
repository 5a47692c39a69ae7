// SPDX-License-Identifier: BSL-1.0
//
// The conformance cases of collectives.
#pragma once

#include <algorithm>  // std::copy
#include <array>      // std::array
#include <chrono>     // std::chrono, std::chrono_literals
#include <cmath>      // std::abs
#include <cstddef>    // std::size_t
#include <cstdint>    // std::int64_t, std::uint8_t
#include <cstring>    // std::memcpy
#include <span>       // std::span
#include <thread>     // std::this_thread
#include <vector>     // std::vector

#include "gradus/comm/communicator.hpp"
#include "gradus/conformance/communicator_values.hpp"
#include "gradus/conformance/suite.hpp"

namespace gradus::conformance {

using namespace std::chrono_literals;

/// all_reduce gives every rank the reduction of all contributions.
template <class Communicator, class Element>
void all_reduce_reduces(Communicator& world) {
  const auto check = [&](std::size_t size, comm::reduction operation) {
    auto values = contributions<Element>(world.rank(), size, operation);
    comm::all_reduce(world, values, operation).wait();
    require_same(values, expected_values<Element>(world.size(), size, operation),
                 label<Element>(name_of(operation), size));
  };
  for (const int size : sizes) {
    for (const comm::reduction operation : reductions) {
      check(static_cast<std::size_t>(size), operation);
    }
  }
  check(50021, comm::reduction::sum);
}

/// broadcast gives every rank the root's elements.
template <class Communicator, class Element>
void broadcast_copies_the_root(Communicator& world) {
  for (const int size : sizes) {
    for (int root = 0; root < world.size(); ++root) {
      auto values = contributions<Element>(world.rank(), static_cast<std::size_t>(size));
      comm::broadcast(world, values, root).wait();
      require_same(values, contributions<Element>(root, values.size()), label<Element>("broadcast", values.size()));
    }
  }
}

/// reduce_scatter gives each rank its block of the reduction.
template <class Communicator, class Element>
void reduce_scatter_gives_each_rank_its_block(Communicator& world) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto own = static_cast<std::size_t>(world.rank());
  for (const int size : sizes) {
    const auto block = static_cast<std::size_t>(size);
    for (const comm::reduction operation : {comm::reduction::sum, comm::reduction::maximum}) {
      for (const bool in_place : {true, false}) {  // in place first: no buffer has the input of an earlier call
        auto input = contributions<Element>(world.rank(), block * ranks, operation);
        std::vector<Element> apart(block);
        const std::span<Element> output = in_place ? std::span{input}.subspan(own * block, block) : std::span{apart};
        comm::reduce_scatter(world, input, output, operation).wait();
        require_same({output.begin(), output.end()},
                     expected_values<Element>(world.size(), block, operation, own * block),
                     label<Element>(in_place ? "reduce_scatter in place" : "reduce_scatter", block));
        if (!in_place) {
          require_same(input, contributions<Element>(world.rank(), block * ranks, operation), "the input");
        }
      }
    }
  }
}

/// all_gather gives every rank the blocks of all ranks, in place or not.
template <class Communicator, class Element>
void all_gather_collects_all_blocks(Communicator& world) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto own = static_cast<std::size_t>(world.rank());
  for (const int size : sizes) {
    const auto block = static_cast<std::size_t>(size);
    for (const int in_place_ranks : {0, 1, world.size()}) {  // no rank, rank 0 only, all
      const auto mine = contributions<Element>(world.rank(), block);
      std::vector<Element> output(block * ranks);
      if (world.rank() < in_place_ranks) {
        const auto own_block = std::span{output}.subspan(own * block, block);
        std::copy(mine.begin(), mine.end(), own_block.begin());
        comm::all_gather(world, own_block, output).wait();
      } else {
        comm::all_gather(world, mine, output).wait();
      }
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const auto theirs = contributions<Element>(static_cast<int>(rank), block);
        require(same<Element>(theirs, std::span{output}.subspan(rank * block, block)),
                label<Element>("all_gather", block));
      }
    }
  }
}

/// Rounded sums have the same bits on all ranks and in every run, and are close to the exact value.
template <class Communicator>
void rounded_sums_have_the_same_bits_everywhere(Communicator& world) {
  for (const std::size_t size : {1U, 37U, 4099U, 20011U}) {
    std::vector<double> exact(size);
    std::vector<float> own(size);
    for (std::size_t i = 0; i < size; ++i) {
      for (int rank = 0; rank < world.size(); ++rank) {
        const float value = 1.0F / (static_cast<float>(i) + 1.5F + static_cast<float>(rank) * 0.7F);
        exact[i] += static_cast<double>(value);
        if (rank == world.rank()) {
          own[i] = value;
        }
      }
    }
    std::vector<float> first;
    for (int run = 0; run < 3; ++run) {
      std::vector<float> values = own;
      std::this_thread::sleep_for(std::chrono::microseconds{(world.rank() * 37 + run * 101) % 300});
      comm::all_reduce(world, values).wait();
      if (run == 0) {
        first = values;
        for (std::size_t i = 0; i < size; ++i) {
          require(std::abs(static_cast<double>(values[i]) - exact[i]) <= 4e-7 * exact[i], "the sum is wrong");
        }
      }
      require(same(first, values), "two runs differ");
    }
    std::vector<std::uint8_t> bytes(size * sizeof(float));
    std::memcpy(bytes.data(), first.data(), bytes.size());
    std::vector<std::uint8_t> all(bytes.size() * static_cast<std::size_t>(world.size()));
    comm::all_gather(world, bytes, all).wait();
    for (std::size_t begin = 0; begin < all.size(); begin += bytes.size()) {
      require(same<std::uint8_t>(bytes, std::span{all}.subspan(begin, bytes.size())), "two ranks differ");
    }
  }
}

/// No rank leaves a barrier before all ranks have entered it.
template <class Communicator>
void no_rank_leaves_a_barrier_before_all_have_entered(Communicator& world) {
  for (int late = 0; late < world.size(); ++late) {
    if (world.rank() == late) {
      std::this_thread::sleep_for(3ms);
    }
    // All ranks of a machine share the steady clock.
    std::array<std::int64_t, 1> came{std::chrono::steady_clock::now().time_since_epoch().count()};
    comm::barrier(world).wait();
    const std::int64_t left = std::chrono::steady_clock::now().time_since_epoch().count();
    comm::all_reduce(world, came, comm::reduction::maximum).wait();
    require(came[0] <= left, "a rank left the barrier before another entered it");
  }
}

}  // namespace gradus::conformance
