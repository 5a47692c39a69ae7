// SPDX-License-Identifier: BSL-1.0
//
// Command lines that differ between ranks: if one rank has to end, all ranks learn it and end.
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
#include "gradus/comm/launcher.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm {

/// True if the environment shows that a launcher (mpiexec, mpirun, srun or another one) started this process as one of
/// a job. Each process of a job has to initialize MPI even if it has no work, because the other processes wait for it
/// there. Where the launcher and MPI do not understand each other, mpi_environment says so.
[[nodiscard]] bool started_by_launcher() noexcept;

/// The result of parsing a program's command line.
struct command_line {
  /// The status of a command line with which the program continues.
  static constexpr int go_on = -1;

  int status = go_on;  ///< go_on, or the exit status of the program
  std::string text;    ///< the output if the program ends: its help (with status 0) or the error
  int rank = 0;        ///< the rank of this text

  /// True if the program ends.
  [[nodiscard]] bool ends() const noexcept { return status != go_on; }
};

/// Agrees on whether to continue: if one rank has to end, all do. All ranks call it before any other communication.
///
/// @code
///   comm::mpi_environment environment{argc, argv};  // initialized also for a command line that is refused
///   const comm::command_line all = environment.run([&](comm::mpi& world) { return comm::agree(world, own); });
///   if (all.ends()) {
///     if (all.rank == environment.rank()) { std::fputs(all.text.c_str(), all.status == 0 ? stdout : stderr); }
///     return all.status;
///   }
/// @endcode
///
/// @param own  the result of this rank
/// @return on all ranks the text of the lowest rank that ends, for that rank to print, with the status of this rank, or
/// 2 if this rank would have continued. If all ranks continue, a command line that continues.
/// @throws communication_error if a rank fails or does not call it in time
[[nodiscard]] command_line agree(link& group, const command_line& own);

/// The same for a communicator type.
[[nodiscard]] inline command_line agree(any_communicator communicator, const command_line& own) {
  return agree(communicator.link(), own);
}

}  // namespace gradus::comm

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm {

GRADUS_INLINE bool started_by_launcher() noexcept {
  for (const char* const name :
       {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID", "ALPS_APP_PE"}) {
    if (std::getenv(name) != nullptr) {
      return true;
    }
  }
  return find_launcher().processes > 1 && !accepts_singletons();
}

GRADUS_COLD GRADUS_INLINE command_line agree(link& group, const command_line& own) {
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

}  // namespace gradus::comm
#endif
