// SPDX-License-Identifier: BSL-1.0
//
// What a replay of training steps gives: seconds of a step, where they go, and spans to look at.
#pragma once

#include <algorithm>  // std::max
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint64_t
#include <vector>     // std::vector

#include "gradus/core/config.hpp"

namespace gradus::sim {

/// What a span of a replay shows.
enum class activity : unsigned char { step, forward, backward, update, wait, transfer, serve };

/// What a rank does, or what of it travels, from one time to another.
struct activity_span {
  int rank = 0;                    ///< of the job
  activity what = activity::step;  ///< kind of work
  double begin = 0;                ///< seconds since the beginning of the replay
  double end = 0;                  ///< likewise
  int step = 0;                    ///< from 0
  int item = -1;                   ///< of transfers and waits the part, of passes the micro-batch; -1: none
  int stage = -1;                  ///< of passes of a pipeline; -1: none
  int peer = -1;                   ///< of messages; -1: a collective
  double bytes = 0;                ///< of transfers
};

/// Means over the simulated ranks that compute, in seconds of a step.
struct step_shares {
  double forward = 0;    ///< computing
  double backward = 0;   ///< computing
  double update = 0;     ///< the update rule
  double stolen = 0;     ///< what the thread that carries transfers takes from computing
  double straggler = 0;  ///< waits because another rank computes longer
  double exposed = 0;    ///< waits for transfers, servers or other stages that are not hidden behind computing

  /// Adds each member.
  void add(const step_shares& other) noexcept {
    forward += other.forward;
    backward += other.backward;
    update += other.update;
    stolen += other.stolen;
    straggler += other.straggler;
    exposed += other.exposed;
  }
  /// Multiplies each member.
  void scale(double by) noexcept {
    for (double* const each : {&forward, &backward, &update, &stolen, &straggler, &exposed}) {
      *each *= by;
    }
  }
};

/// The result of a replay.
struct replayed_step {
  double seconds = 0;        ///< of a step: the mean of those after the first
  double first = 0;          ///< of the first step, which waits for nothing of an earlier one
  step_shares shares;        ///< where the seconds of a step go
  double sent_bytes = 0;     ///< by the rank that sends most, in a step
  double busiest_in = 0;     ///< bytes that the busiest server receives in a step; 0 without servers
  int simulated_ranks = 0;   ///< ranks that were replayed: fewer than the job has where these stand for all
  bool rough = false;        ///< the simulated ranks only resemble the others: see replay_options::most_exact_messages
  std::uint64_t events = 0;  ///< of the simulation
  std::vector<activity_span> spans;  ///< if they were asked for

  /// Sets `seconds` and `first` from the ends of the steps of each rank: a step ends with its last rank.
  void set_seconds(const std::vector<const std::vector<double>*>& ends) {
    double last = 0;
    std::size_t steps = 0;
    for (const std::vector<double>* const each : ends) {
      steps = std::max(steps, each->size());
      first = each->empty() ? first : std::max(first, each->front());
      last = each->empty() ? last : std::max(last, each->back());
    }
    seconds = steps > 1 ? (last - first) / static_cast<double>(steps - 1) : first;
  }
};

/// How a replay is made.
struct replay_options {
  int steps = 3;            ///< replayed; the first is not in the mean
  std::uint64_t seed = 1;   ///< of the variation of compute
  bool spans = false;       ///< keep what every simulated rank does
  bool every_rank = false;  ///< replay all ranks, also where a few could stand for all
  /// Where messages of a step on all ranks are more than these, a few ranks stand for all if they can.
  double most_messages = 3e4;
  /// The same for ranks that do nearly the same.
  double most_exact_messages = 1e6;
};

}  // namespace gradus::sim
