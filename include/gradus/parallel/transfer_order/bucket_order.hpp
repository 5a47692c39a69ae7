// SPDX-License-Identifier: BSL-1.0
//
// Buckets in the order in which the next forward pass needs them, as far as backward allows.
#pragma once

#include <algorithm>  // std::max, std::min
#include <cstddef>    // std::size_t
#include <cstdint>    // std::int64_t
#include <limits>     // std::numeric_limits
#include <span>       // std::span
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/bucket.hpp"
#include "gradus/parallel/network_segments.hpp"
#include "gradus/parallel/transfer_order/order.hpp"
#include "gradus/parallel/transfer_order/simulated_step.hpp"
#include "gradus/parallel/transfer_order/step_graph.hpp"

namespace gradus::parallel {

/// When each part of a step is complete in backward, how long it travels, and how soon the next forward pass needs it.
/// @param parts       of the buckets
/// @param network     compiled
/// @param priorities  one a parameter, in the order of network.trained_parameters(); the smallest is needed first
/// @param ranks       of the all-reduce, of which each sends 2 (ranks - 1) / ranks of the bytes
[[nodiscard]] inline std::vector<timed_bucket> timed_buckets(const nn::graph& network, std::span<const bucket> buckets,
                                                             std::span<const part> parts, const step_profile& profile,
                                                             const transfer_priorities& priorities, int ranks) {
  if (profile.layers.size() != network.nodes().size() || priorities.size() != network.trained_parameters().size()) {
    raise<configuration_error>(
        "timed_buckets",
        {"the times of ", network.nodes().size(), " layers and ", network.trained_parameters().size(), " priorities"},
        {profile.layers.size(), " and ", priorities.size()});
  }
  std::vector<double> complete(priorities.size());  // of each parameter, from the beginning of backward
  double now = 0;
  for (std::size_t layer = network.nodes().size(); layer-- > 0;) {
    now += profile.layers[layer].backward;
    const nn::graph::node& node = network.nodes()[layer];
    for (std::size_t k = 0; k < node.trained().size(); ++k) {
      complete[node.first_parameter + k] = now;
    }
  }
  const double share = 2.0 * (ranks - 1) / ranks;
  std::vector<timed_bucket> result;
  for (const part& each : parts) {
    const index_t bytes = each.size() * profile.element_bytes;
    timed_bucket timed{.ready = 0,
                       .seconds = profile.link.seconds(static_cast<index_t>(share * static_cast<double>(bytes))),
                       .priority = std::numeric_limits<std::size_t>::max(),
                       .bytes = bytes};
    const bucket& whole = buckets[each.bucket];
    for (std::size_t p = whole.first_segment; p < whole.end_segment(); ++p) {
      timed.ready = std::max(timed.ready, complete[p]);
      timed.priority = std::min<std::size_t>(timed.priority, priorities[p]);
    }
    result.push_back(timed);
  }
  return result;
}

/// The buckets that the options make of a network's parameters. @pre the network is compiled, or was forecast
/// @throws configuration_error when options make no sense
[[nodiscard]] inline bucket_list buckets_of(const all_reduce& options, const nn::graph& network,
                                            index_t element_bytes) {
  detail::check(options);
  const segment_list segments = segments_of(network);
  return detail::buckets_of(options, {segments.data(), segments.size()}, network.trained_elements(), element_bytes);
}

/// How much longer backward is taken to last than in the profile, which was measured without transfers. They take
/// processor time and caches, and ranks wait for the slowest of them. A part that is complete later than the order
/// expects holds up all behind it while the network idles; with too much, the parts that the next forward pass begins
/// with come behind others that are not needed yet.
inline constexpr double late_backward = 1.1;

/// The order in which ranks issue the parts of these options when parameters have these priorities: a value for
/// all_reduce::order. Times that were measured differ from rank to rank: let one rank find it and broadcast it.
/// @param network     compiled
/// @param priorities  one a parameter, in the order of network.trained_parameters()
[[nodiscard]] inline std::vector<std::size_t> bucket_order(const all_reduce& options, const nn::graph& network,
                                                           const step_profile& profile,
                                                           const transfer_priorities& priorities, int ranks) {
  const bucket_list list = buckets_of(options, network, profile.element_bytes);
  const std::span<const bucket> buckets{list.data(), list.size()};
  const part_list parts = detail::parts_of(options, buckets, profile.element_bytes);
  std::vector<timed_bucket> timed =
      timed_buckets(network, buckets, {parts.data(), parts.size()}, profile, priorities, ranks);
  for (timed_bucket& each : timed) {
    each.ready *= late_backward;
  }
  return static_issue_order(timed, options.credit_bytes);
}

/// The options with an order in which parts that the next forward pass needs soon overtake others that are complete
/// too. The order follows from rank 0's profile and is the same on all ranks. Called by all ranks of the communicator.
///
/// It pays off with overlap_forward, small buckets or parts and little credit.
///
/// @param find  find(step_graph) returns the priorities: TAC, or `[](const auto& graph) { return tic(graph); }` and
/// others
///              of parallel/transfer_order/order.hpp
///
/// @code
///   parallel::profile_recorder recorder{net.layers()};
///   for (int step = 0; step < 5; ++step) { net.train_step(images, labels, {}, &recorder); }
///   auto options = parallel::in_forward_order(
///       {.bucket_bytes = 4 << 20, .partition_bytes = 1 << 20, .credit_bytes = 4 << 20, .overlap_forward = true}, net,
///       world, recorder.profile());
///   train::trainer trainer{net, optim::sgd{}, world, options};
/// @endcode
template <class Network, class Find = transfer_priorities (*)(const step_graph&)>
[[nodiscard]] all_reduce in_forward_order(all_reduce options, const Network& network,
                                          comm::any_communicator communicator, const step_profile& profile,
                                          const Find& find = &tac) {
  const nn::graph& graph = network.structure();
  const bucket_list buckets = buckets_of(options, graph, profile.element_bytes);
  std::vector<std::int64_t> order(
      detail::parts_of(options, {buckets.data(), buckets.size()}, profile.element_bytes).size());
  if (communicator.rank() == 0) {
    const transfer_priorities priorities = priorities_of_parameters(graph, find(forward_graph(graph, profile)));
    const auto chosen = bucket_order(options, graph, profile, priorities, communicator.size());
    order.assign(chosen.begin(), chosen.end());
  }
  comm::broadcast(communicator, order, 0).wait();
  options.order.assign(order.begin(), order.end());
  return options;
}

}  // namespace gradus::parallel
