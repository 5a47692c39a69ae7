// SPDX-License-Identifier: BSL-1.0
#include "network_mpi.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../program/output_file.hpp"
#include "../program/statistics.hpp"
#include "computing_threads.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/reduction.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/sim/network_text.hpp"
#include "machine_mpi.hpp"
#include "processors_of_rank.hpp"

namespace driver {

namespace {

namespace comm = gradus::comm;
using program::median;

constexpr int round_trips = 200;           // of small messages
constexpr int streamed_messages = 64;      // under way at a time
constexpr double longest_transfer = 0.25;  // seconds of a long message: queues let the first bytes pass at once
constexpr std::size_t most_bytes = std::size_t{64} << 20U;

/// What was measured between two ranks.
struct link_times {
  double half_round_trip = 0;  // seconds, of 8 bytes
  double message = 0;          // seconds from one to the next of many messages of 8 bytes
  double one_way = 0;          // bytes a second of long messages
  double bandwidth = 0;        // the same of each direction, both at once, as collectives and servers send
  double lost = 0;             // share of its computing that a rank loses meanwhile
};

double now() {
  return std::chrono::duration<double>{std::chrono::steady_clock::now().time_since_epoch()}.count();
}

/// Two ranks exchange messages. Both call it; the results are those of the first one.
class exchange {
 public:
  /// @param threads  that compute on each rank in a training
  exchange(comm::mpi& world, int first, int second, int threads)
      : world_{world}, first_{world.rank() == first}, peer_{first_ ? second : first}, threads_{threads} {}

  link_times measure() {
    link_times found;
    std::vector<std::uint8_t> bytes(8);
    std::vector<double> times;
    for (int i = 0; i < round_trips + 20; ++i) {
      const double begin = now();
      there_and_back(bytes);
      if (i >= 20) {
        times.push_back(now() - begin);
      }
    }
    found.half_round_trip = median(times) / 2;
    found.message = std::min(stream(), 0.45 * found.half_round_trip);  // twice in it, and the wire takes time too
    std::size_t size = std::size_t{1} << 20U;
    double one = round_trip(size) / 2;
    while (size < most_bytes && one < longest_transfer / 2) {
      size *= 2;
      one = round_trip(size) / 2;
    }
    std::vector<double> seconds;
    std::vector<double> seconds_both;
    for (int i = 0; i < 7; ++i) {
      seconds.push_back(round_trip(size) / 2);
      seconds_both.push_back(both_ways(size));
    }
    const auto rate = [&](const std::vector<double>& measured) {
      return static_cast<double>(size) / std::max(median(measured) - found.half_round_trip, 1e-12);
    };
    found.one_way = rate(seconds);
    found.bandwidth = rate(seconds_both);
    found.lost = lost_computing(size);
    return found;
  }

 private:
  void there_and_back(std::vector<std::uint8_t>& bytes) {
    if (first_) {
      comm::send(world_, peer_, bytes).wait();
      comm::receive(world_, peer_, bytes).wait();
    } else {
      comm::receive(world_, peer_, bytes).wait();
      comm::send(world_, peer_, bytes).wait();
    }
  }

  /// What the first rank measured, on both: the second one follows its clock.
  double of_first(double measured) {
    std::array<double, 1> seconds{measured};
    if (first_) {
      comm::send(world_, peer_, seconds).wait();
    } else {
      comm::receive(world_, peer_, seconds).wait();
    }
    return seconds[0];
  }

  /// Seconds of a round trip of long messages, the same on both ranks.
  double round_trip(std::size_t size) {
    std::vector<std::uint8_t> bytes(size);
    const double begin = now();
    there_and_back(bytes);
    return of_first(now() - begin);
  }

  /// Seconds in which both ranks send a long message to each other, the same on both.
  double both_ways(std::size_t size) {
    const std::vector<std::uint8_t> sent(size);
    std::vector<std::uint8_t> received(size);
    std::vector<std::uint8_t> begins(8);
    there_and_back(begins);
    const double begin = now();
    comm::request out = comm::send(world_, peer_, sent);
    comm::receive(world_, peer_, received).wait();
    out.wait();
    return of_first(now() - begin);
  }

  /// The share of its computing that this rank loses while long messages pass both ways.
  double lost_computing(std::size_t size) {
    const computing_threads busy{threads_};
    std::vector<double> shares;
    for (int i = 0; i < 7; ++i) {
      const double without = rounds_a_second(busy, [] { std::this_thread::sleep_for(std::chrono::milliseconds{50}); });
      const double with = rounds_a_second(busy, [&, this] { both_ways(size); });
      shares.push_back(std::clamp(1 - with / without, 0.0, 1.0));
    }
    return median(std::move(shares));
  }

  /// Seconds from one small message to the next, of many that are under way together.
  double stream() {
    std::array<std::array<std::uint8_t, 8>, streamed_messages> bytes{};
    std::vector<double> times;
    for (int i = 0; i < 15; ++i) {
      std::vector<comm::request> requests;
      std::vector<std::uint8_t> answer(8);
      const double begin = now();
      for (auto& one : bytes) {
        requests.push_back(first_ ? comm::send(world_, peer_, one) : comm::receive(world_, peer_, one));
      }
      for (comm::request& one : requests) {
        one.wait();
      }
      if (first_) {
        comm::receive(world_, peer_, answer).wait();
      } else {
        comm::send(world_, peer_, answer).wait();
      }
      times.push_back(now() - begin);
    }
    std::vector<double> single;
    for (int i = 0; i < 15; ++i) {
      std::vector<std::uint8_t> one(8);
      const double begin = now();
      there_and_back(one);
      single.push_back(now() - begin);
    }
    return std::max(median(times) - median(single), 0.0) / (streamed_messages - 1);
  }

  comm::mpi& world_;
  bool first_;
  int peer_;
  int threads_;
};

/// All of `from` send a long message to rank `to` at once. Returns the bytes a second that it receives.
double incast(comm::mpi& world, const std::vector<int>& from, int to, double bandwidth) {
  const auto size = static_cast<std::size_t>(std::clamp(bandwidth * 0.1, 1e5, 2e7));
  const bool sends = std::find(from.begin(), from.end(), world.rank()) != from.end();
  std::vector<double> rates;
  for (int i = 0; i < 5; ++i) {
    comm::barrier(world).wait();
    const double begin = now();
    if (world.rank() == to) {
      std::vector<std::vector<std::uint8_t>> bytes(from.size(), std::vector<std::uint8_t>(size));
      std::vector<comm::request> requests;
      for (std::size_t k = 0; k < from.size(); ++k) {
        requests.push_back(comm::receive(world, from[k], bytes[k]));
      }
      for (comm::request& one : requests) {
        one.wait();
      }
      rates.push_back(static_cast<double>(size * from.size()) / (now() - begin));
    } else if (sends) {
      const std::vector<std::uint8_t> bytes(size);
      comm::send(world, to, bytes).wait();
    }
  }
  return world.rank() == to ? median(rates) : 0;
}

/// Three digits or more, never an exponent.
std::string with_unit(double value, const char* unit) {
  const int digits = value > 0 ? std::clamp(2 - static_cast<int>(std::floor(std::log10(value))), 0, 12) : 0;
  std::array<char, 400> text{};  // the largest number has 309 digits
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits).ptr;
  return std::string{text.data(), end} + unit;
}

std::string rate_text(double bytes_per_second) {
  return with_unit(bytes_per_second * 8 / 1e9, "Gbit/s");
}

std::string time_text(double seconds) {
  return with_unit(seconds * 1e6, "us");
}

/// The median of a value over links.
template <class Value>
double over(const std::vector<link_times>& links, const Value& value) {
  std::vector<double> values;
  for (const link_times& each : links) {
    values.push_back(value(each));
  }
  return median(values);
}

/// The farthest that a value of one link is from the median, relative to it.
template <class Value>
double spread(const std::vector<link_times>& links, const Value& value) {
  const double middle = over(links, value);
  double most = 0;
  for (const link_times& each : links) {
    most = std::max(most, std::abs(value(each) - middle) / middle);
  }
  return most;
}

/// Bytes a second of float that a thread adds to others, with arrays as long as buckets.
double adding_rate() {
  constexpr gradus::index_t elements = gradus::index_t{4} << 20U;
  std::vector<float> sums(static_cast<std::size_t>(elements), 1.0F);
  const std::vector<float> more(sums.size(), 2.0F);
  const auto to = std::as_writable_bytes(std::span{sums});
  const auto from = std::as_bytes(std::span{more});
  std::vector<double> seconds;
  for (int i = 0; i < 7; ++i) {
    const double begin = now();
    comm::element_type_of<float>.accumulate(comm::reduction::sum, to.data(), from.data(), elements);
    seconds.push_back(now() - begin);
  }
  return static_cast<double>(elements) * sizeof(float) / std::max(median(seconds), 1e-9);
}

/// The description for the simulator: a message takes latency + 2 message + bytes / bandwidth.
/// @param threads     of a rank that compute
/// @param processors  of a rank
std::string describe(const std::vector<link_times>& between, const std::vector<link_times>& inside, int threads,
                     int processors) {
  const auto bandwidth = [](const link_times& each) { return each.bandwidth; };
  const auto latency = [](const link_times& each) { return each.half_round_trip - 2 * each.message; };
  const auto message = [](const link_times& each) { return each.message; };
  const std::vector<link_times>& network = between.empty() ? inside : between;
  std::string text = rate_text(over(network, bandwidth)) + " " + time_text(over(network, latency));
  if (!inside.empty()) {
    text += " inside " + rate_text(over(inside, bandwidth)) + " " + time_text(over(inside, latency));
  }
  text += " message " + time_text(over(network, message));
  text += " adding " + with_unit(adding_rate() / 1e9, "GB/s");
  if (threads >= processors) {  // what carries transfers takes its processor from them
    const double lost = over(network, [](const link_times& each) { return each.lost; });
    if (lost > 0.005) {
      text += " carried " + with_unit(2 * over(network, bandwidth) / (threads * lost) / 1e9, "GB/s");
    }
    text += " stolen " + with_unit(1.0 / threads, "");
  }
  const double uncertain = std::clamp(std::max(spread(network, bandwidth), spread(network, latency)), 0.02, 10.0);
  return text + gradus::join({" uncertain ", static_cast<int>(std::ceil(100 * uncertain)), "%"});
}

}  // namespace

void measure_network(comm::mpi& world, const settings& chosen) {
  if (world.size() < 2) {
    throw std::invalid_argument{
        "network: expected 2 ranks or more, got 1: start one rank on each of some hosts, for example mpiexec -n 4 "
        "--hosts a,b,c,d gradus_bench network"};
  }
  program::output_file file{"--output", world.rank() == 0 ? chosen.output : std::string{}};
  const rank_on_machine local = find_rank_on_machine(world.native());
  const std::array<int, 1> own{local.first};  // names the host
  std::vector<int> hosts(static_cast<std::size_t>(world.size()));
  comm::all_gather(world, own, hosts).wait();

  // Pairs with the first rank: the second one of its host, and the first one of every other.
  std::vector<int> peers;
  std::vector<int> others;
  for (int rank = 1; rank < world.size(); ++rank) {
    const int host = hosts[static_cast<std::size_t>(rank)];
    const bool second_here = host == hosts[0] && std::count(hosts.begin(), hosts.begin() + rank, hosts[0]) == 1;
    if (second_here || host == rank) {
      peers.push_back(rank);
    }
    if (host == rank) {
      others.push_back(rank);
    }
  }
  std::vector<link_times> between;
  std::vector<link_times> inside;
  const int processors = processors_of_rank(false, local.ranks);
  const int threads = chosen.threads > 0 ? chosen.threads : processors;
  if (world.rank() == 0) {
    std::printf("%d ranks on %zu hosts, %d of %d processors of a rank compute\n%20s%16s%16s%16s%16s%11s\n",
                world.size(), others.size() + 1, threads, processors, "from rank 0 to", "half trip us", "message us",
                "Gbit/s", "both ways", "lost");
  }
  for (const int peer : peers) {
    if (world.rank() == 0 || world.rank() == peer) {
      const link_times found = exchange{world, 0, peer, threads}.measure();
      if (world.rank() == 0) {
        const bool here = hosts[static_cast<std::size_t>(peer)] == hosts[0];
        (here ? inside : between).push_back(found);
        gradus::print_text(stdout, "%20s%16.2f%16.3f%16.3f%16.3f%10.1f%%\n",
                           gradus::join({"rank ", peer, here ? " (same host)" : ""}).c_str(),
                           found.half_round_trip * 1e6, found.message * 1e6, found.one_way * 8 / 1e9,
                           found.bandwidth * 8 / 1e9, 100 * found.lost);
        std::fflush(stdout);
      }
    }
    comm::barrier(world).wait();
  }
  if (others.size() > 1) {
    const double one = world.rank() == 0 ? over(between, [](const link_times& each) { return each.one_way; }) : 0;
    std::array<double, 1> rate{one};
    comm::broadcast(world, rate, 0).wait();
    const double all = incast(world, others, 0, rate[0]);
    if (world.rank() == 0) {
      gradus::print_text(stdout, "%zu hosts to rank 0 at once: %.3f Gbit/s, %.2f times one\n", others.size(),
                         all * 8 / 1e9, all / one);
    }
  }
  if (world.rank() != 0) {
    return;
  }
  const std::string text = describe(between, inside, threads, processors);
  (void)gradus::sim::read_network(text);  // what predict will read
  std::printf("%s--network \"%s\"\n", between.empty() ? "one host: a network of others is not known\n" : "",
              text.c_str());
  file.write(text + "\n");
}

}  // namespace driver
