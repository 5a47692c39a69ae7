// SPDX-License-Identifier: BSL-1.0
//
// The conformance suite of communicators, for any number of ranks, in threads or processes.
#pragma once

#include <algorithm>           // std::copy, std::min
#include <array>               // std::array
#include <chrono>              // std::chrono, std::chrono_literals
#include <cmath>               // std::abs
#include <condition_variable>  // std::condition_variable
#include <cstddef>             // std::size_t
#include <cstdint>             // std::int32_t, std::int64_t, std::uint8_t
#include <cstdio>              // std::fflush, std::fprintf
#include <cstdlib>             // std::_Exit
#include <cstring>             // std::memcpy, std::memcmp
#include <functional>          // std::function
#include <mutex>               // std::mutex, std::scoped_lock, std::unique_lock
#include <optional>            // std::optional
#include <source_location>     // std::source_location
#include <span>                // std::span
#include <string>              // std::string, std::to_string
#include <string_view>         // std::string_view
#include <thread>              // std::this_thread, std::thread
#include <utility>             // std::move
#include <vector>              // std::vector

#include "gradus/comm/agreement.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/conformance/suite.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"

namespace gradus::conformance {

using namespace std::chrono_literals;

/// The contribution of a rank to element i. It differs between neighboring elements and ranks, is never zero, and is so
/// small that sums and products of four are exact in every element type.
template <class Element>
Element contribution(int rank, std::size_t i, comm::reduction operation) {
  if (operation == comm::reduction::product) {
    return static_cast<Element>(static_cast<float>(1 + (i + static_cast<std::size_t>(rank)) % 3));
  }
  const std::size_t number = 1 + (i * 7 + static_cast<std::size_t>(rank) * 13) % 29 + static_cast<std::size_t>(rank);
  return static_cast<Element>(static_cast<float>(number));
}

/// The result of the reduction of element i over all ranks.
template <class Element>
Element expected_value(int ranks, std::size_t i, comm::reduction operation) {
  Element value = contribution<Element>(0, i, operation);
  for (int rank = 1; rank < ranks; ++rank) {
    const Element next = contribution<Element>(rank, i, operation);
    switch (operation) {
      case comm::reduction::sum:
        value = static_cast<Element>(value + next);
        break;
      case comm::reduction::product:
        value = static_cast<Element>(value * next);
        break;
      case comm::reduction::minimum:
        value = std::min(value, next);
        break;
      case comm::reduction::maximum:
        value = std::max(value, next);
        break;
    }
  }
  return value;
}

/// Numbers of elements in the cases of collectives.
inline constexpr std::array sizes{0, 1, 2, 3, 4, 5, 7, 31, 97, 1009, 4099};
/// The reductions in the cases of all_reduce.
inline constexpr std::array reductions{comm::reduction::sum, comm::reduction::product, comm::reduction::minimum,
                                       comm::reduction::maximum};

/// A name for messages: "all_reduce of 7 float32".
template <class Element>
std::string label(std::string_view what, std::size_t size) {
  return std::string{what} + " of " + std::to_string(size) + " " + std::string{gradus::element_name<Element>};
}

/// value(0), value(1), ..., repeated with `period`. One period is computed and copied: sanitizers and builds without
/// optimization would otherwise spend most of a suite's time here.
template <class Element, class Value>
std::vector<Element> repeated(std::size_t size, std::size_t period, const Value& value) {
  std::vector<Element> values(size);
  for (std::size_t i = 0; i < std::min(size, period); ++i) {
    values[i] = value(i);
  }
  for (std::size_t done = period; done < size; done *= 2) {
    std::memcpy(values.data() + done, values.data(), std::min(done, size - done) * sizeof(Element));
  }
  return values;
}

/// A period of `contribution` and of its reductions over any ranks, in elements.
inline constexpr std::size_t contribution_period = std::size_t{29} * 3;

/// The contributions of a rank to the elements [0, size).
template <class Element>
std::vector<Element> contributions(int rank, std::size_t size, comm::reduction operation = comm::reduction::sum) {
  return repeated<Element>(size, contribution_period,
                           [&](std::size_t i) { return contribution<Element>(rank, i, operation); });
}

/// The results of the reduction for the elements [first, first + size).
template <class Element>
std::vector<Element> expected_values(int ranks, std::size_t size, comm::reduction operation = comm::reduction::sum,
                                     std::size_t first = 0) {
  return repeated<Element>(size, contribution_period,
                           [&](std::size_t i) { return expected_value<Element>(ranks, first + i, operation); });
}

/// True if the bits are equal.
template <class Element>
bool same(std::span<const Element> a, std::span<const Element> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}
template <class Element>
bool same(const std::vector<Element>& a, const std::vector<Element>& b) {
  return same(std::span{a}, std::span{b});
}

/// @throws std::logic_error with the first element that differs
template <class Element>
void require_same(const std::vector<Element>& values, const std::vector<Element>& expected, std::string_view what,
                  std::source_location where = std::source_location::current()) {
  if (!same(values, expected)) {
    std::size_t i = 0;
    while (i < std::min(values.size(), expected.size()) && values[i] == expected[i]) {
      ++i;
    }
    require(false, std::string{what} + " differs at " + std::to_string(i), where);
  }
}

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
      for (const bool in_place : {false, true}) {
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
        const auto place = std::span{output}.subspan(own * block, block);
        std::copy(mine.begin(), mine.end(), place.begin());
        comm::all_gather(world, place, output).wait();
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

/// Invalid ranks, roots, sizes, tags and time limits raise errors.
template <class Communicator>
void bad_arguments_are_refused(Communicator& world) {
  std::vector<float> data(12);
  const auto refuses = [&](auto&& action, std::string_view part) {
    require_contains(message_of<gradus::configuration_error>(action), part);
  };
  for (const int peer : {-1, world.size(), world.rank(), world.size() + 1000}) {
    refuses([&] { comm::send(world, peer, data).wait(); }, "expected another rank");
    refuses([&] { comm::receive(world, peer, data).wait(); }, "expected another rank");
  }
  for (const int root : {-1, world.size()}) {
    refuses([&] { comm::broadcast(world, data, root).wait(); }, "root");
  }
  if (world.size() > 1) {
    const int peer = (world.rank() + 1) % world.size();
    for (const int tag : {-1, comm::largest_tag + 1}) {
      refuses([&] { comm::send(world, peer, data, tag).wait(); }, "tag");
    }
  }
  refuses([&] { world.set_time_limit(0ms); }, "above zero");
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<float> blocks(3 * ranks + 1);
  std::vector<float> block(3);
  const auto misfits = [&](auto&& action, std::string_view part) {
    require_contains(message_of<gradus::shape_error>(action), part);
  };
  misfits([&] { comm::all_gather(world, block, blocks).wait(); }, "output of");
  misfits([&] { comm::reduce_scatter(world, blocks, block).wait(); }, "input of");
  if (ranks > 1) {
    const std::span whole{blocks.data(), 3 * ranks};
    misfits([&] { comm::all_gather(world, std::span{blocks}.subspan(1, 3), whole).wait(); }, "overlap");
    misfits([&] { comm::reduce_scatter(world, whole, std::span{blocks}.subspan(1, 3)).wait(); }, "overlap");
  }
  comm::barrier(world).wait();  // no operation was started
}

/// require_agreement names the entry that differs, on all ranks.
template <class Communicator>
void disagreement_is_named_on_all_ranks(Communicator& world) {
  comm::require_agreement(world, "options", {{"seed", "1"}, {"batch size", "64"}});
  comm::require_agreement(world, "nothing", {});
  if (world.size() == 1) {
    return;
  }
  const bool last = world.rank() == world.size() - 1;
  const std::string ranks = "rank " + std::to_string(world.size() - 1);
  std::string message = message_of<gradus::configuration_error>([&] {
    comm::require_agreement(world, "training plan",
                            {{"seed", "1"}, {"batch size", last ? "32" : "64"}, {"layers", last ? "7" : "8"}});
  });
  require_contains(message, "training plan: expected the same batch size on all ranks, got 64 on rank");
  require_contains(message, "; 32 on " + ranks);
  message = message_of<gradus::configuration_error>([&] {
    std::vector<comm::fact> facts{{"seed", "1"}};
    if (last) {
      facts.push_back({"layer 3", "dense 10:5"});
    }
    comm::require_agreement(world, "network", facts);
  });
  require_contains(message, "the same layer 3 on all ranks, got nothing on rank");
  require_contains(message, "; dense 10:5 on " + ranks);
  message = message_of<gradus::configuration_error>([&] {
    comm::require_agreement(world, "network", {{last ? "b" : "a", "1"}});
  });
  require_contains(message, "'b' (1) in its place on " + ranks);
  comm::require_agreement(world, "afterwards", {{"all", "is well"}});
}

/// A named test case that all ranks run.
template <class Communicator>
struct test_case {
  std::string name;
  std::function<void(Communicator&)> run;
};

/// Appends the cases of the collectives for one element type.
template <class Communicator, class Element>
void add_collectives(std::vector<test_case<Communicator>>& cases) {
  const std::string suffix = "<" + std::string{gradus::element_name<Element>} + ">";
  cases.push_back({"all_reduce_reduces" + suffix, &all_reduce_reduces<Communicator, Element>});
  cases.push_back({"broadcast_copies_the_root" + suffix, &broadcast_copies_the_root<Communicator, Element>});
  cases.push_back({"reduce_scatter_gives_each_rank_its_block" + suffix,
                   &reduce_scatter_gives_each_rank_its_block<Communicator, Element>});
  cases.push_back({"all_gather_collects_all_blocks" + suffix, &all_gather_collects_all_blocks<Communicator, Element>});
}

/// The cases that leave the communicator in working order. All ranks run them in this order.
template <comm::communicator Communicator>
std::vector<test_case<Communicator>> conformance_cases() {
  std::vector<test_case<Communicator>> cases;
  add_collectives<Communicator, float>(cases);
#if !defined(__SANITIZE_THREAD__)  // data races do not depend on the element type
  add_collectives<Communicator, double>(cases);
  add_collectives<Communicator, std::int32_t>(cases);
  add_collectives<Communicator, std::int64_t>(cases);
  add_collectives<Communicator, std::uint8_t>(cases);
  add_collectives<Communicator, gradus::bfloat16>(cases);
#endif
  cases.push_back(
      {"rounded_sums_have_the_same_bits_everywhere", &rounded_sums_have_the_same_bits_everywhere<Communicator>});
  cases.push_back({"no_rank_leaves_a_barrier_before_all_have_entered",
                   &no_rank_leaves_a_barrier_before_all_have_entered<Communicator>});
  cases.push_back({"messages_arrive", &messages_arrive<Communicator>});
  cases.push_back({"messages_match_by_tag_and_order", &messages_match_by_tag_and_order<Communicator>});
  cases.push_back({"many_requests_are_under_way", &many_requests_are_under_way<Communicator>});
  cases.push_back({"duplicates_are_independent", &duplicates_are_independent<Communicator>});
  cases.push_back({"dropped_requests_complete", &dropped_requests_complete<Communicator>});
  cases.push_back({"bad_arguments_are_refused", &bad_arguments_are_refused<Communicator>});
  cases.push_back({"disagreement_is_named_on_all_ranks", &disagreement_is_named_on_all_ranks<Communicator>});
  return cases;
}

// The following cases leave the communicator failed: each needs a new one.

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

/// Rank 0 stops waiting for late ranks after the time limit; the late ranks then see the error.
template <class Communicator>
void a_wait_has_a_time_limit(Communicator& world) {
  if (world.size() == 1) {
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  if (world.rank() == 0) {
    world.set_time_limit(150ms);
    std::vector<float> data(10007, 1.0F);
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
                         std::vector<float> data(10007, 1.0F);
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

/// Ends the program after a time limit, so that a test that hangs is reported.
class watchdog {
 public:
  explicit watchdog(std::chrono::seconds limit)
      : guard_{[this, limit] {
          std::unique_lock lock{mutex_};
          if (!stop_.wait_for(lock, limit, [this] { return stopped_; })) {
            std::fprintf(stderr, "watchdog: the test has run for %lld s\n", static_cast<long long>(limit.count()));
            std::fflush(nullptr);
            std::_Exit(3);
          }
        }} {}
  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;
  ~watchdog() {
    {
      const std::scoped_lock lock{mutex_};
      stopped_ = true;
    }
    stop_.notify_all();
    guard_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopped_ = false;
  std::thread guard_;
};

/// Options of check_communicator.
struct communicator_options {
  std::vector<int> ranks{1, 2, 3, 4};  ///< numbers of ranks; in a job that a launcher started, its own number
  /// Also runs the cases that leave the communicator failed. Set it to false if the job cannot continue after a
  /// failure.
  bool failures = true;
  std::chrono::seconds time_limit{300};  ///< after this time the program ends, because a case hangs
};

/// Runs all cases and returns their results.
/// @param on_ranks  on_ranks(n, body) makes n ranks, calls body(communicator) on all of them in parallel, and rethrows
///                  an exception of a body. body is a std::function<void(Communicator&)>
///
/// @code
///   int main() {
///     return gradus::conformance::report(gradus::conformance::check_communicator<mine>(
///         [](int n, const auto& body) { run_my_ranks(n, [&](mine& world) { body(world); }); }));
///   }
/// @endcode
template <class Communicator, class OnRanks>
[[nodiscard]] std::vector<result> check_communicator(const OnRanks& on_ranks,
                                                     const communicator_options& options = {}) {
  static_assert(comm::explain_communicator<Communicator>());
  const watchdog guard{options.time_limit};
  std::vector<test_case<Communicator>> cases = conformance_cases<Communicator>();
  if (options.failures) {
    cases.push_back({"a_rank_that_fails_is_named", &a_rank_that_fails_is_named<Communicator>});
    cases.push_back({"pending_requests_end_when_a_rank_fails", &pending_requests_end_when_a_rank_fails<Communicator>});
    cases.push_back({"a_rank_that_leaves_is_named", &a_rank_that_leaves_is_named<Communicator>});
    cases.push_back({"a_wait_has_a_time_limit", &a_wait_has_a_time_limit<Communicator>});
    cases.push_back({"a_receive_has_a_time_limit", &a_receive_has_a_time_limit<Communicator>});
  }
  std::vector<result> results;
  for (const int ranks : options.ranks) {
    for (const auto& each : cases) {
      const std::function<void(Communicator&)> body = each.run;
      run_case(results, each.name + " on " + std::to_string(ranks) + " ranks", [&] { on_ranks(ranks, body); });
    }
  }
  return results;
}

}  // namespace gradus::conformance
