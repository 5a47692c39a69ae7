// SPDX-License-Identifier: BSL-1.0
//
// Ranks that have done their part may leave at any time: their messages still arrive, and no rank fails.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "../support/communicators_mpi.hpp"
#include "gradus/comm/detail/mpi/membership.hpp"
#include "gradus/comm/mpi_shared.hpp"

namespace {

namespace suite = communicator_tests;
namespace comm = gradus::comm;
using namespace std::chrono_literals;

/// This rank has heard of whoever left before the call: notices are looked for once in a millisecond.
void hear_of_departures(comm::mpi& world) {
  for (int i = 0; i < 5; ++i) {
    comm::barrier(world).wait();
    std::this_thread::sleep_for(2ms);
  }
}

/// Messages that were sent before their sender left are received after it, of any tag, in the order of each tag.
template <class Communicator>
void messages_outlive_their_sender(comm::mpi& world, Communicator own) {
  std::optional<Communicator> channel{std::move(own)};
  constexpr int messages = 50;  // with more tags than are counted apart
  if (world.rank() == 0) {
    for (int peer = 1; peer < world.size(); ++peer) {
      for (int i = 0; i < messages; ++i) {
        const float value = static_cast<float>(i + 100 * peer);
        comm::send(*channel, peer, std::span{&value, 1}, i % 20).wait();
      }
    }
    channel.reset();
  }
  hear_of_departures(world);
  if (world.rank() != 0) {
    for (int tag = 19; tag >= 0; --tag) {
      for (int i = tag; i < messages; i += 20) {
        float value = 0;
        comm::receive(*channel, 0, std::span{&value, 1}, tag).wait();
        suite::require(value == static_cast<float>(i + 100 * world.rank()), "a message of a rank that left");
      }
    }
  }
  comm::barrier(world).wait();
}

/// Every order of leaving, while those that stay exchange messages and work on other communicators.
template <class Communicator>
void ranks_leave_in_every_order(comm::mpi& world, Communicator& first) {
  std::vector<int> order(static_cast<std::size_t>(world.size()));
  std::iota(order.begin(), order.end(), 0);
  do {
    std::optional<Communicator> channel{first.duplicate()};
    auto sums = suite::contributions<float>(world.rank(), 1009);
    comm::all_reduce(*channel, sums).wait();
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (order[i] == world.rank()) {
        channel.reset();
      } else if (channel.has_value() && i + 2 < order.size()) {  // the next two in the order stay
        float value = 1;
        if (order[i + 1] == world.rank()) {
          comm::send(*channel, order[i + 2], std::span{&value, 1}, 7).wait();
        } else if (order[i + 2] == world.rank()) {
          comm::receive(*channel, order[i + 1], std::span{&value, 1}, 7).wait();
        }
      }
      hear_of_departures(world);
    }
    suite::require_same(sums, suite::expected_values<float>(world.size(), sums.size()), "sum");
  } while (std::next_permutation(order.begin(), order.end()));
}

/// Half of the ranks work in a communicator of their own; the others have left theirs.
void others_leave_while_a_part_works(comm::mpi_environment& environment, comm::mpi& world) {
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world.rank() % 2, world.rank(), &part);
  std::optional<comm::mpi> whole{world.duplicate()};
  {
    comm::mpi half{environment, part};
    if (world.rank() % 2 == 1) {
      whole.reset();
    } else {
      for (int i = 0; i < 20; ++i) {
        auto sums = suite::contributions<float>(half.rank(), 1009);
        comm::all_reduce(half, sums).wait();
        suite::require_same(sums, suite::expected_values<float>(half.size(), sums.size()), "sum of a part");
        std::this_thread::sleep_for(1ms);
      }
    }
  }
  MPI_Comm_free(&part);
  comm::barrier(world).wait();
}

/// A collective that a rank has begun and dropped counts: the others complete it.
void dropped_collectives_count(comm::mpi& world) {
  std::optional<comm::mpi> channel{world.duplicate()};
  auto sums = suite::contributions<float>(world.rank(), 50021);
  { const comm::request dropped = comm::all_reduce(*channel, sums); }
  channel.reset();
  suite::require_same(sums, suite::expected_values<float>(world.size(), sums.size()), "a dropped sum");
}

/// A message that was sent before its sender left may be on its way for any time: it is waited for.
void messages_on_their_way_are_waited_for() {
  using comm::call_kind;
  comm::detail::mpi_membership mine{1, 0, 2};
  const comm::call_description first{.kind = call_kind::receive, .peer = 1, .tag = 3, .count = 1, .element = "float32"};
  const comm::call_description other{.kind = call_kind::receive, .peer = 1, .tag = 4, .count = 1, .element = "float32"};
  const comm::call_description send{.kind = call_kind::send, .peer = 1, .tag = 3, .count = 1, .element = "float32"};
  const comm::call_description barrier{.kind = call_kind::barrier};
  comm::detail::mpi_membership theirs{1, 1, 2};
  for (const comm::call_description& each : {first, other, send, barrier}) {
    suite::require(mine.begin(each) == (each.kind == call_kind::receive ? 0U : 1U), "the first of its kind");
  }
  comm::call_description sent = send;
  sent.peer = 0;
  suite::require(theirs.begin(sent) == 1 && theirs.begin(sent) == 2 && theirs.begin(barrier) == 1, "numbers");
  suite::require(!mine.some_left(), "nobody has left");
  mine.hear(theirs.departure(0, false), 5);
  const auto can = [&](const comm::call_description& what, std::uint64_t number) {
    return !mine.absence_from(what, number, "rank 0").has_value();
  };
  suite::require(mine.some_left() && can(barrier, 1) && !can(barrier, 2), "collectives");
  suite::require(can(first, 0) && !can(other, 0), "two messages with tag 3 were sent, none with tag 4");
  mine.received(first);
  suite::require(can(first, 0), "one of them has come");
  mine.received(first);
  suite::require(!can(first, 0), "both of them have come");
  suite::require(mine.absence_from(first, 0, "rank 0")->world_rank == 5, "the rank in the world");
  suite::require(can(send, 1), "MPI has a second to find out that a message has arrived");
}

}  // namespace

int main(int argc, char** argv) {
  comm::mpi_environment environment{argc, argv};
  const int result = suite::run_conformance(environment, argc, argv, [&](comm::mpi& world) {
    messages_outlive_their_sender(world, world.duplicate());
    messages_outlive_their_sender(world, comm::mpi_shared{environment});
    ranks_leave_in_every_order(world, world);
    comm::mpi_shared shared{environment};
    ranks_leave_in_every_order(world, shared);
    others_leave_while_a_part_works(environment, world);
    dropped_collectives_count(world);
    messages_on_their_way_are_waited_for();
    if (world.rank() == 0) {
      std::printf("passed: leaving\n");
    }
  });
  // The ends of the programs, too, come one after the other.
  std::this_thread::sleep_for(50ms * environment.rank());
  return result;
}
