// SPDX-License-Identifier: BSL-1.0
//
// Which variables, or parts of them, live on which parameter server; and how many servers a training needs.
#pragma once

#include <algorithm>    // std::max, std::max_element, std::min, std::pop_heap, std::push_heap, std::sort
#include <cstddef>      // std::size_t
#include <functional>   // std::greater
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::pair
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"

namespace gradus::parallel {

/// A variable as a server sees it: rows that can be kept apart.
struct variable {
  std::string name;       ///< for messages
  index_t rows = 1;       ///< number of rows; each may be on a server of its own
  index_t row_bytes = 0;  ///< size of a row, in bytes

  /// Size of all rows, in bytes.
  [[nodiscard]] index_t bytes() const noexcept { return rows * row_bytes; }
};

/// How variables are spread over servers.
enum class placement_policy : unsigned char {
  round_robin,    ///< variable i on server i mod S, in the order of creation
  greedy,         ///< each variable, in the order of creation, on the server with the fewest bytes, the first of equals
  longest_first,  ///< the same, the largest variables first: at most 4/3 - 1/(3S) of the best (R. L. Graham, 1969)
  partitioned     ///< large variables cut into rows first, then longest_first: every server gets nearly total / S
};

/// The name of the enumerator, as in "round_robin".
[[nodiscard]] constexpr std::string_view name_of(placement_policy policy) noexcept {
  switch (policy) {
    case placement_policy::round_robin:
      return "round_robin";
    case placement_policy::greedy:
      return "greedy";
    case placement_policy::longest_first:
      return "longest_first";
    case placement_policy::partitioned:
      return "partitioned";
  }
  return "unknown policy";
}

/// Rows [first_row, first_row + rows) of a variable on a server.
struct placed_part {
  std::size_t variable = 0;  ///< index in the list of variables that place() received
  index_t first_row = 0;     ///< its first row in the variable
  index_t rows = 0;          ///< number of rows
  index_t bytes = 0;         ///< size of these rows, in bytes
  int server = 0;            ///< index of the server

  /// True if all members are equal.
  friend bool operator==(const placed_part&, const placed_part&) = default;
};

/// Parts in the order of variables and rows, and what each server has to carry.
struct placement {
  std::vector<placed_part> parts;     ///< all rows of all variables
  std::vector<index_t> server_bytes;  ///< bytes that each server stores

  /// Bytes of all variables.
  [[nodiscard]] index_t total_bytes() const noexcept {
    index_t total = 0;
    for (const index_t each : server_bytes) {
      total += each;
    }
    return total;
  }
  /// Bytes of the server that stores most. @pre there is a server
  [[nodiscard]] index_t busiest_bytes() const noexcept {
    return *std::max_element(server_bytes.begin(), server_bytes.end());
  }
  /// What the busiest server would carry if the bytes were spread evenly.
  [[nodiscard]] double ideal_bytes() const noexcept {
    return static_cast<double>(total_bytes()) / static_cast<double>(server_bytes.size());
  }
  /// Seconds that a step takes at least: the busiest server receives its gradients from every worker while it sends its
  /// values to every worker, over a link of the given bytes per second in each direction; and every worker sends and
  /// receives all of them.
  [[nodiscard]] double step_seconds(int workers, double bytes_per_second) const noexcept {
    return std::max(static_cast<double>(workers) * static_cast<double>(busiest_bytes()),
                    static_cast<double>(total_bytes())) /
           bytes_per_second;
  }
};

/// How place() cuts variables and spreads them over servers.
struct placement_options {
  placement_policy policy = placement_policy::partitioned;  ///< which server takes which variable
  /// Of `partitioned`: no part is cut smaller.
  index_t least_part_bytes = 64 * 1024;
  /// Of `partitioned`: the approximate number of parts per server.
  int parts_per_server = 8;
};

namespace detail {

[[nodiscard]] inline std::vector<placed_part> parts_of(std::span<const variable> variables, index_t most_bytes) {
  std::vector<placed_part> parts;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const variable& each = variables[i];
    const index_t rows_of_part =
        most_bytes == 0 || each.row_bytes == 0 ? each.rows : std::max<index_t>(most_bytes / each.row_bytes, 1);
    const index_t count = std::max<index_t>((each.rows + rows_of_part - 1) / std::max<index_t>(rows_of_part, 1), 1);
    for (index_t part = 0; part < count; ++part) {
      const index_t first = each.rows * part / count;
      const index_t rows = each.rows * (part + 1) / count - first;
      parts.push_back({.variable = i, .first_row = first, .rows = rows, .bytes = rows * each.row_bytes});
    }
  }
  return parts;
}

}  // namespace detail

/// Spreads variables over servers.
/// @throws configuration_error for less than one server, or a variable of negative size
[[nodiscard]] inline placement place(std::span<const variable> variables, int servers,
                                     const placement_options& options = {}) {
  if (servers < 1) {
    raise<configuration_error>("parallel::place", "at least 1 server", {servers});
  }
  if (options.least_part_bytes < 1 || options.parts_per_server < 1) {
    raise<configuration_error>("parallel::place", "least_part_bytes and parts_per_server of at least 1",
                               {options.least_part_bytes, " and ", options.parts_per_server});
  }
  index_t total = 0;
  for (const variable& each : variables) {
    if (each.rows < 0 || each.row_bytes < 0) {
      raise<configuration_error>("parallel::place", {"rows and bytes of '", each.name, "' of at least 0"},
                                 {each.rows, " and ", each.row_bytes});
    }
    total += each.bytes();
  }
  const index_t most = options.policy == placement_policy::partitioned
                           ? std::max(options.least_part_bytes, total / servers / options.parts_per_server)
                           : 0;
  placement result{.parts = detail::parts_of(variables, most),
                   .server_bytes = std::vector<index_t>(static_cast<std::size_t>(servers))};
  std::vector<std::size_t> order(result.parts.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  if (options.policy == placement_policy::longest_first || options.policy == placement_policy::partitioned) {
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return result.parts[a].bytes != result.parts[b].bytes ? result.parts[a].bytes > result.parts[b].bytes : a < b;
    });
  }
  // A heap of servers, the one with the fewest bytes on top, of equal ones the first.
  std::vector<std::pair<index_t, std::size_t>> loads;
  for (std::size_t server = 0; server < result.server_bytes.size(); ++server) {
    loads.emplace_back(0, server);
  }
  for (std::size_t k = 0; k < order.size(); ++k) {
    placed_part& part = result.parts[order[k]];
    std::size_t server = k % result.server_bytes.size();
    if (options.policy != placement_policy::round_robin) {
      std::pop_heap(loads.begin(), loads.end(), std::greater{});
      server = loads.back().second;
      loads.back().first += part.bytes;
      std::push_heap(loads.begin(), loads.end(), std::greater{});
    }
    part.server = static_cast<int>(server);
    result.server_bytes[server] += part.bytes;
  }
  return result;
}

/// A line for each server, then the busiest, the ideal, and what that means for a step.
[[nodiscard]] inline std::string describe(const placement& placed, int workers, double bytes_per_second) {
  std::string text;
  for (std::size_t i = 0; i < placed.server_bytes.size(); ++i) {
    append_text(text, {"server ", i, ": ", placed.server_bytes[i], " bytes\n"});
  }
  char line[200];
  format_text(line, sizeof(line),
              "busiest: %lld bytes, ideal: %.0f bytes, a step of %d workers at %.4g bytes/s takes at least %.4g s\n",
              static_cast<long long>(placed.busiest_bytes()), placed.ideal_bytes(), workers, bytes_per_second,
              placed.step_seconds(workers, bytes_per_second));
  return text.append(line);
}

/// What a number of servers costs a step.
struct server_count {
  int servers = 0;                   ///< number of servers
  index_t busiest_bytes = 0;         ///< bytes of the server that stores most
  double communication_seconds = 0;  ///< at least, a step
  double step_seconds = 0;           ///< the longer of communication and computation: with perfect overlap
};

/// The result of plan_servers.
struct server_plan {
  std::vector<server_count> counts;  ///< of 1, 2, ... servers
  int recommended = 0;               ///< the fewest servers whose step is within 5 % of the shortest one
};

/// How many servers a network needs: for 1 to `most_servers` servers, what the busiest one carries and how long a step
/// takes at least. More servers than recommended gain less than 5 %.
/// @param compute_seconds   of a step of one worker, without communication
/// @param bytes_per_second  of the link of a server or worker, in each direction
/// @throws configuration_error when a number makes no sense
[[nodiscard]] inline server_plan plan_servers(std::span<const variable> variables, int workers, double compute_seconds,
                                              double bytes_per_second, int most_servers,
                                              const placement_options& options = {}) {
  if (workers < 1 || most_servers < 1 || !(compute_seconds >= 0) || !(bytes_per_second > 0) ||
      !is_finite(compute_seconds) || !is_finite(bytes_per_second)) {
    raise<configuration_error>(
        "parallel::plan_servers",
        "workers and most_servers of at least 1, finite compute_seconds of at least 0 and bytes_per_second above 0",
        {workers, ", ", most_servers, ", ", compute_seconds, ", ", bytes_per_second});
  }
  server_plan plan;
  double shortest = 0;
  for (int servers = 1; servers <= most_servers; ++servers) {
    const placement placed = place(variables, servers, options);
    const double communication = placed.step_seconds(workers, bytes_per_second);
    plan.counts.push_back({.servers = servers,
                           .busiest_bytes = placed.busiest_bytes(),
                           .communication_seconds = communication,
                           .step_seconds = std::max(communication, compute_seconds)});
    shortest = servers == 1 ? plan.counts.back().step_seconds : std::min(shortest, plan.counts.back().step_seconds);
  }
  for (const server_count& each : plan.counts) {
    if (each.step_seconds <= 1.05 * shortest) {
      plan.recommended = each.servers;
      break;
    }
  }
  return plan;
}

}  // namespace gradus::parallel
