// SPDX-License-Identifier: BSL-1.0
//
// The plan of a training with parameter servers: what lives where, and in which order it is pulled.
#pragma once

#include <algorithm>    // std::sort
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/text.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/parameter_server/placement.hpp"
#include "gradus/parameter_server/roles.hpp"

namespace gradus::parallel {

/// A run of elements of one parameter that lives on one server.
struct server_part {
  std::size_t segment = 0;    ///< of flat_parameters
  index_t offset = 0;         ///< in the flat buffers, in elements
  index_t size = 0;           ///< elements
  int server = 0;             ///< index among the servers
  index_t server_offset = 0;  ///< in the server's buffers, in elements

  /// True if all members are equal.
  friend bool operator==(const server_part&, const server_part&) = default;
};

/// What lives where, and in which order values are pulled. The same on all ranks: they compare describe().
struct parameter_server_plan {
  roles who;                            ///< the ranks of workers and servers
  placement placed;                     ///< of the parameters in the order of creation
  std::vector<server_part> parts;       ///< in the order in which backward completes their gradients
  std::vector<std::string> names;       ///< of the parts, for messages
  std::vector<std::size_t> pull_order;  ///< of the parts, each once; empty: as they are ready
  index_t element_bytes = 0;            ///< size of a value and of a gradient, in bytes

  /// Elements that a server stores. @pre 0 <= server < number of servers
  [[nodiscard]] index_t elements_of(int server) const noexcept {
    return placed.server_bytes[static_cast<std::size_t>(server)] / element_bytes;
  }

  /// The roles, the load of each server and the ideal one; then a line for each part, in the order of pulls if there is
  /// one.
  [[nodiscard]] std::string describe() const {
    std::string text = who.describe();
    for (std::size_t i = 0; i < placed.server_bytes.size(); ++i) {
      append_text(text, {"\nserver ", i, " of ", placed.server_bytes.size(), ": ", placed.server_bytes[i],
                         " bytes (ideal ", static_cast<index_t>(placed.ideal_bytes()), ")"});
    }
    append_text(text, {"\npulls: ", pull_order.empty() ? "as values are ready" : "in the order given"});
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::size_t part = pull_order.empty() ? i : pull_order[i];
      append_text(text, {"\n", names[part], " on server ", parts[part].server});
    }
    return text;
  }

  /// Of describe().
  [[nodiscard]] std::uint64_t hash() const { return gradus::detail::hash_text(describe()); }
};

namespace detail {

/// Segments stand in the order in which backward completes them: layers reversed, each with its parameters in order.
/// This is the order in which they were made: layers by the name before the last point.
[[nodiscard]] inline dynamic_array<std::size_t> creation_order(std::span<const optim::segment> segments) {
  const auto layer_of = [&](std::size_t i) {
    const std::string_view name = segments[i].name;
    return name.substr(0, name.rfind('.'));
  };
  dynamic_array<std::size_t> order;
  for (std::size_t end = segments.size(); end > 0;) {
    std::size_t begin = end - 1;
    while (begin > 0 && layer_of(begin - 1) == layer_of(end - 1)) {
      --begin;
    }
    for (std::size_t i = begin; i < end; ++i) {
      order.push_back(i);
    }
    end = begin;
  }
  return order;
}

}  // namespace detail

/// Places the parameters of a network on servers.
/// @param segments         in the order in which backward completes their gradients
/// @param element_bytes    of a value and of a gradient
/// @param pull_priorities  one a segment, the smallest is pulled first (see parallel/transfer_order/order.hpp); empty:
/// no order
/// @throws configuration_error when options make no sense
[[nodiscard]] inline parameter_server_plan make_server_plan(std::span<const optim::segment> segments,
                                                            index_t element_bytes, const roles& who,
                                                            const placement_options& options,
                                                            std::span<const std::size_t> pull_priorities) {
  if (!pull_priorities.empty() && pull_priorities.size() != segments.size()) {
    raise<configuration_error>(
        "parallel::parameter_server", {"one pull priority for each of ", segments.size(), " parameters, or none"},
        {pull_priorities.size()}, "priorities_of_parameters of parallel/transfer_order/order.hpp makes them");
  }
  parameter_server_plan plan;
  plan.who = who;
  plan.element_bytes = element_bytes;
  const auto order = detail::creation_order(segments);
  std::vector<variable> variables;
  for (const std::size_t i : order) {
    // Any element may be the first of a part: what a rule does to an element does not depend on its neighbours.
    variables.push_back({.name = segments[i].name, .rows = segments[i].size, .row_bytes = element_bytes});
  }
  plan.placed = place(variables, static_cast<int>(who.servers.size()), options);
  dynamic_array<const placed_part*> sorted;
  for (const placed_part& each : plan.placed.parts) {
    sorted.push_back(&each);
  }
  std::sort(sorted.begin(), sorted.end(), [&](const placed_part* a, const placed_part* b) {
    return a->variable != b->variable ? order[a->variable] < order[b->variable] : a < b;
  });
  dynamic_array<index_t> filled(who.servers.size(), index_t{0});
  for (const placed_part* const each : sorted) {
    const optim::segment& segment = segments[order[each->variable]];
    index_t& filled_rows = filled[static_cast<std::size_t>(each->server)];
    plan.parts.push_back({.segment = order[each->variable],
                          .offset = segment.offset + each->first_row,
                          .size = each->rows,
                          .server = each->server,
                          .server_offset = filled_rows});
    filled_rows += each->rows;
    std::string name = segment.name;
    if (each->rows != segment.size) {
      append_text(name, {"[", each->first_row, ", ", each->first_row + each->rows, ")"});
    }
    plan.names.push_back(std::move(name));
  }
  if (!pull_priorities.empty()) {
    for (std::size_t i = 0; i < plan.parts.size(); ++i) {
      plan.pull_order.push_back(i);
    }
    std::sort(plan.pull_order.begin(), plan.pull_order.end(), [&](std::size_t a, std::size_t b) {
      const auto first = pull_priorities[plan.parts[a].segment];
      const auto second = pull_priorities[plan.parts[b].segment];
      return first != second ? first < second : a < b;
    });
  }
  return plan;
}

}  // namespace gradus::parallel
