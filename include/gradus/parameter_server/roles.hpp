// SPDX-License-Identifier: BSL-1.0
//
// Which ranks are workers and which are parameter servers: from numbers, or from lists of hosts.
#pragma once

#include <algorithm>    // std::find, std::max
#include <cstddef>      // std::size_t
#include <map>          // std::map
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"

namespace gradus::parallel {

/// The ranks of a communicator by what they do. A rank may be a worker, a server, or both.
struct roles {
  std::vector<int> workers;  ///< their ranks; worker i is workers[i]
  std::vector<int> servers;  ///< their ranks; server i is servers[i]

  /// The index of a rank among the workers, -1 if it is none.
  [[nodiscard]] int worker_index(int rank) const noexcept { return index_in(workers, rank); }
  /// The index of a rank among the servers, -1 if it is none.
  [[nodiscard]] int server_index(int rank) const noexcept { return index_in(servers, rank); }

  /// "workers: ranks 0 1 2, servers: ranks 3"
  [[nodiscard]] std::string describe() const {
    std::string text = "workers: ranks";
    for (const int each : workers) {
      append_text(text, {" ", each});
    }
    text += ", servers: ranks";
    for (const int each : servers) {
      append_text(text, {" ", each});
    }
    return text;
  }

  /// True if the lists of workers and servers are equal.
  friend bool operator==(const roles&, const roles&) = default;

 private:
  static int index_in(const std::vector<int>& ranks, int rank) noexcept {
    const auto found = std::find(ranks.begin(), ranks.end(), rank);
    return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
  }
};

/// Roles by number. Colocated servers are the first ranks, which are workers too; servers of their own are the last
/// ranks, so that a worker's index is its rank.
/// @param servers  0 with `colocate`: every rank is a server
/// @throws configuration_error when a worker or a server would be missing
[[nodiscard]] inline roles roles_of(int ranks, int servers, bool colocate) {
  const int count = colocate && servers == 0 ? ranks : servers;
  if (count < 1 || count > (colocate ? ranks : ranks - 1)) {
    raise<configuration_error>(
        "parallel::roles_of",
        {"1 to ", colocate ? ranks : ranks - 1, " servers for ", ranks, colocate ? " ranks, colocated" : " ranks"},
        {servers},
        colocate ? "a rank has at most one server" : "start more ranks, or place the servers beside workers: colocate");
  }
  roles result;
  for (int rank = 0; rank < (colocate ? ranks : ranks - count); ++rank) {
    result.workers.push_back(rank);
  }
  for (int server = 0; server < count; ++server) {
    result.servers.push_back(colocate ? server : ranks - count + server);
  }
  return result;
}

/// Hosts by role, in the order of their indices. A host may be named several times.
struct host_list {
  std::vector<std::string> workers;  ///< the host of worker i is workers[i]
  std::vector<std::string> servers;  ///< the host of server i is servers[i]

  /// True if both lists are equal.
  friend bool operator==(const host_list&, const host_list&) = default;
};

/// Reads "worker=h0,h1;server=h2". Names are letters, digits, '.', '-', '_' and ':'.
/// @throws configuration_error that says which part is not understood
[[nodiscard]] inline host_list parse_host_list(std::string_view text) {
  constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:";
  host_list result;
  const auto refuse = [](std::string_view part, std::string_view hint = {}) {
    raise<configuration_error>("parallel::parse_host_list", "lists such as worker=h0,h1;server=h2", {"'", part, "'"},
                               hint);
  };
  for (;;) {
    const std::size_t end = text.find(';');
    const std::string_view list = text.substr(0, end);
    const std::size_t equals = list.find('=');
    const std::string_view role = list.substr(0, equals);
    if (equals == std::string_view::npos || (role != "worker" && role != "server")) {
      refuse(list, "the roles are worker and server");
    }
    std::vector<std::string>& hosts = role == "worker" ? result.workers : result.servers;
    if (!hosts.empty()) {
      refuse(list, "name each role once");
    }
    std::string_view names = list.substr(equals + 1);
    for (;;) {
      const std::size_t comma = names.find(',');
      const std::string_view host = names.substr(0, comma);
      if (host.empty() || host.find_first_not_of(allowed) != std::string_view::npos) {
        refuse(list, "host names are letters, digits, '.', '-', '_' and ':'");
      }
      hosts.emplace_back(host);
      if (comma == std::string_view::npos) {
        break;
      }
      names.remove_prefix(comma + 1);
    }
    if (end == std::string_view::npos) {
      break;
    }
    text.remove_prefix(end + 1);
  }
  if (result.workers.empty() || result.servers.empty()) {
    refuse(text, "name at least one worker and one server");
  }
  return result;
}

/// Roles by host. A host with as many ranks as it is named has one role a rank, workers first; one with fewer ranks,
/// as many as its longer list, has workers and servers side by side in its ranks.
/// @param host_of_rank  the name of each rank's host
/// @throws configuration_error when the ranks of a host do not fit its names
[[nodiscard]] inline roles roles_of(const host_list& hosts, std::span<const std::string> host_of_rank) {
  struct host {
    std::vector<int> ranks;
    std::size_t workers = 0;  // how often the lists name it
    std::size_t servers = 0;
    std::size_t given = 0;  // of the roles of the list at hand
  };
  std::map<std::string_view, host> by_name;
  for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank) {
    by_name[host_of_rank[rank]].ranks.push_back(static_cast<int>(rank));
  }
  for (const std::string& name : hosts.workers) {
    ++by_name[name].workers;
  }
  for (const std::string& name : hosts.servers) {
    ++by_name[name].servers;
  }
  const auto require_fit = [&](const std::string& name) {
    const host& its = by_name[name];
    const std::size_t ranks = its.ranks.size();
    if (its.workers + its.servers == 0) {
      raise<configuration_error>("parallel::roles_of", {"lists that name host '", name, "'"},
                                 {"none, and ", ranks, " ranks on it"},
                                 "the names are those that gather_host_names gives");
    }
    if (ranks != its.workers + its.servers && ranks != std::max(its.workers, its.servers)) {
      raise<configuration_error>("parallel::roles_of",
                                 {its.workers + its.servers, " ranks on host '", name, "', or ",
                                  std::max(its.workers, its.servers), " with workers and servers side by side"},
                                 {ranks}, "start as many ranks on each host as the lists name it");
    }
  };
  for (const std::string& name : host_of_rank) {
    require_fit(name);
  }
  const auto take = [&](const std::vector<std::string>& list, bool servers, std::vector<int>& chosen) {
    for (auto& [name, its] : by_name) {
      its.given = servers && its.ranks.size() == its.workers + its.servers ? its.workers : 0;
    }
    for (const std::string& name : list) {
      require_fit(name);
      host& its = by_name[name];
      chosen.push_back(its.ranks[its.given++]);
    }
  };
  roles result;
  take(hosts.workers, false, result.workers);
  take(hosts.servers, true, result.servers);
  return result;
}

}  // namespace gradus::parallel
