// SPDX-License-Identifier: BSL-1.0
//
// Who keeps a parameter server from going on, and with which variable.
#pragma once

#include <algorithm>  // std::min, std::none_of
#include <chrono>     // std::chrono::milliseconds
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint64_t
#include <cstdio>     // std::fprintf
#include <limits>     // std::numeric_limits
#include <span>       // std::span
#include <string>     // std::string

#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/text.hpp"
#include "gradus/parameter_server/detail/protocol/client.hpp"

namespace gradus::parallel::detail {

struct missing_workers {
  dynamic_array<int> ranks;
  std::size_t part = 0;  ///< the first that cannot go on
  bool pull = false;     ///< they do not take values; otherwise their gradients have not come
};

/// @param parts  of the server
[[nodiscard]] inline missing_workers find_missing(std::span<const server_client> clients, std::size_t parts) {
  using phase = server_client::phase;
  const auto lacks_gradient = [](const server_client& each, std::size_t part) {
    return each.lost || each.stage == phase::left || each.stage == phase::idle ||
           (each.stage == phase::incoming && (each.has[part] == 0 || !each.ended));
  };
  for (const bool pull : {false, true}) {
    for (std::size_t part = 0; part < parts; ++part) {
      missing_workers found{.ranks = {}, .part = part, .pull = pull};
      for (const server_client& each : clients) {
        if (pull ? each.outgoing[part].active() : lacks_gradient(each, part)) {
          found.ranks.push_back(each.rank);
        }
      }
      if (!found.ranks.empty()) {
        return found;
      }
    }
  }
  return {};
}

/// What has not come in time, for a message. Ranks that do not answer are the reason: `missing` may only wait for them.
/// @param missing  the ranks that this one waits for
/// @param silent   the ranks that do not answer; empty if they cannot be asked
[[nodiscard]] inline std::string missing_text(const dynamic_array<int>& missing, const dynamic_array<int>& silent,
                                              std::chrono::milliseconds patience) {
  const std::string time = comm::seconds_text(patience);
  if (!silent.empty()) {
    return join({"not complete within ", time, "; no answer from ", comm::ranks_text(silent)});
  }
  return join({missing.empty() ? "messages" : comm::ranks_text(missing), " did not arrive within ", time});
}

/// A server that trains on without a silent worker says so, once, on the standard error output: no other rank notices.
inline void tell_lost(int server, int worker, std::chrono::milliseconds patience) {
  std::fprintf(stderr,
               "gradus: parameter server on rank %d: nothing has come from the worker on rank %d for %s; the training "
               "goes on without it\n",
               server, worker, comm::seconds_text(patience).c_str());
}
inline void tell_back(int server, int worker) {
  std::fprintf(stderr, "gradus: parameter server on rank %d: the worker on rank %d is there again\n", server, worker);
}

/// The gradients of a part have come from all workers.
[[nodiscard]] inline bool have_all(std::span<const server_client> clients, std::size_t part) noexcept {
  return std::none_of(clients.begin(), clients.end(), [=](const server_client& each) { return each.has[part] == 0; });
}

/// Whole pushes that a step with backup workers takes: fewer when workers have left, and when those that stay are lost.
[[nodiscard]] inline std::size_t pushes_needed(std::span<const server_client> clients, std::size_t backup) noexcept {
  std::size_t there = 0;
  std::size_t lost = 0;
  for (const server_client& each : clients) {
    there += each.stage == server_client::phase::left ? 0 : 1;
    lost += each.stage != server_client::phase::left && each.lost ? 1 : 0;
  }
  return std::min(clients.size() - backup, there - std::min(lost, backup));
}

/// The pushes of the slowest worker that is there.
[[nodiscard]] inline std::uint64_t fewest_pushes(std::span<const server_client> clients) noexcept {
  std::uint64_t fewest = std::numeric_limits<std::uint64_t>::max();
  for (const server_client& each : clients) {
    if (each.stage != server_client::phase::left && !each.lost) {
      fewest = std::min(fewest, each.pushes);
    }
  }
  return fewest;
}

}  // namespace gradus::parallel::detail
