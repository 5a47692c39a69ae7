// SPDX-License-Identifier: BSL-1.0
//
// A cluster as the simulator sees it: hosts, their links and switches, and processors that carry transfers.
#pragma once

#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"

namespace gradus::sim {

/// A way from one rank to another.
struct link {
  double bytes_per_second = 0;  ///< of one direction
  double latency = 0;           ///< seconds from the first byte sent to the first byte received

  /// True if all members are equal.
  friend bool operator==(const link&, const link&) = default;
};

/// What carries messages between ranks. Rank r is on host r / ranks_per_host; hosts fill one switch after another.
///
/// A message of n bytes occupies the sender's rail for n / bytes_per_second, arrives `latency` later, and occupies the
/// receiver's rail as long: messages from several hosts to one come one after another (incast). Between switches it
/// also passes the uplinks, which all hosts of a switch share. Sender and receiver spend `message_seconds` each on a
/// message, and a receiver that sums adds bytes_per_second of `adding`. So without contention a message takes
/// a + n b, with a = latency + 2 message_seconds and b = 1 / bytes_per_second: the model of ALGORITHMS in the closed
/// forms of comm's collectives (R. Thakur, R. Rabenseifner, W. Gropp, 2005), with the queues of LogGP (A. Alexandrov
/// et al., LogGP: incorporating long messages into the LogP model, 1995).
struct cluster {
  link network{.bytes_per_second = 117e6, .latency = 50e-6};  ///< one rail of a host
  link inside{.bytes_per_second = 5e9, .latency = 1e-6};      ///< between ranks of a host, per sender
  int ranks_per_host = 1;                                     ///< ranks that share the rails of a host
  int rails = 1;                        ///< network interfaces of a host; a message travels on one of them
  int hosts_per_switch = 0;             ///< 0: all hosts are on one switch
  double oversubscription = 1;          ///< bytes a second of the hosts of a switch, over those of its uplinks
  double message_seconds = 2e-6;        ///< of the thread that carries transfers, for each message at each end
  double adding = 4e9;                  ///< bytes a second that this thread adds to others
  double poll_seconds = 0;              ///< until the thread notices a message while the rank computes
  double carried_bytes_per_second = 0;  ///< bytes that a processor moves through its network stack a second; 0: the
                                        ///< network interface moves them
  /// Share of the thread's time that computing loses: 0 where it has a processor of its own, 1 / threads where each
  /// thread of the rank computes on its own processor, 1 for a rank with one processor.
  double stolen_share = 0;

  /// True if all members are equal.
  friend bool operator==(const cluster&, const cluster&) = default;

  /// The host of a rank.
  [[nodiscard]] constexpr int host_of(int rank) const noexcept { return rank / ranks_per_host; }
  /// The switch of a host.
  [[nodiscard]] constexpr int switch_of(int host) const noexcept {
    return hosts_per_switch == 0 ? 0 : host / hosts_per_switch;
  }
  /// Bytes a second of the uplinks of a switch, in each direction.
  [[nodiscard]] constexpr double uplink_bytes_per_second() const noexcept {
    return network.bytes_per_second * rails * hosts_per_switch / oversubscription;
  }

  /// @throws configuration_error for a number that makes no sense
  void check() const {
    const auto require = [](bool holds, const char* what, double got) {
      if (!holds) {
        raise<configuration_error>("sim::cluster", what, {got});
      }
    };
    const auto positive = [](double value) { return is_finite(value) && value > 0; };
    const auto not_negative = [](double value) { return is_finite(value) && value >= 0; };
    require(positive(network.bytes_per_second), "a network bandwidth above 0 bytes/s", network.bytes_per_second);
    require(not_negative(network.latency), "a network latency of at least 0 s", network.latency);
    require(positive(inside.bytes_per_second), "a bandwidth inside a host above 0 bytes/s", inside.bytes_per_second);
    require(not_negative(inside.latency), "a latency inside a host of at least 0 s", inside.latency);
    require(ranks_per_host >= 1 && ranks_per_host <= 65536, "1 to 65536 ranks_per_host", ranks_per_host);
    require(rails >= 1 && rails <= 64, "1 to 64 rails", rails);
    require(hosts_per_switch >= 0 && hosts_per_switch <= 65536, "0 to 65536 hosts_per_switch", hosts_per_switch);
    require(is_finite(oversubscription) && oversubscription >= 1, "an oversubscription of at least 1",
            oversubscription);
    require(not_negative(message_seconds), "message_seconds of at least 0", message_seconds);
    require(positive(adding), "a rate of adding above 0 bytes/s", adding);
    require(not_negative(poll_seconds), "poll_seconds of at least 0", poll_seconds);
    require(not_negative(carried_bytes_per_second), "carried_bytes_per_second of at least 0", carried_bytes_per_second);
    require(not_negative(stolen_share) && stolen_share <= 1, "a stolen_share from 0 to 1", stolen_share);
  }
};

}  // namespace gradus::sim
