// SPDX-License-Identifier: BSL-1.0
//
// Launchers by the variables that they set. The environments are those that the launchers were seen to give.
#include "gradus/comm/launcher.hpp"

#include <boost/test/unit_test.hpp>

#include <map>
#include <string>

namespace {

namespace comm = gradus::comm;
using comm::launcher_kind;
using variables = std::map<std::string, std::string>;

comm::launcher launcher_in(const variables& all) {
  return comm::detail::find_launcher([&](const char* name) -> const char* {
    const auto found = all.find(name);
    return found == all.end() ? nullptr : found->second.c_str();
  });
}

void require_launcher(const variables& all, launcher_kind kind, int processes, const std::string& variable) {
  const comm::launcher found = launcher_in(all);
  BOOST_TEST((found.kind == kind));
  BOOST_TEST(found.processes == processes);
  BOOST_TEST(found.variable == variable);
}

variables joined(variables left, const variables& right) {
  left.insert(right.begin(), right.end());
  return left;
}

// What sbatch gives to its script, and srun to a task.
const variables script{{"SLURM_JOB_ID", "3"},
                       {"SLURM_NTASKS", "2"},
                       {"SLURM_NPROCS", "2"},
                       {"SLURM_PROCID", "0"},
                       {"SLURM_TASKS_PER_NODE", "2"}};
const variables task = joined(script, {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}});

BOOST_AUTO_TEST_SUITE(launcher)

BOOST_AUTO_TEST_CASE(each_launcher_is_known_by_its_variables) {
  require_launcher({}, launcher_kind::none, 1, "");
  require_launcher({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}}, launcher_kind::hydra, 4,
                   "PMI_SIZE");
  require_launcher({{"MPI_LOCALNRANKS", "3"}}, launcher_kind::hydra, 3, "MPI_LOCALNRANKS");
  require_launcher({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}, launcher_kind::pmi, 4, "PMI_SIZE");
  require_launcher({{"OMPI_COMM_WORLD_SIZE", "8"}, {"PMIX_RANK", "1"}}, launcher_kind::open_mpi, 8,
                   "OMPI_COMM_WORLD_SIZE");
  require_launcher({{"MV2_COMM_WORLD_SIZE", "8"}}, launcher_kind::pmi, 8, "MV2_COMM_WORLD_SIZE");
  require_launcher(task, launcher_kind::slurm, 2, "SLURM_STEP_NUM_TASKS");
  require_launcher(joined(task, {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}), launcher_kind::slurm, 2, "PMI_SIZE");
  require_launcher(joined(task, {{"PMIX_RANK", "0"}}), launcher_kind::slurm, 2, "SLURM_STEP_NUM_TASKS");
  require_launcher({{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "a"}, {"WORLD_SIZE", "2"}},
                   launcher_kind::torchrun, 2, "WORLD_SIZE");
}

BOOST_AUTO_TEST_CASE(a_serial_program_in_a_job_was_started_by_itself) {
  require_launcher(script, launcher_kind::none, 1, "");
  require_launcher({{"WORLD_SIZE", "8"}, {"MASTER_ADDR", "a"}}, launcher_kind::none, 1, "");
}

BOOST_AUTO_TEST_CASE(the_inner_one_of_two_launchers_counts) {
  // mpiexec -n 1 on a job of two nodes: its own daemons are two tasks of Slurm.
  require_launcher(joined(task, {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"MPI_LOCALNRANKS", "1"}}), launcher_kind::hydra,
                   1, "PMI_SIZE");
  require_launcher(joined(task, {{"OMPI_COMM_WORLD_SIZE", "1"}}), launcher_kind::open_mpi, 1, "OMPI_COMM_WORLD_SIZE");
}

BOOST_AUTO_TEST_CASE(other_texts_than_numbers_do_not_count) {
  for (const char* const text : {"", "0", "-2", "2x", "two", "99999999999999999999"}) {
    require_launcher({{"PMI_SIZE", text}, {"OMPI_COMM_WORLD_SIZE", text}}, launcher_kind::none, 1, "");
  }
}

BOOST_AUTO_TEST_CASE(the_cure_names_the_way_of_the_MPI_library) {
  const auto cure = [](launcher_kind kind, const char* library) {
    return comm::detail::how_to_launch({kind, 2, "X"}, library);
  };
  const auto says = [](const std::string& text, const char* words) { return text.find(words) != std::string::npos; };
  BOOST_TEST(says(cure(launcher_kind::slurm, "MPICH Version:\t4.0.2\n"), "MPICH: start it by srun --mpi=pmi2,"));
  BOOST_TEST(says(cure(launcher_kind::slurm, "Open MPI v4.1.4, package"), "Open MPI: start it by srun --mpi=pmix,"));
  BOOST_TEST(says(cure(launcher_kind::slurm, "Intel(R) MPI Library 2021.8"), "Intel MPI: start it by srun --mpi=pmi2"));
  BOOST_TEST(says(cure(launcher_kind::slurm, "MPI VERSION    : CRAY MPICH version 8.1"), "srun --mpi=cray_shasta"));
  BOOST_TEST(says(cure(launcher_kind::hydra, "Open MPI v4.1.4"), "the mpiexec of Open MPI (Debian: mpiexec.openmpi)"));
  BOOST_TEST(says(cure(launcher_kind::open_mpi, "MPICH Version:\t4.0.2"), "of MPICH (Debian: mpiexec.mpich)"));
  BOOST_TEST(says(cure(launcher_kind::torchrun, "MPICH Version:\t4.0.2"), "start it by mpiexec -n 2"));
  BOOST_TEST(says(cure(launcher_kind::slurm, ""), "build it with gradus::mpi"));
  BOOST_TEST(says(cure(launcher_kind::slurm, "another one"), "its MPI library"));
  for (const char* const library : {"", "MPICH Version", "Open MPI", "another one"}) {
    BOOST_TEST(says(cure(launcher_kind::pmi, library), "GRADUS_ACCEPT_SINGLETONS=1"));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
