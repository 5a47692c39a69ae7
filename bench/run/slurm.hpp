// SPDX-License-Identifier: BSL-1.0
//
// A job in Slurm: its script, checked against the nodes that Slurm has. Makes texts only: starts nothing.
#pragma once

#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "launch.hpp"

namespace supervisor {

/// Nodes of one kind, as sinfo shows them.
struct node_kind {
  int nodes = 0;
  int processors = 0;  ///< of a node, as Slurm counts them
};

/// The words that ask Slurm for its nodes, for read_nodes.
[[nodiscard]] word_list nodes_command(const slurm_job& job);
/// Reads the output of nodes_command: lines of a number of nodes and the processors of each.
[[nodiscard]] std::vector<node_kind> read_nodes(std::string_view text);

/// Completes the number of threads, and checks the job against the nodes. Where `kinds` is empty, Slurm has not been
/// asked: what --processors-of-node says counts then.
/// @throws std::invalid_argument that says what the nodes have
void fit_to_nodes(launch& how, const std::vector<node_kind>& kinds);

/// The kind of srun --mpi by the MPI library of a program, from the names of libraries in its file.
[[nodiscard]] std::string mpi_of_program(std::string_view content);

/// The words with which a job's script starts its ranks, {ranks} not yet replaced.
[[nodiscard]] word_list srun_command(const launch& how, const word_list& program);

/// A script for sbatch: starts `supervised` in the background, gives it a signal before the time limit, and has the job
/// queued again if it then ends with the status of a job that has saved (75).
[[nodiscard]] std::string slurm_script(const launch& how, const word_list& supervised);

/// @throws std::invalid_argument if a value would end its line of the script, or is not in Slurm's form
void require_slurm_values(const slurm_job& job);

}  // namespace supervisor
