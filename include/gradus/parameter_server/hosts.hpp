// SPDX-License-Identifier: BSL-1.0
//
// On which hosts the ranks of a group run.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/comm/link.hpp"
#include "gradus/core/config.hpp"

namespace gradus::parallel {

/// The names of all ranks' hosts. Called by all ranks.
/// @param own  of this rank's host, e.g. from gethostname or MPI_Get_processor_name; 255 bytes of it count
/// @throws communication_error if a rank fails or does not come
[[nodiscard]] inline std::vector<std::string> gather_host_names(comm::link& group, std::string_view own) {
  constexpr std::size_t length = 256;
  std::vector<std::uint8_t> mine(length);
  own.substr(0, length - 1).copy(reinterpret_cast<char*>(mine.data()), length - 1);
  std::vector<std::uint8_t> all(length * static_cast<std::size_t>(group.size()));
  group.all_gather(mine, all);
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < all.size() / length; ++rank) {
    names.emplace_back(reinterpret_cast<const char*>(all.data() + rank * length));
  }
  return names;
}

}  // namespace gradus::parallel
