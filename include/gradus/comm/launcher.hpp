// SPDX-License-Identifier: BSL-1.0
//
// Launchers of jobs, as the environment of a process shows them: mpiexec, Slurm's srun, torchrun.
#pragma once

#include <algorithm>    // std::max
#include <cstddef>      // std::size_t
#include <cstdlib>      // std::getenv, std::strtol
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm {

/// The kinds of launchers whose variables the library knows.
enum class launcher_kind : unsigned char {
  none,      ///< a program that was started by itself
  hydra,     ///< mpiexec of MPICH, MVAPICH or Intel MPI
  pmi,       ///< another launcher with MPICH's process management interface
  open_mpi,  ///< mpiexec of Open MPI
  slurm,     ///< srun
  torchrun   ///< torchrun of PyTorch
};

/// What started a process.
struct launcher {
  launcher_kind kind = launcher_kind::none;  ///< which one
  int processes = 1;                         ///< of the job
  const char* variable = "";                 ///< of the environment, that has this number
};

namespace detail {

/// The positive number that a variable has, 0 if it has none.
template <class Environment>
[[nodiscard]] int number_in(const Environment& environment, const char* variable) {
  const char* const text = environment(variable);
  char* end = nullptr;
  const long number = text == nullptr ? 0 : std::strtol(text, &end, 10);
  return number > 0 && number <= (1 << 24) && *end == '\0' ? static_cast<int>(number) : 0;
}

/// Finds the launcher by variables of the environment.
/// @param environment  called with the name of a variable, returns its text or a null pointer, as std::getenv
template <class Environment>
[[nodiscard]] launcher find_launcher(const Environment& environment) {
  const auto has = [&](const char* variable) { return environment(variable) != nullptr; };
  // Slurm describes a job also to what runs in its script. Only what srun starts belongs to a step.
  const int tasks = has("SLURM_STEP_ID") && has("SLURM_PROCID") ? number_in(environment, "SLURM_STEP_NUM_TASKS") : 0;
  const bool hydra = has("MPI_LOCALNRANKS");
  // The variables of MPI's own launchers come first: within a step of Slurm they start one task for each node.
  struct candidate {
    launcher_kind kind;
    const char* variable;
  };
  const launcher_kind pmi = hydra ? launcher_kind::hydra : tasks > 0 ? launcher_kind::slurm : launcher_kind::pmi;
  launcher found;
  for (const auto [kind, variable] :
       {candidate{launcher_kind::open_mpi, "OMPI_COMM_WORLD_SIZE"}, candidate{pmi, "PMI_SIZE"},
        candidate{launcher_kind::pmi, "MV2_COMM_WORLD_SIZE"}}) {
    const int processes = number_in(environment, variable);
    if (processes == 1) {
      return {kind, 1, variable};  // one launcher within another: the inner one started one process
    }
    if (processes > found.processes) {
      found = {kind, processes, variable};
    }
  }
  if (found.kind != launcher_kind::none) {
    return found;
  }
  if (tasks > 0) {
    return {launcher_kind::slurm, tasks, "SLURM_STEP_NUM_TASKS"};
  }
  if (has("RANK") && has("LOCAL_RANK") && has("MASTER_ADDR")) {
    if (const int processes = number_in(environment, "WORLD_SIZE"); processes > 0) {
      return {launcher_kind::torchrun, processes, "WORLD_SIZE"};
    }
  }
  if (hydra) {
    return {launcher_kind::hydra, std::max(1, number_in(environment, "MPI_LOCALNRANKS")), "MPI_LOCALNRANKS"};
  }
  return {};
}

/// The words after "expected".
[[nodiscard]] inline std::string expected_processes(const launcher& started) {
  constexpr const char* names[] = {
      "", "mpiexec with Hydra", "a launcher with PMI", "mpiexec of Open MPI", "srun", "torchrun"};
  return join({started.processes, " processes in MPI_COMM_WORLD, which ", names[static_cast<std::size_t>(started.kind)],
               " has started (", started.variable, "=", started.processes, ")"});
}

/// How to start a program so that its MPI library finds the other processes.
/// @param library  the text of MPI_Get_library_version; empty for a program without MPI
[[nodiscard]] std::string how_to_launch(const launcher& started, std::string_view library);

}  // namespace detail

/// What started this process, by the variables of its environment. A script of a Slurm job is not a step of srun: a
/// program in it was started by itself.
[[nodiscard]] inline launcher find_launcher() {
  return detail::find_launcher([](const char* variable) { return std::getenv(variable); });
}

/// True if the environment says that processes of one job may work by themselves: GRADUS_ACCEPT_SINGLETONS has another
/// value than 0.
[[nodiscard]] inline bool accepts_singletons() noexcept {
  const char* const text = std::getenv("GRADUS_ACCEPT_SINGLETONS");
  return text != nullptr && *text != '\0' && std::string_view{text} != "0";
}

/// For a program that is built without MPI: refuses to be one process of several, since each would work by itself.
/// @param program  its name, for the message
/// @throws configuration_error if a launcher has started several processes, with what to do instead
void require_started_alone(std::string_view program, error_location where = error_location::current());

}  // namespace gradus::comm

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm::detail {

GRADUS_INLINE std::string how_to_launch(const launcher& started, std::string_view library) {
  const bool open_mpi = library.find("Open MPI") != std::string_view::npos;
  const bool cray = library.find("CRAY MPICH") != std::string_view::npos;
  const char* const name = open_mpi                                                 ? "Open MPI"
                           : cray                                                   ? "Cray MPICH"
                           : library.find("Intel(R) MPI") != std::string_view::npos ? "Intel MPI"
                           : library.find("MVAPICH") != std::string_view::npos      ? "MVAPICH"
                           : library.find("MPICH") != std::string_view::npos        ? "MPICH"
                                                                                    : "its MPI library";
  std::string text;
  if (library.empty()) {
    text = "build it with gradus::mpi";
  } else if (started.kind == launcher_kind::slurm) {
    text = join({"the program has ", name, ": start it by srun --mpi=",
                 open_mpi ? "pmix"
                 : cray   ? "cray_shasta"
                          : "pmi2",
                 ", or by mpiexec of ", name, "; srun --mpi=list names what this Slurm has"});
  } else if (started.kind == launcher_kind::torchrun) {
    text = join({"torchrun starts no MPI, and the program has ", name, ": start it by mpiexec -n ", started.processes});
  } else {
    text = join({"the program has ", name, ": start it by the mpiexec of ", name,
                 open_mpi                                          ? " (Debian: mpiexec.openmpi)"
                 : library.find("MPICH") != std::string_view::npos ? " (Debian: mpiexec.mpich)"
                                                                   : ""});
  }
  return join({text, ". If each process is meant to work by itself, set GRADUS_ACCEPT_SINGLETONS=1"});
}

}  // namespace gradus::comm::detail

namespace gradus::comm {

GRADUS_INLINE void require_started_alone(std::string_view program, error_location where) {
  const launcher started = find_launcher();
  if (started.processes > 1 && !accepts_singletons()) {
    raise<configuration_error>(program, detail::expected_processes(started), "a program without MPI",
                               detail::how_to_launch(started, {}), where);
  }
}

}  // namespace gradus::comm
#endif
