// SPDX-License-Identifier: BSL-1.0
//
// Runs this program in processes of its own.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "sweep.hpp"

extern char** environ;

namespace driver {

namespace {

/// A folder that is gone with this object.
class temporary_folder {
 public:
  temporary_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "gradus_bench.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error{"cannot make the folder '" + name + "'"};
    }
    path_ = name;
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// As a shell reads it.
std::string quoted(const std::string& word) {
  constexpr const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/#@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos && word[0] != '#') {
    return word;
  }
  std::string text = "'";
  for (const char each : word) {
    text += each == '\'' ? std::string{"'\\''"} : std::string(1, each);
  }
  return text + "'";
}

/// Runs a program and waits. Its output and messages go into one file. Returns its exit status.
int run(const std::vector<std::string>& words, const std::string& output) {
  std::vector<char*> pointers;
  for (const std::string& word : words) {
    pointers.push_back(const_cast<char*>(word.c_str()));
  }
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int failure = posix_spawnp(&child, pointers[0], &files, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (failure != 0) {
    throw std::runtime_error{"cannot start '" + words[0] + "': " + std::string{strerror(failure)}};
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) {
      throw std::runtime_error{"cannot wait for '" + words[0] + "': " + std::string{strerror(errno)}};
    }
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace

std::vector<std::string> mpiexec_words(int ranks, int nodes) {
  const char* const named = std::getenv("MPIEXEC");
  std::vector<std::string> words{named != nullptr ? named : "mpiexec", "-n", std::to_string(ranks)};
  if (nodes > 1) {  // MPICH's and Intel MPI's word, or Open MPI's
    const temporary_folder folder;
    run({words[0], "--version"}, folder.file("version"));
    std::ostringstream said;
    said << std::ifstream{folder.file("version")}.rdbuf();
    const bool open_mpi =
        said.str().find("Open MPI") != std::string::npos || said.str().find("OpenRTE") != std::string::npos;
    words.insert(words.end(), {open_mpi ? "-npernode" : "-ppn", std::to_string(ranks / nodes)});
  }
  return words;
}

runner::runner(const settings& chosen, int argc, char** argv)
    : launcher_{chosen.launcher}, nodes_{chosen.nodes}, repeats_{chosen.repeats} {
  std::error_code failure;
  program_ = std::filesystem::read_symlink("/proc/self/exe", failure).string();
  if (failure) {
    program_ = argv[0];
  }
  // The measured program gets this one's options, but for those of the sweep and of its results.
  constexpr const char* own[] = {"--ranks",      "--launcher",        "--csv",       "--svg", "--json", "--nodes",
                                 "--processors", "--effective-batch", "--trace-file"};
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "scale" || name == "tune") {
      continue;
    }
    const std::size_t equals = name.find('=');
    name = name.substr(0, equals);
    std::replace(name.begin(), name.end(), '_', '-');
    std::vector<std::string>& kept = name == "--data-dir" || name == "--data-name" ? input_options_ : options_;
    if (std::find(std::begin(own), std::end(own), name) == std::end(own)) {
      kept.emplace_back(argv[i]);
      if (&kept == &input_options_ && equals == std::string::npos && i + 1 < argc) {
        kept.emplace_back(argv[++i]);
      }
    } else if (equals == std::string::npos) {
      ++i;  // its value
    }
  }
}

result runner::measure(int ranks, const std::vector<std::string>& options, bool synthetic) const {
  const temporary_folder folder;
  std::vector<std::string> words;
  if (launcher_ == "mpiexec") {
    words = mpiexec_words(ranks, nodes_);
    words.push_back(program_);
  } else {
    words = {program_, "--ranks", std::to_string(ranks)};
  }
  words.insert(words.end(), options_.begin(), options_.end());
  if (!synthetic) {
    words.insert(words.end(), input_options_.begin(), input_options_.end());
  }
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"--json", folder.file("result.json")});
  if (const int status = run(words, folder.file("output")); status != 0) {
    std::ostringstream said;
    said << std::ifstream{folder.file("output")}.rdbuf();
    throw std::runtime_error{"the measurement on " + std::to_string(ranks) + " ranks ended with status " +
                             std::to_string(status) + ":\n" + said.str()};
  }
  return read_json(folder.file("result.json"));
}

input_comparison runner::compare_input(int ranks, std::vector<std::string> options) const {
  options.insert(options.end(), {"--repeats", "1"});
  std::vector<double> real;
  std::vector<double> steps;
  std::vector<double> noise;
  for (int round = 0; round < std::max(2, repeats_); ++round) {
    for (const bool synthetic : {round % 2 != 0, round % 2 == 0}) {
      const result found = measure(ranks, options, synthetic);
      (synthetic ? noise : real).push_back(found.images_per_second);
      if (!synthetic) {
        steps.push_back(found.step.median);
      }
    }
  }
  return {.real = statistics_of(real).median,
          .synthetic = statistics_of(noise).median,
          .step_ms = 1e3 * statistics_of(steps).median};
}

std::string runner::options_text() const {
  std::string text;
  for (const auto* list : {&options_, &input_options_}) {
    for (const std::string& each : *list) {
      text += ' ' + quoted(each);
    }
  }
  return text;
}

void write_text(const char* option, const std::string& path, const std::string& text) {
  std::ofstream file{path};
  file << text;
  if (!file.flush()) {
    throw std::invalid_argument{std::string{option} + ": cannot write '" + path + "'"};
  }
}

}  // namespace driver
