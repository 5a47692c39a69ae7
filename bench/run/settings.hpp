// SPDX-License-Identifier: BSL-1.0
//
// The command line of gradus_run.
#pragma once

#include <string>  // std::string
#include <vector>  // std::vector

#include "decision.hpp"
#include "launch.hpp"

namespace supervisor {

/// What the user asks for. Times are in seconds; 0 stands for none.
struct settings {
  limits allowed = {};
  std::vector<std::string> checkpoints = {};  ///< folders
  double time_limit = 0;                      ///< of all starts together
  double silent_for = 0;                      ///< a job of which nothing comes for longer is killed
  double grace = 60;                          ///< after a signal, before SIGKILL
  std::vector<std::string> command = {};      ///< with {ranks}
  launch how = {};                            ///< who starts the ranks of the command
  word_list passed_on = {};                   ///< the options of supervision, for gradus_run in a job's script
  bool signals_by_input = false;              ///< the job reads the numbers of signals
  bool announce = false;                      ///< only say how this process is bound, and become the command
};

/// Reads the command line.
/// @return the text of --help if it was asked for
/// @throws std::invalid_argument that says which option is wrong, what it expects and what came
[[nodiscard]] std::string read_settings(int argc, char** argv, settings& chosen);

/// The command with each {ranks} replaced.
[[nodiscard]] std::vector<std::string> command_on(const std::vector<std::string>& command, int ranks);

}  // namespace supervisor
