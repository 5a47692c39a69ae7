// SPDX-License-Identifier: BSL-1.0
//
// Options of collectives that are made of messages: algorithms, sizes of messages, and the nodes of the ranks.
#pragma once

#include <algorithm>        // std::any_of
#include <cstddef>          // std::size_t
#include <source_location>  // std::source_location
#include <string>           // std::string, std::to_string
#include <string_view>      // std::string_view
#include <vector>           // std::vector

#include "gradus/comm/agreement.hpp"
#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm {

/// Options of `collectives` and `subset`, the same on all ranks.
struct collectives_options {
  /// Algorithms of all_reduce by size. The default suits a network with latencies of some microseconds and bandwidths
  /// of gigabytes a second; see tune_all_reduce.
  std::vector<all_reduce_rule> all_reduce{
      {.algorithm = all_reduce_algorithm::recursive_doubling, .largest_bytes = 16 * 1024},
      {.algorithm = all_reduce_algorithm::binary_blocks, .largest_bytes = 1024 * 1024},
      {.algorithm = all_reduce_algorithm::ring}};
  /// Largest size of a message in bytes; long arrays are split so that receiving and combining overlap.
  index_t segment_bytes = 1024 * 1024;
  /// The node of each rank (for a subset, each rank of its base), counted from 0: the hierarchical algorithms need it.
  /// See nodes_of_ranks.
  std::vector<int> node_of_rank{};
  /// Reduce-scatters add in pairs of neighbors, then pairs of these, and so on, as halving_doubling does, in place of a
  /// ring. The number of ranks has to be a power of two. See pairwise_sums.
  bool scatter_in_pairs = false;
};

namespace detail {

/// Called by all ranks of a communicator, with its size.
/// @throws configuration_error if options are invalid or differ between ranks
void require_options(any_communicator world, std::string_view what, const collectives_options& options,
                     std::source_location where = std::source_location::current());

}  // namespace detail

}  // namespace gradus::comm

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm::detail {

GRADUS_INLINE void require_options(any_communicator world, std::string_view what, const collectives_options& options,
                                   std::source_location where) {
  require_all_reduce_rules(options.all_reduce);
  if (options.segment_bytes < 1) {
    raise<configuration_error>(what, "segment_bytes of at least 1", {options.segment_bytes}, {}, where);
  }
  std::string nodes;
  for (const int each : options.node_of_rank) {
    append_text(nodes, {nodes.empty() ? "" : " ", each});
  }
  require_agreement(world, what,
                    {{"all_reduce", describe(options.all_reduce)},
                     {"segment_bytes", std::to_string(options.segment_bytes)},
                     {"node_of_rank", nodes}},
                    where);
  const int size = world.size();
  const bool by_node = std::any_of(options.all_reduce.begin(), options.all_reduce.end(),
                                   [](const all_reduce_rule& each) { return is_hierarchical(each.algorithm); });
  if ((by_node || !options.node_of_rank.empty()) && options.node_of_rank.size() != static_cast<std::size_t>(size)) {
    raise<configuration_error>(what, {"a node for each of ", size, " ranks"}, {options.node_of_rank.size()},
                               "node_of_rank = comm::nodes_of_ranks(communicator)", where);
  }
}

}  // namespace gradus::comm::detail
#endif
