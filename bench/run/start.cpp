// SPDX-License-Identifier: BSL-1.0
//
// Prepares what starts a job: asks the machine, mpiexec and Slurm what they are.
#include "start.hpp"

#include <fcntl.h>     // O_CLOEXEC
#include <spawn.h>     // posix_spawnp
#include <sys/mman.h>  // memfd_create
#include <sys/wait.h>  // waitpid
#include <unistd.h>    // close, execvp, gethostname, lseek, pipe2, read, write

#include <algorithm>     // std::max, std::none_of
#include <cerrno>        // errno
#include <cstdio>        // std::fprintf, std::fputs
#include <cstdlib>       // std::getenv
#include <cstring>       // std::strerror
#include <filesystem>    // std::filesystem
#include <fstream>       // std::ifstream
#include <iterator>      // std::istreambuf_iterator
#include <stdexcept>     // std::invalid_argument, std::runtime_error
#include <system_error>  // std::error_code
#include <utility>       // std::move

#include "gradus/core/text.hpp"
#include "gradus/device/binding.hpp"
#include "processes.hpp"
#include "slurm.hpp"
#include "supervise.hpp"

extern char** environ;

namespace supervisor {

namespace {

std::vector<char*> pointers_to(word_list& command) {
  std::vector<char*> pointers;
  for (std::string& each : command) {
    pointers.push_back(each.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

struct captured {
  int status = 127;         ///< of its exit; 127 if it cannot be started
  std::string output = {};  ///< what it has written to standard output
};

/// Runs a command to its end.
captured capture(word_list command, const std::string& input = {}) {
  captured result;
  const descriptor given{::memfd_create("gradus_run", MFD_CLOEXEC)};
  int ends[2];
  if (!given.open() || ::pipe2(ends, O_CLOEXEC) != 0) {
    throw std::runtime_error{gradus::join({"cannot start ", command.front(), ": ", std::strerror(errno)})};
  }
  descriptor from{ends[0]};
  descriptor to{ends[1]};
  if (::write(given.get(), input.data(), input.size()) != static_cast<ssize_t>(input.size()) ||
      ::lseek(given.get(), 0, SEEK_SET) != 0) {
    throw std::runtime_error{gradus::join({"cannot start ", command.front(), ": ", std::strerror(errno)})};
  }
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, given.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, to.get(), STDOUT_FILENO);
  pid_t process = -1;
  const int failed =
      ::posix_spawnp(&process, command.front().c_str(), &actions, nullptr, pointers_to(command).data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  to.close();
  if (failed != 0) {
    return result;
  }
  char buffer[4096];
  for (ssize_t length = 0; (length = ::read(from.get(), buffer, sizeof(buffer))) != 0;) {
    if (length > 0) {
      result.output.append(buffer, static_cast<std::size_t>(length));
    } else if (errno != EINTR) {
      break;
    }
  }
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::string own_path() {
  std::error_code failed;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", failed);
  return failed ? "gradus_run" : path.string();
}

/// The file of a program, as a shell finds it; empty if there is none.
std::filesystem::path file_of(const std::string& program) {
  std::error_code failed;
  if (program.find('/') != std::string::npos) {
    return std::filesystem::is_regular_file(program, failed) ? std::filesystem::path{program} : std::filesystem::path{};
  }
  const char* const list = std::getenv("PATH");
  std::string_view rest = list == nullptr ? "/usr/bin:/bin" : list;
  while (true) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    const std::filesystem::path file = std::filesystem::path{folder} / program;
    if (std::filesystem::is_regular_file(file, failed)) {
      return file;
    }
    if (folder.size() == rest.size()) {
      return {};
    }
    rest.remove_prefix(folder.size() + 1);
  }
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}};
}

void note(const std::string& text) {
  std::fprintf(stderr, "gradus_run: %s\n", gradus::printable(text).c_str());
}

/// Whether the ranks fit this machine.
void require_processors(const launch& how) {
  const int processors = gradus::available_processors();
  const int threads = std::max(1, how.threads);
  if (how.bind == "core" && how.ranks > processors / threads) {
    throw std::invalid_argument{
        gradus::join({"--bind core: expected at most the ", processors,
                      " processors of this machine for --ranks x --threads, got ", how.ranks, " x ", threads})};
  }
  if (how.ranks > processors) {
    note(gradus::join(
        {how.ranks, " ranks share ", processors, processors == 1 ? " processor" : " processors", ": they take turns"}));
  }
}

int start_by_mpiexec(settings chosen) {
  launch& how = chosen.how;
  if (how.by == launching::mpiexec) {
    require_processors(how);
  }
  const bool login = !how.login.empty();
  word_list ask{how.mpiexec, "--version"};
  if (login) {
    how.folder = std::filesystem::current_path().string();
    ask = login_command(how, shell_line(ask));
  }
  const captured version = capture(ask);
  if (version.status != 0) {
    throw std::runtime_error{gradus::join({"'", shell_line(ask), "' ends with ", version.status,
                                           version.status == 127 ? ": there is no such program" : "",
                                           login && version.status == 255 ? ": ssh does not reach it" : "",
                                           login ? "" : "; --mpiexec-program names another one"})};
  }
  word_list command = mpiexec_command(how, family_of(version.output), chosen.command);
  if (login) {
    command = login_command(how, remote_script(how, command));
    chosen.signals_by_input = true;
  }
  chosen.command = std::move(command);
  chosen.allowed.signals_hide_status = how.by == launching::hosts;
  if (how.print) {
    std::printf("%s\n", shell_line(command_on(chosen.command, how.ranks)).c_str());
    return 0;
  }
  return supervise(chosen);
}

int start_in_slurm(settings chosen) {
  launch& how = chosen.how;
  slurm_job& job = how.slurm;
  std::vector<node_kind> kinds;
  if (job.processors_of_node == 0) {
    const captured nodes = capture(nodes_command(job));
    if (nodes.status == 0) {
      kinds = read_nodes(nodes.output);
      if (kinds.empty()) {
        throw std::invalid_argument{gradus::join(
            {"--slurm: expected nodes, got none", job.partition.empty() ? "" : " in partition ", job.partition})};
      }
    } else if (!how.print) {
      throw std::runtime_error{
          gradus::join({"sinfo ends with ", nodes.status,
                        nodes.status == 127 ? ": there is no Slurm here; --print writes the script without it" : ""})};
    } else {
      note("not checked against nodes, because sinfo does not answer; --processors-of-node gives their processors");
    }
  }
  fit_to_nodes(how, kinds);
  const std::filesystem::path file = file_of(chosen.command.front());
  if (job.mpi.empty()) {
    job.mpi = mpi_of_program(file.empty() ? std::string{} : content_of(file));
  }
  if (job.name.empty()) {
    job.name = std::filesystem::path{chosen.command.front()}.filename().string();
    if (!is_address(job.name, false)) {
      job.name = "gradus_run";
    }
  }
  word_list program = with_number(chosen.command, "threads", job.threads);
  program = with_number(program, "nodes", job.nodes);
  word_list supervised{own_path(), gradus::join({"--ranks=", how.ranks})};
  supervised.insert(supervised.end(), chosen.passed_on.begin(), chosen.passed_on.end());
  supervised.emplace_back("--");
  const word_list ranks = srun_command(how, program);
  supervised.insert(supervised.end(), ranks.begin(), ranks.end());
  const std::string script = slurm_script(how, supervised);
  if (how.print) {
    std::fputs(script.c_str(), stdout);
    return 0;
  }
  const captured queued = capture({"sbatch"}, script);
  if (queued.status != 0) {
    throw std::runtime_error{gradus::join({"sbatch ends with ", queued.status})};
  }
  std::fputs(queued.output.c_str(), stdout);
  return 0;
}

}  // namespace

int start(settings chosen) {
  launch& how = chosen.how;
  if (how.by == launching::none) {
    return supervise(chosen);
  }
  if (how.servers > 0) {
    chosen.command = with_number(chosen.command, "servers", how.servers);
  }
  if (!how.bind.empty()) {
    how.own_path = own_path();
  }
  if (!chosen.checkpoints.empty() &&
      std::none_of(chosen.command.begin(), chosen.command.end(),
                   [](const std::string& word) { return word.find("resume") != std::string::npos; })) {
    note("--checkpoints is given, and no word of the command is like --resume: does the program go on from them?");
  }
  if (how.by == launching::slurm) {
    return start_in_slurm(std::move(chosen));
  }
  if (how.threads > 0) {
    chosen.command = with_number(chosen.command, "threads", how.threads);
  }
  return start_by_mpiexec(std::move(chosen));
}

int announce_and_become(const settings& chosen) {
  const char* rank = "?";
  for (const char* const name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    if (const char* const text = std::getenv(name)) {
      rank = text;
      break;
    }
  }
  char machine[256] = "?";
  ::gethostname(machine, sizeof(machine) - 1);
  note(gradus::join({"rank ", rank, " on ", machine, ": ", gradus::describe_binding()}));
  word_list command = chosen.command;
  const std::vector<char*> pointers = pointers_to(command);
  ::execvp(pointers[0], pointers.data());
  const int failed = errno;
  note(gradus::join({"'", command.front(), "' cannot be started: ", std::strerror(failed)}));
  return failed == ENOENT ? 127 : 126;
}

}  // namespace supervisor
