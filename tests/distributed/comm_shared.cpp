// SPDX-License-Identifier: BSL-1.0
//
// MPI ranks that share memory pass the conformance suite, also in short segments; and what is theirs alone.
#include <cstdio>    // std::sscanf
#include <fstream>   // std::ifstream
#include <iterator>  // std::size

#include "../support/communicators_mpi.hpp"
#include "../support/count_allocations.hpp"
#include "gradus/comm/mpi_shared.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"

namespace {

namespace suite = communicator_tests;
namespace comm = gradus::comm;
using comm::mpi_shared;
using suite::require;

float rounding_value(int rank, std::size_t i) {
  return 1.0F / (static_cast<float>(i % 1013) + 1.5F + static_cast<float>(rank) * 0.7F);
}

/// The serial sums over the ranks of rounding_value.
std::vector<float> sums_in_order(int ranks, std::size_t count) {
  std::vector<float> sums(count);
  for (std::size_t i = 0; i < count; ++i) {
    sums[i] = rounding_value(0, i);
    for (int rank = 1; rank < ranks; ++rank) {
      sums[i] += rounding_value(rank, i);
    }
  }
  return sums;
}

/// Sums that round have the bits of the serial sum in the order of the ranks, whatever the segments are.
void sums_are_taken_in_the_order_of_the_ranks(mpi_shared& world) {
  for (const std::size_t size : {1U, 8U, 97U, 4096U, 4099U, 65537U, 100003U, 1048576U}) {
    std::vector<float> values(size);
    for (std::size_t i = 0; i < size; ++i) {
      values[i] = rounding_value(world.rank(), i);
    }
    comm::all_reduce(world, values).wait();
    require(values == sums_in_order(world.size(), size), "sums of " + std::to_string(size));
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
  const auto own_block = std::span{input}.subspan(own * block, block);
  comm::reduce_scatter(world, input, own_block).wait();
  const auto expected = suite::expected_values<double>(world.size(), block, comm::reduction::sum, own * block);
  require(suite::same<double>(own_block, expected), "reduce_scatter in place");
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

/// Arrays that begin anywhere in a page, on each rank elsewhere, and parts of them.
void registered_arrays_are_reduced_where_they_lie(mpi_shared& world, gradus::index_t segment) {
  for (const std::size_t size : {1U, 700U, 3000U, 20011U, 400009U}) {
    const std::size_t shift = 16 * static_cast<std::size_t>(world.rank()) + 3;
    std::vector<float> memory(size + shift + 5, -1.0F);
    const std::span<float> data = std::span{memory}.subspan(shift, size);
    for (std::size_t i = 0; i < size; ++i) {
      data[i] = rounding_value(world.rank(), i);
    }
    auto registration = comm::register_memory(world, data);
    if (size * sizeof(float) > 4 * 4096 || size * sizeof(float) < 4096) {  // between them it is up to the offsets
      const bool pages = size * sizeof(float) > 4096 && segment > 100'000;
      require(registration.active() == (world.size() > 1 && pages), "registered " + std::to_string(size));
    }
    const std::size_t third = size / 3;
    comm::request all[3];
    all[0] = comm::all_reduce(world, data.subspan(0, third));
    all[1] = comm::all_reduce(world, data.subspan(2 * third));
    all[2] = comm::all_reduce(world, data.subspan(third, third));
    for (comm::request& each : all) {
      each.wait();
    }
    const std::vector<float> want = sums_in_order(world.size(), size);
    require(std::equal(data.begin(), data.end(), want.begin()), "sums of " + std::to_string(size));
    comm::all_reduce(world, data, comm::reduction::maximum).wait();
    require(std::equal(data.begin(), data.end(), want.begin()), "equal on all ranks: " + std::to_string(size));
    registration = {};
    require(!registration.active(), "a registration that has ended");
    require(std::equal(data.begin(), data.end(), want.begin()), "contents after it");
    comm::all_reduce(world, data, comm::reduction::minimum).wait();
    require(std::equal(data.begin(), data.end(), want.begin()), "an array like any other again");
    require(std::all_of(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(shift),
                        [](float x) { return x == -1.0F; }) &&
                std::all_of(memory.end() - 5, memory.end(), [](float x) { return x == -1.0F; }),
            "what lies beside the array");
  }
}

template <class Element>
void registered_elements_are_reduced(mpi_shared& world) {
  constexpr std::size_t size = 60013;
  auto data = suite::contributions<Element>(world.rank(), size);
  const auto registration = comm::register_memory(world, data);
  comm::all_reduce(world, data).wait();
  suite::require_same(data, suite::expected_values<Element>(world.size(), size), "registered sums");
}

/// Sums of an array that is set anew on every rank.
void require_sums(mpi_shared& world, std::span<float> data, const std::string& what) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = rounding_value(world.rank(), i);
  }
  comm::all_reduce(world, data).wait();
  const std::vector<float> want = sums_in_order(world.size(), data.size());
  require(std::equal(data.begin(), data.end(), want.begin()), what);
}

/// As the gradients of a network that is trained in two ways: by turns, and longer in one of them.
void arrays_are_registered_more_than_once(mpi_shared& world) {
  std::vector<float> data(100003);
  mpi_shared copy = world.duplicate();
  auto first = comm::register_memory(world, data);
  auto second = comm::register_memory(copy, data);
  require(second.active() == first.active(), "the second registration of an array");
  for (int round = 0; round < 3; ++round) {
    require_sums(world, data, "sums of the first");
    require_sums(copy, data, "sums of the second");
  }
  first = {};
  require_sums(copy, data, "sums of the second, without the first");
  require_sums(world, data, "sums after the first");
  auto third = comm::register_memory(world, data);
  second = {};
  require_sums(world, data, "sums of the third");
  third = {};
  require_sums(world, data, "sums of no registered array");
}

/// Pages that are shared in one way are not shared in another: what does not fit goes through the segments.
void parts_of_registered_arrays_are_reduced(mpi_shared& world) {
  std::vector<float> data(100003);
  const std::span<float> half = std::span{data}.subspan(50000);
  {
    const auto whole = comm::register_memory(world, data);
    const auto part = comm::register_memory(world, half);
    require(!part.active(), "a part of a registered array");
    require_sums(world, half, "sums of the part");
    require_sums(world, data, "sums of the whole");
  }
  const auto part = comm::register_memory(world, half);
  const auto whole = comm::register_memory(world, data);
  require(!whole.active(), "more than a registered array");
  require_sums(world, half, "sums of the registered part");
  require_sums(world, data, "sums of more than it");
}

/// Bytes of the shared memory that this process maps.
std::size_t mapped_shared_bytes() {
  std::ifstream maps{"/proc/self/maps"};
  std::size_t bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx rw-s", &begin, &end) == 2 && line.find(" rw-s ") != std::string::npos) {
      bytes += end - begin;
    }
  }
  return bytes;
}

void shared_memory_is_used_again(mpi_shared& world) {
  std::vector<float> data(1 << 20, 1.0F);
  std::size_t before = 0;
  for (int i = 0; i < 8; ++i) {
    mpi_shared copy = world.duplicate();
    const auto registration = comm::register_memory(copy, data);
    comm::all_reduce(copy, data).wait();
    before = i == 0 ? mapped_shared_bytes() : before;
  }
  const std::size_t after = mapped_shared_bytes();
  require(after <= before, std::to_string(before) + " bytes of shared memory became " + std::to_string(after));
}

void nothing_is_allocated(mpi_shared& world) {
  std::vector<float> small(100);
  std::vector<float> large(100003);
  std::vector<float> known(100003);
  const auto registration = comm::register_memory(world, known);
  const auto step = [&] {
    comm::request pending[4];
    pending[0] = comm::all_reduce(world, large);
    pending[1] = comm::all_reduce(world, small);
    pending[2] = comm::broadcast(world, large);
    pending[3] = comm::all_reduce(world, known);
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

void communicators_of_their_own_register_an_array(comm::mpi_environment& environment, mpi_shared& world) {
  mpi_shared other{environment};
  std::vector<float> data(100003);
  const auto first = comm::register_memory(world, data);
  const auto second = comm::register_memory(other, data);
  require(!first.active() || !second.active(), "an array that other communicators have registered");
  require_sums(other, data, "sums of the second communicator");
  require_sums(world, data, "sums of the first communicator");
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
             {"registered_arrays_are_reduced_where_they_lie",
              [=](mpi_shared& ranks) { registered_arrays_are_reduced_where_they_lie(ranks, segment); }},
             {"arrays_are_registered_more_than_once", &arrays_are_registered_more_than_once},
             {"parts_of_registered_arrays_are_reduced", &parts_of_registered_arrays_are_reduced},
             {"registered_float16", &registered_elements_are_reduced<gradus::float16>},
             {"registered_bfloat16", &registered_elements_are_reduced<gradus::bfloat16>},
             {"registered_float64", &registered_elements_are_reduced<double>},
             {"registered_int64", &registered_elements_are_reduced<std::int64_t>},
             {"registered_uint8", &registered_elements_are_reduced<std::uint8_t>},
             {"shared_memory_is_used_again", &shared_memory_is_used_again},
             {"nothing_is_allocated", &nothing_is_allocated}});
        communicators_of_their_own_register_an_array(environment, shared);
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
