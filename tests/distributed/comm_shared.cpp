// SPDX-License-Identifier: BSL-1.0
//
// MPI ranks that share memory pass the conformance suite, also in short segments; and what is theirs alone.
#include <iterator>  // std::size

#include "../support/communicators_mpi.hpp"
#include "../support/count_allocations.hpp"
#include "gradus/comm/mpi_shared.hpp"  // mpi_shared

namespace {

namespace suite = communicator_tests;
namespace comm = gradus::comm;
using comm::mpi_shared;
using suite::require;

float rounding_value(int rank, std::size_t i) {
  return 1.0F / (static_cast<float>(i % 1013) + 1.5F + static_cast<float>(rank) * 0.7F);
}

/// Sums that round have the bits of the serial sum in the order of the ranks, whatever the segments are.
void sums_are_taken_in_the_order_of_the_ranks(mpi_shared& world) {
  for (const std::size_t size : {1U, 8U, 97U, 4096U, 4099U, 65537U, 100003U, 1048576U}) {
    std::vector<float> values(size);
    for (std::size_t i = 0; i < size; ++i) {
      values[i] = rounding_value(world.rank(), i);
    }
    comm::all_reduce(world, values).wait();
    for (std::size_t i = 0; i < size; ++i) {
      float want = rounding_value(0, i);
      for (int rank = 1; rank < world.size(); ++rank) {
        want += rounding_value(rank, i);
      }
      require(values[i] == want, "sum " + std::to_string(i) + " of " + std::to_string(size));
    }
  }
}

/// Arrays of more than a segment through the other collectives.
void long_arrays_arrive(mpi_shared& world) {
  constexpr std::size_t block = 50021;
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto own = static_cast<std::size_t>(world.rank());
  for (int root = 0; root < world.size(); ++root) {
    auto values = suite::contributions<double>(world.rank(), block);
    comm::broadcast(world, values, root).wait();
    require(values == suite::contributions<double>(root, block), "broadcast");
  }
  const auto mine = suite::contributions<double>(world.rank(), block);
  std::vector<double> all(block * ranks);
  comm::all_gather(world, mine, all).wait();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto theirs = suite::contributions<double>(static_cast<int>(rank), block);
    require(std::equal(theirs.begin(), theirs.end(), all.begin() + static_cast<std::ptrdiff_t>(rank * block)),
            "all_gather");
  }
  auto input = suite::contributions<double>(world.rank(), block * ranks);
  const auto place = std::span{input}.subspan(own * block, block);
  comm::reduce_scatter(world, input, place).wait();
  const auto expected = suite::expected_values<double>(world.size(), block, comm::reduction::sum, own * block);
  require(suite::same<double>(place, expected), "reduce_scatter in place");
}

/// Collectives of all kinds and lengths under way, waited for from the last to the first, or only tested.
void requests_complete_in_any_order(mpi_shared& world) {
  constexpr std::size_t lengths[] = {50021, 1, 0, 997, 200003, 13};
  for (const bool only_tests : {false, true}) {
    std::vector<std::vector<float>> data;
    std::vector<comm::request> pending;
    for (const std::size_t length : lengths) {
      data.push_back(suite::contributions<float>(world.rank(), length));
    }
    for (std::size_t i = 0; i < std::size(lengths); ++i) {
      if (i % 3 == 2) {
        pending.push_back(comm::barrier(world));
      }
      pending.push_back(comm::all_reduce(world, data[i]));
    }
    while (!pending.empty()) {
      if (only_tests) {
        std::erase_if(pending, [](comm::request& each) { return each.test(); });
        std::this_thread::yield();  // there may be more ranks than processors
      } else {
        pending.back().wait();
        pending.pop_back();
      }
    }
    for (std::size_t i = 0; i < std::size(lengths); ++i) {
      suite::require_same(data[i], suite::expected_values<float>(world.size(), lengths[i]), "sum");
    }
  }
}

/// Rank 0 completes a collective and then sends; the others wait for the message first, and for the collective after
/// it.
void collectives_move_while_a_message_is_waited_for(mpi_shared& world) {
  world.set_time_limit(std::chrono::seconds{20});
  auto data = suite::contributions<float>(world.rank(), 70001);
  std::vector<float> letter(50021, 3.0F);
  comm::request sum = comm::all_reduce(world, data);
  if (world.rank() == 0) {
    sum.wait();
    for (int other = 1; other < world.size(); ++other) {
      comm::send(world, other, letter).wait();
    }
  } else {
    std::fill(letter.begin(), letter.end(), 0.0F);
    comm::receive(world, 0, letter).wait();
    sum.wait();
  }
  require(letter.front() == 3.0F && letter.back() == 3.0F, "the message");
  require(data.back() == suite::expected_value<float>(world.size(), data.size() - 1, comm::reduction::sum), "the sum");
  world.set_time_limit(comm::default_time_limit);
}

void nothing_is_allocated(mpi_shared& world) {
  std::vector<float> small(100);
  std::vector<float> large(100003);
  const auto step = [&] {
    comm::request pending[3];
    pending[0] = comm::all_reduce(world, large);
    pending[1] = comm::all_reduce(world, small);
    pending[2] = comm::broadcast(world, large);
    for (comm::request& each : pending) {
      each.wait();
    }
    comm::barrier(world).wait();
  };
  step();
  const long before = allocations;
  for (int i = 0; i < 20; ++i) {
    step();
  }
  const long made = allocations - before;
  require(made == 0, std::to_string(made) + " allocations in 20 steps");
}

void ranks_are_split_by_node(comm::mpi_environment& environment, comm::mpi& world) {
  auto split = mpi_shared::split_by_node(environment, world.native());
  require(split.nodes == 1 && split.node == 0, "one node");
  require(split.local.rank() == world.rank() && split.local.size() == world.size(), "ranks of the node");
  require(split.across.rank() == 0 && split.across.size() == 1, "ranks of other nodes");
  sums_are_taken_in_the_order_of_the_ranks(split.local);
}

void bad_options_are_refused(comm::mpi_environment& environment) {
  const auto refuses = [&](gradus::index_t bytes, std::string_view part) {
    suite::require_contains(suite::message_of<gradus::configuration_error>([&] {
                              mpi_shared{environment, {.segment_bytes = bytes}};
                            }),
                            part);
  };
  refuses(0, "segment_bytes from 1");
  if (environment.size() > 1) {
    refuses(4096 + environment.rank(), "the same segment_bytes on all ranks, got sizes from 4096 to ");
  }
}

}  // namespace

int main(int argc, char** argv) {
  comm::mpi_environment environment{argc, argv};
  suite::require_ranks(environment, argc, argv);
  const suite::watchdog guard{std::chrono::seconds{100}};
  try {
    environment.run([&](comm::mpi& world) {
      for (const gradus::index_t segment : {comm::mpi_shared_options{}.segment_bytes, gradus::index_t{5000}}) {
        mpi_shared shared{environment, {.segment_bytes = segment}};
        suite::run_cases(shared, suite::conformance_cases<mpi_shared>());
        suite::run_cases<mpi_shared>(
            shared,
            {{"sums_are_taken_in_the_order_of_the_ranks", &sums_are_taken_in_the_order_of_the_ranks},
             {"long_arrays_arrive", &long_arrays_arrive},
             {"requests_complete_in_any_order", &requests_complete_in_any_order},
             {"collectives_move_while_a_message_is_waited_for", &collectives_move_while_a_message_is_waited_for},
             {"nothing_is_allocated", &nothing_is_allocated}});
      }
      ranks_are_split_by_node(environment, world);
      bad_options_are_refused(environment);
    });
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "rank %d: %s\n", environment.rank(), failure.what());
    return 1;
  }
}
