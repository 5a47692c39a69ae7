// SPDX-License-Identifier: BSL-1.0
//
// Runs this program in processes of its own.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "input.hpp"
#include "sweep.hpp"

extern char** environ;

namespace driver {

namespace {

/// A folder that is gone with this object.
class temporary_folder {
 public:
  temporary_folder() {
    const char* const chosen = std::getenv("TMPDIR");
    std::string name = std::string{chosen == nullptr || *chosen == '\0' ? "/tmp" : chosen} + "/gradus_bench.XXXXXX";
    if (mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error{"cannot make a folder '" + name + "': " + strerror(errno) +
                               "; TMPDIR says where temporary files go"};
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

/// The words of a text, as a shell splits it: at blanks that are neither quoted nor behind a backslash. Nothing else
/// that a shell knows.
std::vector<std::string> words_of_shell(const char* text) {
  std::vector<std::string> words;
  bool inside = false;  // of a word
  char quote = '\0';
  for (const char* at = text; *at != '\0'; ++at) {
    if (quote == '\0' && std::isspace(static_cast<unsigned char>(*at)) != 0) {
      inside = false;
      continue;
    }
    if (!inside) {
      words.emplace_back();
      inside = true;
    }
    if (*at == quote) {
      quote = '\0';
    } else if (quote == '\0' && (*at == '\'' || *at == '"')) {
      quote = *at;
    } else if (*at == '\\' && quote != '\'' && at[1] != '\0') {
      words.back() += *++at;
    } else {
      words.back() += *at;
    }
  }
  return words;
}

/// Runs a program, with a process group of its own, and waits. Its output and messages go into one file. Returns its
/// status as waitpid has it.
int run(const std::vector<std::string>& words, const std::string& output, const program::held_signals& signals) {
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
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &signals.of_children());
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  pid_t child = 0;
  const int failure = posix_spawnp(&child, pointers[0], &files, &attributes, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (failure != 0) {
    throw std::runtime_error{"cannot start '" + words[0] + "': " + std::string{strerror(failure)}};
  }
  return signals.wait_for(child);
}

/// "status 1", "signal 9 (Killed)"
std::string words_of(int status) {
  return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")"
                             : "status " + std::to_string(WEXITSTATUS(status));
}

std::string content_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream{path}.rdbuf();
  return text.str();
}

}  // namespace

std::vector<std::string> mpiexec_words(int ranks, int nodes) {
  const char* const named = std::getenv("MPIEXEC");
  std::vector<std::string> words = words_of_shell(named != nullptr ? named : "mpiexec");
  if (words.empty()) {
    words.emplace_back("mpiexec");
  }
  const std::string launcher = words[0];
  words.insert(words.end(), {"-n", std::to_string(ranks)});
  if (nodes > 1) {  // MPICH's and Intel MPI's word, or Open MPI's
    const temporary_folder folder;
    run({launcher, "--version"}, folder.file("version"), program::held_signals{});
    const std::string said = content_of(folder.file("version"));
    const bool open_mpi = said.find("Open MPI") != std::string::npos || said.find("OpenRTE") != std::string::npos;
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
  if (const int status = run(words, folder.file("output"), signals_); status != 0) {
    throw std::runtime_error{"the measurement on " + std::to_string(ranks) + " ranks ended with " + words_of(status) +
                             ":\n" + content_of(folder.file("output"))};
  }
  return read_json(folder.file("result.json"));
}

input_comparison runner::compare_input(int ranks, std::vector<std::string> options) const {
  options.insert(options.end(), {"--repeats", "1"});
  std::vector<double> real;
  std::vector<double> steps;
  std::vector<double> noise;
  std::optional<pipeline_properties> pipeline;
  for (int round = 0; round < std::max(2, repeats_); ++round) {
    for (const bool synthetic : {round % 2 != 0, round % 2 == 0}) {
      const result found = measure(ranks, options, synthetic);
      (synthetic ? noise : real).push_back(found.images_per_second);
      if (!synthetic) {
        steps.push_back(found.step.median);
        pipeline = found.pipeline;
      }
    }
  }
  return {.real = statistics_of(real).median,
          .synthetic = statistics_of(noise).median,
          .step_ms = 1e3 * statistics_of(steps).median,
          .pipeline = std::move(pipeline)};
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

sweep_files::sweep_files(const settings& chosen)
    : csv_{open_output("--csv", chosen.csv, chosen)},
      json_{open_output("--json", chosen.json, chosen)},
      svg_{open_output("--svg", chosen.svg, chosen)} {}

void sweep_files::write(const std::string& csv, const std::string& json, const std::string& svg) {
  const auto write_one = [this](program::output_file& file, const std::string& text) {
    if (file) {
      const std::string path = file.path();
      file.write(text);
      saved_ += (saved_.empty() ? "written: '" : ", '") + path + '\'';
    }
  };
  write_one(csv_, csv);
  write_one(json_, json);
  write_one(svg_, svg);
}

std::string sweep_files::saved() const {
  return saved_.empty() ? "no file was asked for" : saved_;
}

}  // namespace driver
