// SPDX-License-Identifier: BSL-1.0
//
// The conformance cases of ranks that fail, leave or are late. Each leaves the communicator failed: it needs a new one.
#pragma once

#include <array>     // std::array
#include <chrono>    // std::chrono, std::chrono_literals
#include <cstddef>   // std::size_t
#include <deque>     // std::deque
#include <mutex>     // std::mutex, std::scoped_lock
#include <optional>  // std::optional
#include <span>      // std::span
#include <string>    // std::string, std::to_string
#include <thread>    // std::this_thread
#include <vector>    // std::vector

#include "gradus/comm/communicator.hpp"
#include "gradus/conformance/communicator_values.hpp"
#include "gradus/conformance/suite.hpp"
#include "gradus/core/error.hpp"

namespace gradus::conformance {

using namespace std::chrono_literals;

/// The last rank fails while the others wait for it. All ranks see its reason, also on duplicates, and can do no more.
template <class Communicator>
void a_rank_that_fails_is_named(Communicator& world) {
  Communicator other = world.duplicate();
  const int culprit = world.size() - 1;
  const std::string reason = "rank " + std::to_string(culprit) + " failed: the disk is full";
  std::vector<float> data(20011, 1.0F);
  if (world.rank() == culprit) {
    std::this_thread::sleep_for(20ms);
    world.fail("the disk is full");
  } else {
    require_contains(message_of<gradus::communication_error>([&] { comm::all_reduce(world, data).wait(); }), reason);
    require_contains(message_of<gradus::communication_error>([&] { comm::receive(world, culprit, data).wait(); }),
                     reason);
  }
  for (Communicator* each : {&world, &other}) {
    require_contains(message_of<gradus::communication_error>([&] { comm::barrier(*each).wait(); }), reason);
    require_contains(message_of<gradus::communication_error>([&] { comm::all_reduce(*each, data).wait(); }), reason);
    require_contains(message_of<gradus::communication_error>([&] { static_cast<void>(each->duplicate()); }), reason);
  }
}

/// Requests that are in flight when a rank fails end, whether they are tested or waited for.
template <class Communicator>
void pending_requests_end_when_a_rank_fails(Communicator& world) {
  const int culprit = world.size() - 1;
  if (world.rank() == culprit) {
    world.fail("out of coffee");
    return;
  }
  std::vector<std::vector<float>> data(3, std::vector<float>(50021, 1.0F));
  const std::string message = message_of<gradus::communication_error>([&] {
    comm::request pending[3];  // they may already be refused
    pending[0] = comm::all_reduce(world, data[0]);
    pending[1] = comm::receive(world, culprit, data[1], 3);
    pending[2] = comm::send(world, culprit, data[2], 4);
    require_contains(message_of<gradus::communication_error>([&] { pending[1].wait(); }), "out of coffee");
    require_contains(message_of<gradus::communication_error>([&] {
                       while (!pending[2].test()) {
                         std::this_thread::yield();
                       }
                     }),
                     "out of coffee");
    require(pending[1].test() && pending[2].test(), "a request that has failed is over");
    pending[0].wait();
  });
  require_contains(message, "rank " + std::to_string(culprit) + " failed: out of coffee");
}

/// The last rank destroys its communicator. The ranks that wait for it report its name long before their time limit.
/// Messages that it sent before arrive.
template <class Communicator>
void a_rank_that_leaves_is_named(Communicator& world) {
  if (world.size() == 1) {
    return;
  }
  const int leaver = world.size() - 1;
  std::optional<Communicator> own{world.duplicate()};
  own->set_time_limit(100s);
  std::vector<float> data = contributions<float>(world.rank(), 1009);
  comm::all_reduce(*own, data).wait();
  comm::barrier(world).wait();  // no rank is in the first collective when one leaves
  std::array values{1.0F, 2.0F};
  // A rank that fails ends waits of duplicates too: this barrier completes, or names the rank that has left.
  const auto all_have_come = [&] { comm::barrier(world).wait(); };
  if (world.rank() == leaver) {
    comm::send(*own, 0, values, 3).wait();
    own.reset();
    try {
      all_have_come();
    } catch (const gradus::communication_error&) {  // another rank is further and names this one
    }
    return;
  }
  if (world.rank() == 0) {
    values = {};
    comm::receive(*own, leaver, values, 3).wait();
    require(values[1] == 2.0F, "a message of a rank that has left");
  }
  const std::string message = message_of<gradus::communication_error>([&] {
    all_have_come();
    comm::all_reduce(*own, data).wait();
  });
  require_contains(message, "rank " + std::to_string(leaver) + " failed: it has left");
}

/// An array of ones that lives until the program ends: MPI cannot withdraw a collective that a rank no longer waits
/// for, and may write to its array for as long as the program calls MPI.
inline std::vector<float>& lasting_ones(std::size_t size) {
  static std::mutex mutex;
  static std::deque<std::vector<float>> arrays;
  const std::scoped_lock lock{mutex};
  return arrays.emplace_back(size, 1.0F);
}

/// Rank 0 stops waiting for late ranks after the time limit; the late ranks then see the error.
template <class Communicator>
void a_wait_has_a_time_limit(Communicator& world) {
  if (world.size() == 1) {
    return;
  }
  std::vector<float>& data = lasting_ones(10007);
  const auto begin = std::chrono::steady_clock::now();
  if (world.rank() == 0) {
    world.set_time_limit(150ms);
    const std::string message = message_of<gradus::communication_error>([&] { comm::all_reduce(world, data).wait(); });
    const auto took = std::chrono::steady_clock::now() - begin;
    require_contains(message, "all_reduce(sum) of 10007 float32");
    require_contains(message, "within 0.15 s");
    require(message.find("rank 1") != std::string::npos || message.find("ranks 1") != std::string::npos, message);
    require(took >= 150ms && took < 3s, "the time limit was not kept");
  } else {
    std::this_thread::sleep_for(900ms);
    require_contains(message_of<gradus::communication_error>([&] {
                       for (;;) {  // messages that rank 0 sent before its time limit may complete the first one
                         comm::all_reduce(world, data).wait();
                       }
                     }),
                     "rank 0 failed: all_reduce(sum) of 10007 float32");
  }
}

/// A receive without a sender ends after the time limit.
template <class Communicator>
void a_receive_has_a_time_limit(Communicator& world) {
  if (world.size() == 1) {
    return;
  }
  if (world.rank() == 0) {
    world.set_time_limit(100ms);
    std::vector<float> data(7);
    require_contains(message_of<gradus::communication_error>([&] { comm::receive(world, 1, data, 9).wait(); }),
                     "receive from rank 1 (tag 9) of 7 float32");
  } else {
    std::this_thread::sleep_for(300ms);
    require_contains(message_of<gradus::communication_error>([&] { comm::barrier(world).wait(); }), "rank 0 failed");
  }
}

/// Sender and receiver expect different sizes: the rank that detects it raises an error, and then all ranks do.
template <class Communicator>
void a_message_of_another_size_is_an_error(Communicator& world) {
  if (world.size() == 1) {
    return;
  }
  world.set_time_limit(20s);
  std::vector<float> data(8);
  const std::string message = message_of<gradus::communication_error>([&] {
    if (world.rank() == 0) {
      comm::send(world, 1, std::span{data}.first(5)).wait();
    } else if (world.rank() == 1) {
      comm::receive(world, 0, data).wait();
    }
    comm::barrier(world).wait();
  });
  require_contains(message, "ranks disagree about a message");
}

}  // namespace gradus::conformance
