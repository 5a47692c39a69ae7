// SPDX-License-Identifier: BSL-1.0
//
// Who keeps a parameter server from going on, and with which variable.
#pragma once

#include <cstddef>  // std::size_t
#include <span>     // std::span

#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/parallel/detail/parameter_server/client.hpp"

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

}  // namespace gradus::parallel::detail
