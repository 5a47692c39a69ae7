// SPDX-License-Identifier: BSL-1.0
//
// The ports that messages pass, each one message at a time: rails of hosts, uplinks of switches, memory of a host.
#pragma once

#include <algorithm>  // std::max
#include <cstddef>    // std::size_t
#include <vector>     // std::vector

#include "gradus/core/config.hpp"
#include "gradus/sim/cluster.hpp"

namespace gradus::sim::detail {

/// How far a message goes.
enum class route : unsigned char { inside, network, across_switches };

/// A message on its way: what has been decided when it leaves, and the rest when its first byte arrives.
struct flight {
  double sent = 0;     ///< the sender's rail is free again
  double reaches = 0;  ///< the first byte is at the receiver's side
  double end = 0;      ///< the last byte cannot arrive before
};

/// Times at which ports are free. Reservations of a port are made in the order of time, so a port serves messages in
/// the order in which they come.
class port_table {
 public:
  /// @param ranks  the simulated ones
  port_table(const cluster& of, int ranks) : of_{of} {
    const auto hosts = static_cast<std::size_t>(of.host_of(ranks - 1) + 1);
    const auto rails = hosts * static_cast<std::size_t>(of.rails);
    out_.assign(rails, 0);
    in_.assign(rails, 0);
    memory_.assign(static_cast<std::size_t>(ranks), 0);
    next_rail_.assign(hosts, 0);
    const auto switches = static_cast<std::size_t>(of.switch_of(static_cast<int>(hosts) - 1) + 1);
    up_.assign(switches, 0);
    down_.assign(switches, 0);
  }

  /// The route between two ranks of the whole job.
  [[nodiscard]] static route route_of(const cluster& of, int from, int to) noexcept {
    const int a = of.host_of(from);
    const int b = of.host_of(to);
    return a == b ? route::inside : of.switch_of(a) == of.switch_of(b) ? route::network : route::across_switches;
  }

  /// A message leaves: occupies the sender's rail and the uplink of its switch.
  /// @param from  a simulated rank
  [[nodiscard]] flight leave(double now, int from, route way, double bytes) noexcept {
    if (way == route::inside) {
      double& port = memory_[static_cast<std::size_t>(from)];
      const double begin = std::max(now, port);
      port = begin + bytes / of_.inside.bytes_per_second;
      return {.sent = port, .reaches = port + of_.inside.latency, .end = port + of_.inside.latency};
    }
    const int host = of_.host_of(from);
    double& port = out_[rail_of(host)];
    const double begin = std::max(now, port);
    const double took = bytes / of_.network.bytes_per_second;
    port = begin + took;
    flight one{.sent = port, .reaches = begin + of_.network.latency, .end = port + of_.network.latency};
    if (way == route::across_switches) {
      pass(up_[static_cast<std::size_t>(of_.switch_of(host))], bytes / of_.uplink_bytes_per_second(), one);
    }
    return one;
  }

  /// Its first byte arrives: occupies the downlink of the receiver's switch and the receiver's rail.
  /// @param to  a simulated rank
  /// @return    when the last byte is there
  [[nodiscard]] double arrive(int to, route way, double bytes, flight one) noexcept {
    if (way == route::inside) {
      return one.end;
    }
    const int host = of_.host_of(to);
    if (way == route::across_switches) {
      pass(down_[static_cast<std::size_t>(of_.switch_of(host))], bytes / of_.uplink_bytes_per_second(), one);
    }
    // The rail that is free first: senders choose among the receiver's addresses.
    std::size_t best = static_cast<std::size_t>(host) * static_cast<std::size_t>(of_.rails);
    for (std::size_t rail = best + 1; rail < (static_cast<std::size_t>(host) + 1) * static_cast<std::size_t>(of_.rails);
         ++rail) {
      best = in_[rail] < in_[best] ? rail : best;
    }
    pass(in_[best], bytes / of_.network.bytes_per_second, one);
    return one.end;
  }

 private:
  /// Cut-through: a port passes the first byte on when it begins with a message.
  static void pass(double& port, double took, flight& one) noexcept {
    const double begin = std::max(one.reaches, port);
    port = begin + took;
    one.end = std::max(one.end, port);
    one.reaches = begin;
  }

  [[nodiscard]] std::size_t rail_of(int host) noexcept {
    int& next = next_rail_[static_cast<std::size_t>(host)];
    const auto rail =
        static_cast<std::size_t>(host) * static_cast<std::size_t>(of_.rails) + static_cast<std::size_t>(next);
    next = (next + 1) % of_.rails;
    return rail;
  }

  cluster of_;
  std::vector<double> out_;     // of each rail
  std::vector<double> in_;      // of each rail
  std::vector<double> up_;      // of each switch
  std::vector<double> down_;    // of each switch
  std::vector<double> memory_;  // of each rank
  std::vector<int> next_rail_;  // of each host
};

}  // namespace gradus::sim::detail
