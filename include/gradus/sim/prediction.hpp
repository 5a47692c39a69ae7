// SPDX-License-Identifier: BSL-1.0
//
// A prediction: images a second with an interval, and which measurement would narrow it.
#pragma once

#include <algorithm>    // std::max, std::sort
#include <array>        // std::array
#include <cmath>        // std::abs, std::log2, std::sqrt
#include <cstdint>      // std::uint64_t
#include <functional>   // std::function
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/sim/cluster.hpp"
#include "gradus/sim/replayed_step.hpp"
#include "gradus/sim/workload.hpp"

namespace gradus::sim {

/// Relative uncertainty of what a replay is made of, and of the replay itself.
struct uncertainties {
  double bandwidth = 0.1;      ///< of links between hosts
  double latency = 0.2;        ///< of links between hosts
  double message = 0.5;        ///< of the seconds that a thread spends on a message
  double adding = 0.3;         ///< of the rate of adding
  double compute = 0.01;       ///< of the times of layers
  double model = 0.08;         ///< of a replay with exact inputs, up to calibrated_ranks
  double per_doubling = 0.01;  ///< more of it for each doubling of the ranks beyond
  int calibrated_ranks = 4;    ///< the most ranks that predictions have been compared with measurements for
};

/// What one uncertain input does to a prediction.
struct influence {
  std::string_view input;        ///< "bandwidth", "latency", ...
  double seconds = 0;            ///< how much longer a step takes if it is worse by its uncertainty
  std::string_view measurement;  ///< which would make it certain
};

/// What a training would do.
struct prediction {
  int ranks = 0;                      ///< of the job
  replayed_step step;                 ///< with the most probable inputs
  double images_per_second = 0;       ///< of all ranks
  double least = 0;                   ///< lower end of the interval of images a second
  double most = 0;                    ///< upper end
  double efficiency = 0;              ///< images a second over those of as many ranks that exchange nothing
  bool beyond = false;                ///< more ranks than uncertainties::calibrated_ranks
  std::vector<influence> influences;  ///< the largest first
};

/// Replays a step with these speeds and times.
using replay_function = std::function<replayed_step(const cluster&, const workload&)>;

/// Predicts images a second, and how sure that is: each uncertain input is made worse by its uncertainty in a replay of
/// its own, and the changes are added as independent errors are (the square root of the sum of squares), with the error
/// of the model. A step with many events is replayed with all inputs worse together only.
/// @param images     of a step of all ranks that compute
/// @param computing  ranks that compute
[[nodiscard]] inline prediction predict(int ranks, int computing, double images, const cluster& of,
                                        const workload& work, const uncertainties& unsure,
                                        const replay_function& replay) {
  prediction found;
  found.ranks = ranks;
  found.step = replay(of, work);
  const double seconds = found.step.seconds;
  struct change {
    influence what;
    void (*apply)(cluster&, workload&, double);
    double by;
  };
  const auto slower_compute = [](cluster&, workload& w, double by) {
    for (layer_times& each : w.layers) {
      each.forward *= 1 + by;
      each.backward *= 1 + by;
    }
    w.update *= 1 + by;
    w.other *= 1 + by;
  };
  const std::array<change, 5> changes{
      {{{"bandwidth", 0,
         "the bandwidth between two hosts, with messages as long as the buckets, and of all hosts at once"},
        [](cluster& c, workload&, double by) { c.network.bytes_per_second /= 1 + by; },
        unsure.bandwidth},
       {{"latency", 0, "the latency of short messages between two hosts"},
        [](cluster& c, workload&, double by) { c.network.latency *= 1 + by; },
        unsure.latency},
       {{"message cost", 0, "the rate of many short messages between two hosts"},
        [](cluster& c, workload&, double by) { c.message_seconds *= 1 + by; },
        unsure.message},
       {{"adding", 0, "an all-reduce of two ranks on one host"},
        [](cluster& c, workload&, double by) { c.adding /= 1 + by; },
        unsure.adding},
       {{"compute", 0, "a longer profile of one host, on the machine and with the batch of the cluster"},
        slower_compute,
        unsure.compute}}};
  constexpr std::uint64_t many_events = 2000000;
  double squares = 0;
  if (found.step.events > many_events) {
    cluster worse = of;
    workload slower = work;
    for (const change& each : changes) {
      each.apply(worse, slower, each.by);
    }
    const double change_of_all = std::max(replay(worse, slower).seconds - seconds, 0.0);
    squares = change_of_all * change_of_all;
    found.influences.push_back({"all inputs together", change_of_all, "the bandwidth and latency between two hosts"});
  } else {
    for (const change& each : changes) {
      cluster worse = of;
      workload slower = work;
      each.apply(worse, slower, each.by);
      influence one = each.what;
      one.seconds = std::abs(replay(worse, slower).seconds - seconds);
      squares += one.seconds * one.seconds;
      found.influences.push_back(one);
    }
  }
  std::sort(found.influences.begin(), found.influences.end(),
            [](const influence& a, const influence& b) { return a.seconds > b.seconds; });
  found.beyond = ranks > unsure.calibrated_ranks;
  const double doublings = std::log2(std::max(1.0, static_cast<double>(ranks) / unsure.calibrated_ranks));
  // What only computes is known as well as the profile.
  const double of_model = unsure.model + unsure.per_doubling * doublings + (found.step.rough ? 0.05 : 0.0);
  const double error = std::sqrt(squares + of_model * of_model * seconds * seconds);
  found.images_per_second = images / seconds;
  found.least = images / (seconds + error);
  found.most = images / std::max(seconds - error, 0.5 * seconds);
  const double per_rank = images / computing / work.seconds();
  found.efficiency = found.images_per_second / (per_rank * computing);
  return found;
}

}  // namespace gradus::sim
