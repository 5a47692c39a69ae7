// SPDX-License-Identifier: BSL-1.0
//
// Ranks whose command lines differ: all learn of one that cannot be followed, and all end.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::uint8_t
#include <cstdlib>      // std::getenv
#include <cstring>      // std::memcpy
#include <span>         // std::as_writable_bytes, std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm {

/// Whether mpiexec, mpirun or another launcher of MPI jobs has started this process, as far as the environment says.
/// A process of a job has to begin MPI even if it has nothing to do: the others wait for it there.
[[nodiscard]] GRADUS_COLD inline bool started_by_launcher() noexcept {
  for (const char* const name :
       {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID", "ALPS_APP_PE"}) {
    if (std::getenv(name) != nullptr) {
      return true;
    }
  }
  return false;
}

/// What a program makes of its command line.
struct command_line {
  static constexpr int go_on = -1;

  int status = go_on;  ///< or what the program returns instead of going on
  std::string text;    ///< then: what it has to say, such as its help (with status 0) or what is wrong
  int rank = 0;        ///< whose text that is

  [[nodiscard]] bool ends() const noexcept { return status != go_on; }
};

/// Called by all ranks, before they do anything else together: if one of them cannot go on, no rank does.
///
/// @code
///   comm::mpi_environment environment{argc, argv};  // begun for a command line that is refused, too
///   const comm::command_line all = environment.run([&](comm::mpi& world) { return comm::agree(world, own); });
///   if (all.ends()) {
///     if (all.rank == environment.rank()) { std::fputs(all.text.c_str(), all.status == 0 ? stdout : stderr); }
///     return all.status;
///   }
/// @endcode
///
/// @param own  of this rank
/// @return on all ranks the text of the lowest one that ends, for that rank to print; with this rank's own status, or 2
///         if it would have gone on. A command line to go on with if all do.
/// @throws communication_error if a rank fails or does not come
[[nodiscard]] GRADUS_COLD inline command_line agree(any_communicator& group, const command_line& own) {
  struct verdict {
    std::int32_t status = 0;
    std::int32_t length = 0;
  };
  const auto ranks = static_cast<std::size_t>(group.size());
  const verdict mine{own.status, static_cast<std::int32_t>(own.text.size())};
  std::vector<std::uint8_t> all(ranks * sizeof(verdict));
  group.all_gather({reinterpret_cast<const std::uint8_t*>(&mine), sizeof(mine)}, all);
  command_line result;
  std::size_t length = 0;
  dynamic_array<int> going_on;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    verdict each;
    std::memcpy(&each, all.data() + rank * sizeof(each), sizeof(each));
    if (each.status == command_line::go_on) {
      going_on.push_back(static_cast<int>(rank));
    } else if (!result.ends()) {
      result.status = each.status;
      result.rank = static_cast<int>(rank);
      length = static_cast<std::size_t>(each.length);
    }
  }
  if (!result.ends()) {
    return own;
  }
  result.text = own.text;
  result.text.resize(length);
  group.broadcast(std::as_writable_bytes(std::span{result.text}), result.rank);
  if (!going_on.empty()) {
    append_text(result.text, {result.text.ends_with('\n') ? "" : "\n", "Rank ", result.rank,
                              " ends because of its command line, and with it all ranks; ", ranks_text(going_on),
                              " could have gone on.\n"});
  }
  constexpr int wrong_command_line = 2;
  result.status = own.ends() ? own.status : wrong_command_line;
  return result;
}

/// The same for a communicator that has a type.
template <class Communicator>
[[nodiscard]] command_line agree(Communicator& communicator, const command_line& own) {
  static_assert(explain_communicator<Communicator>());
  any_communicator_of<Communicator> group{communicator};
  return agree(static_cast<any_communicator&>(group), own);
}

}  // namespace gradus::comm
