// SPDX-License-Identifier: BSL-1.0
//
// How the ranks of a job are started: by mpiexec on this machine, by mpiexec over ssh on several, or by Slurm. Makes
// words and scripts only: starts nothing.
#pragma once

#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "words.hpp"

namespace supervisor {

/// What starts ranks.
enum class launching : unsigned char {
  none,     ///< the command does it itself
  mpiexec,  ///< mpiexec, on this machine
  hosts,    ///< mpiexec, on several machines by ssh
  slurm     ///< srun, in a job that sbatch queues
};

/// MPI libraries, by the options of their launchers.
enum class mpi_family : unsigned char { mpich, open_mpi };

/// The largest number of ranks that an option takes.
inline constexpr int most_ranks = 1 << 20;

/// A machine and its number of ranks.
struct host {
  std::string address;
  int ranks = 1;
};

/// The options of a job in Slurm.
struct slurm_job {
  int nodes = 0;
  int ranks_per_node = 1;
  int threads = 0;             ///< processors of a rank; 0: those of a node divided by its ranks
  int processors_of_node = 0;  ///< 0: as Slurm says
  std::string time = {};       ///< limit of one start, in Slurm's form; empty: the partition's
  int signal_before = 120;     ///< seconds before that limit
  int requeues = 100;          ///< by the time limit
  std::string name = {};
  std::string partition = {};
  std::string account = {};
  std::string output = {};              ///< file; empty: Slurm's
  std::string mpi = {};                 ///< of srun --mpi; empty: by the program
  std::vector<std::string> lines = {};  ///< more options of sbatch
};

/// How a job is started.
struct launch {
  launching by = launching::none;
  int ranks = 0;                 ///< in all
  int servers = 0;               ///< of these ranks, replaces {servers}; 0: none
  int threads = 0;               ///< processors of a rank with `bind` core; 0: one
  std::string bind = {};         ///< none, core, socket or numa; empty: as the launcher does
  std::vector<host> hosts = {};  ///< by the addresses that they have for each other
  std::string login = {};        ///< by which address this machine reaches the first host; empty: mpiexec runs here
  std::string ssh_config = {};   ///< file; empty: that of the user
  std::string mpiexec = "mpiexec";
  std::string own_path = {};  ///< of gradus_run, with which ranks say how they are bound; empty: they do not
  std::string folder = {};    ///< where a job runs after a login
  double grace = 60;          ///< seconds that a job has to end when the connection has broken
  slurm_job slurm = {};
  bool print = false;  ///< print the script or the line, start nothing
};

/// Reads "10.0.0.1:4,10.0.0.2": machines with 4 and 1 ranks.
/// @throws std::invalid_argument
[[nodiscard]] std::vector<host> read_hosts(std::string_view text);

/// An address that ssh cannot take for an option: letters, digits, dots, dashes, underscores, with `users` also USER@.
[[nodiscard]] bool is_address(std::string_view text, bool users) noexcept;

/// By the text of mpiexec --version.
[[nodiscard]] mpi_family family_of(std::string_view version) noexcept;

/// The words that start `program` on {ranks} ranks by mpiexec, {ranks} not yet replaced.
[[nodiscard]] word_list mpiexec_command(const launch& how, mpi_family family, const word_list& program);

/// The words of ssh with which this machine asks the first host for something.
[[nodiscard]] word_list login_command(const launch& how, const std::string& shell_text);

/// What the first host's shell does: runs the command, sends it each signal whose number it reads, and
/// SIGTERM when the connection has ended.
[[nodiscard]] std::string remote_script(const launch& how, const word_list& command);

/// The words with which a rank says how it is bound before it begins.
[[nodiscard]] word_list announced(const launch& how, const word_list& program);

}  // namespace supervisor
