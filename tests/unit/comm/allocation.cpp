// SPDX-License-Identifier: BSL-1.0
//
// Once a communicator is warm, communication allocates nothing: this program counts the calls of operator new.
#include <boost/test/unit_test.hpp>

#include <array>    // std::array
#include <cstddef>  // std::size_t
#include <memory>   // std::make_shared, std::make_unique
#include <span>     // std::span
#include <vector>   // std::vector

#include "../../support/allocation_count.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/flight_recorder.hpp"
#include "gradus/comm/recorded.hpp"
#include "gradus/comm/threads.hpp"

#ifdef GRADUS_TEST_COUNTS_ALLOCATIONS
#include "../../support/count_allocations.hpp"

namespace {

namespace comm = gradus::comm;

/// A few of everything, several under way at a time.
template <class Communicator>
void exchange(Communicator& world, std::vector<float>& large, std::vector<float>& blocks, std::vector<float>& block) {
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  comm::request first = comm::all_reduce(world, large);
  comm::request second = comm::all_gather(world, block, blocks);
  first.wait();
  second.wait();
  comm::request message = comm::receive(world, previous, block, 1);
  comm::send(world, next, std::span{blocks}.first(block.size()), 1).wait();
  message.wait();
  comm::reduce_scatter(world, blocks, block).wait();
  comm::broadcast(world, block).wait();
  comm::barrier(world).wait();
}

template <class Communicator>
long allocations_when_warm(Communicator& world) {
  std::vector<float> large(40000, 1.0F);
  std::vector<float> block(300, 1.0F);
  std::vector<float> blocks(block.size() * static_cast<std::size_t>(world.size()));
  {  // more under way than ever again, whatever the ranks' speeds are
    std::vector<std::vector<float>> copies(10, large);
    std::vector<std::vector<float>> gathered(10, blocks);
    std::vector<std::array<float, 2>> letters(10);
    std::vector<comm::request> pending;
    for (std::size_t i = 0; i < copies.size(); ++i) {
      pending.push_back(comm::all_reduce(world, copies[i]));
      pending.push_back(comm::all_gather(world, block, gathered[i]));
      pending.push_back(comm::receive(world, 1 - world.rank(), std::span{letters[i]}.first(1), 2));
      pending.push_back(comm::send(world, 1 - world.rank(), std::span{letters[i]}.last(1), 2));
    }
    for (comm::request& each : pending) {
      each.wait();
    }
  }
  for (int i = 0; i < 20; ++i) {
    exchange(world, large, blocks, block);
  }
  comm::barrier(world).wait();
  const long before = allocations;
  for (int i = 0; i < 100; ++i) {
    exchange(world, large, blocks, block);
  }
  comm::barrier(world).wait();
  return allocations - before;
}

/// All receives of both ranks wait before the first send begins.
template <class Communicator>
long allocations_when_reserved(Communicator& world) {
  constexpr std::size_t letters = 50;
  std::array<float, letters> out{};
  std::array<float, letters> in{};
  std::array<comm::request, 2 * letters> pending;
  const int other = 1 - world.rank();
  comm::reserve_messages(world, 20);
  comm::reserve_messages(world, pending.size() - 20);
  for (int i = 0; i < 20; ++i) {  // their meetings exist already
    comm::barrier(world).wait();
  }
  const long before = allocations;
  comm::barrier(world).wait();
  for (std::size_t i = 0; i < letters; ++i) {
    pending[i] = comm::receive(world, other, std::span{&in[i], 1}, static_cast<int>(i));
  }
  comm::barrier(world).wait();
  for (std::size_t i = 0; i < letters; ++i) {
    out[i] = 1;
    pending[letters + i] = comm::send(world, other, std::span{&out[i], 1}, static_cast<int>(i));
  }
  for (comm::request& each : pending) {
    each.wait();
  }
  comm::barrier(world).wait();
  const long after = allocations;
  comm::barrier(world).wait();
  return in == out ? after - before : -1;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(comm_allocation)

BOOST_AUTO_TEST_CASE(the_counter_counts) {
  const long before = allocations;
  const auto something = std::make_unique<long>(before);
  BOOST_TEST(*something == before);
  BOOST_TEST(allocations > before);
}

BOOST_AUTO_TEST_CASE(warm_thread_ranks_allocate_nothing) {
  for (const long count : comm::run_ranks(2, [](comm::threads& world) { return allocations_when_warm(world); })) {
    BOOST_TEST(count == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_warm_ring_allocates_nothing) {
  const auto counts = comm::run_ranks(2, [](comm::threads& world) {
    comm::collectives around{world.duplicate(),
                             {.all_reduce = comm::parse_all_reduce_spec("ring"), .segment_bytes = 10000}};
    return allocations_when_warm(around);
  });
  for (const long count : counts) {
    BOOST_TEST(count == 0);
  }
}

BOOST_AUTO_TEST_CASE(messages_of_thread_ranks_that_are_reserved_allocate_nothing) {
  for (const long count : comm::run_ranks(2, [](comm::threads& world) { return allocations_when_reserved(world); })) {
    BOOST_TEST(count == 0);
  }
}

BOOST_AUTO_TEST_CASE(messages_of_a_wrapper_that_are_reserved_allocate_nothing) {
  const auto counts = comm::run_ranks(2, [](comm::threads& world) {
    comm::recorded recorded{world.duplicate(), std::make_shared<comm::flight_recorder>()};
    return allocations_when_reserved(recorded);
  });
  for (const long count : counts) {
    BOOST_TEST(count == 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()

#endif
