// SPDX-License-Identifier: BSL-1.0
//
// The conformance cases of messages, of requests, and of duplicates of a communicator.
#pragma once

#include <array>    // std::array
#include <chrono>   // std::chrono_literals
#include <cstddef>  // std::size_t
#include <cstdint>  // std::int32_t, std::int64_t, std::uint8_t
#include <span>     // std::span
#include <thread>   // std::this_thread
#include <utility>  // std::move
#include <vector>   // std::vector

#include "gradus/comm/communicator.hpp"
#include "gradus/conformance/communicator_values.hpp"
#include "gradus/conformance/suite.hpp"
#include "gradus/core/error.hpp"

namespace gradus::conformance {

using namespace std::chrono_literals;

/// Messages between all pairs of ranks arrive complete.
template <class Communicator>
void messages_arrive(Communicator& world) {
  const int ranks = world.size();
  const int own = world.rank();
  const auto text = [](int from, int to, std::size_t size) {
    auto values = contributions<float>(from * 31 + to, size);
    return values;
  };
  for (const int size : {0, 1, 97, 4099, 50021}) {  // every rank with every other, all at once
    const auto count = static_cast<std::size_t>(size);
    std::vector<std::vector<float>> out(static_cast<std::size_t>(ranks));
    std::vector<std::vector<float>> in(static_cast<std::size_t>(ranks));
    std::vector<comm::request> pending;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != own) {
        out[static_cast<std::size_t>(peer)] = text(own, peer, count);
        in[static_cast<std::size_t>(peer)].resize(count);
        if (own % 2 == 0) {
          pending.push_back(comm::send(world, peer, out[static_cast<std::size_t>(peer)], 5));
          pending.push_back(comm::receive(world, peer, in[static_cast<std::size_t>(peer)], 5));
        } else {
          pending.push_back(comm::receive(world, peer, in[static_cast<std::size_t>(peer)], 5));
          pending.push_back(comm::send(world, peer, out[static_cast<std::size_t>(peer)], 5));
        }
      }
    }
    for (comm::request& each : pending) {
      each.wait();
    }
    for (int peer = 0; peer < ranks; ++peer) {
      require(peer == own || in[static_cast<std::size_t>(peer)] == text(peer, own, count), "a message is wrong");
    }
  }
}

/// A receive takes the message with its tag; messages of one tag keep their order.
template <class Communicator>
void messages_match_by_tag_and_order(Communicator& world) {
  constexpr int messages = 12;
  if (world.size() < 2 || world.rank() > 1) {
    return;
  }
  const int peer = 1 - world.rank();
  std::array<std::array<std::int64_t, 3>, messages> data{};
  std::vector<comm::request> pending(messages);
  if (world.rank() == 0) {
    for (int i = 0; i < messages; ++i) {
      data[static_cast<std::size_t>(i)] = {i + 1, 2 * i, -i};
      pending[static_cast<std::size_t>(i)] = comm::send(world, peer, data[static_cast<std::size_t>(i)], i % 3);
    }
  } else {
    for (const int tag : {2, 0, 1}) {
      for (int i = tag; i < messages; i += 3) {
        pending[static_cast<std::size_t>(i)] = comm::receive(world, peer, data[static_cast<std::size_t>(i)], tag);
      }
    }
  }
  for (int i = messages - 1; i >= 0; --i) {
    pending[static_cast<std::size_t>(i)].wait();
    require(data[static_cast<std::size_t>(i)] == std::array<std::int64_t, 3>{i + 1, 2 * i, -i}, "wrong message");
  }
  std::array<std::uint8_t, 1> last{static_cast<std::uint8_t>(world.rank() == 0 ? 77 : 0)};
  (world.rank() == 0 ? comm::send(world, peer, last, comm::largest_tag)
                     : comm::receive(world, peer, last, comm::largest_tag))
      .wait();
  require(last[0] == 77, "the largest tag");
}

/// Many requests may be in flight at the same time.
template <class Communicator>
void many_requests_are_under_way(Communicator& world) {
  constexpr std::size_t count = 40;
  std::vector<std::vector<float>> sums;
  std::vector<std::vector<std::int32_t>> copies;
  std::vector<comm::request> pending;
  for (std::size_t i = 0; i < count; ++i) {
    sums.push_back(contributions<float>(world.rank(), 1 + i * 211));
    copies.push_back(contributions<std::int32_t>(world.rank(), 1 + i * 17));
    pending.push_back(comm::all_reduce(world, sums.back()));
    pending.push_back(comm::broadcast(world, copies.back(), static_cast<int>(i) % world.size()));
  }
  for (std::size_t i = pending.size(); i-- > 0;) {
    if (i % 3 == 0) {
      while (!pending[i].test()) {
        std::this_thread::yield();
      }
      require(pending[i].test(), "a complete request stays complete");
    }
    pending[i].wait();
  }
  for (std::size_t i = 0; i < count; ++i) {
    require_same(sums[i], expected_values<float>(world.size(), sums[i].size()), "sum");
    require_same(copies[i], contributions<std::int32_t>(static_cast<int>(i) % world.size(), copies[i].size()), "copy");
  }
}

/// Operations on two duplicates do not mix, even if ranks start them in different orders.
template <class Communicator>
void duplicates_are_independent(Communicator& world) {
  world.set_time_limit(30s);
  Communicator other = world.duplicate();
  require(other.rank() == world.rank() && other.size() == world.size(), "the ranks of a duplicate");
  require(other.time_limit() == world.time_limit(), "the time limit of a duplicate");
  std::vector<float> sums = contributions<float>(world.rank(), 1009);
  std::vector<float> greatest = sums;
  comm::request first;
  comm::request second;
  if (world.rank() % 2 == 0) {
    first = comm::all_reduce(world, sums);
    second = comm::all_reduce(other, greatest, comm::reduction::maximum);
  } else {
    second = comm::all_reduce(other, greatest, comm::reduction::maximum);
    first = comm::all_reduce(world, sums);
  }
  first.wait();
  second.wait();
  require_same(sums, expected_values<float>(world.size(), sums.size()), "the first channel");
  require_same(greatest, expected_values<float>(world.size(), greatest.size(), comm::reduction::maximum),
               "the second channel");
  if (world.size() >= 2 && world.rank() < 2) {
    const int peer = 1 - world.rank();
    std::array values{1.0F, 2.0F};
    comm::request messages[2];
    if (world.rank() == 0) {
      messages[0] = comm::send(other, peer, std::span{values}.first(1));
      messages[1] = comm::send(world, peer, std::span{values}.last(1));
    } else {
      values = {};
      messages[1] = comm::receive(world, peer, std::span{values}.last(1));
      messages[0] = comm::receive(other, peer, std::span{values}.first(1));
    }
    messages[1].wait();
    messages[0].wait();
    require(values[0] == 1.0F && values[1] == 2.0F, "a message arrived on another duplicate");
  }
  // A move changes nothing for other ranks. A moved-from communicator raises an error that says so.
  Communicator moved{std::move(other)};
  comm::barrier(moved).wait();
  require(other.size() == 0, "a moved-from communicator has size 0");  // NOLINT(bugprone-use-after-move)
  require_contains(message_of<gradus::configuration_error>([&] { comm::barrier(other).wait(); }), "moved from");
  require_contains(message_of<gradus::configuration_error>([&] { static_cast<void>(other.duplicate()); }),
                   "moved from");
  other = std::move(moved);
  comm::barrier(other).wait();
  world.set_time_limit(comm::default_time_limit);
}

/// A request that is dropped or replaced is completed first, so that its buffer is free.
template <class Communicator>
void dropped_requests_complete(Communicator& world) {
  std::vector<float> a = contributions<float>(world.rank(), 5003);
  std::vector<float> b = a;
  {
    comm::request pending = comm::all_reduce(world, a);
    pending = comm::all_reduce(world, b);
    comm::request taken{std::move(pending)};
    require(pending.test(), "a moved-from request is complete");  // NOLINT(bugprone-use-after-move)
  }
  const auto expected = expected_values<float>(world.size(), a.size());
  require(same(a, expected) && same(b, expected), "a dropped request did not complete");
}

}  // namespace gradus::conformance
