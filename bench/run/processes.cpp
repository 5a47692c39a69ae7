// SPDX-License-Identifier: BSL-1.0
//
// The processes of a job.
#include "processes.hpp"

#include <fcntl.h>      // open, pipe2
#include <sys/prctl.h>  // prctl
#include <sys/wait.h>   // waitpid
#include <unistd.h>     // dup2, execvp, fork, setsid

#include <array>         // std::array
#include <cerrno>        // errno
#include <charconv>      // std::from_chars
#include <cstdlib>       // EXIT_FAILURE
#include <cstring>       // std::strerror
#include <filesystem>    // std::filesystem::directory_iterator
#include <fstream>       // std::ifstream
#include <system_error>  // std::system_error
#include <thread>        // std::this_thread::sleep_for
#include <utility>       // std::exchange

#include "gradus/core/text.hpp"

namespace supervisor {

namespace {

constexpr std::chrono::milliseconds between_looks{10};

struct pipe_ends {
  descriptor read;
  descriptor write;
};

pipe_ends make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::system_error{errno, std::generic_category(), "cannot make a pipe"};
  }
  return {descriptor{ends[0]}, descriptor{ends[1]}};
}

/// In the new process. Returns errno if the command cannot be executed.
int become(std::vector<char*>& arguments, const sigset_t& signals, pid_t parent, int input, int output, int errors) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) {
    return ESRCH;  // it has died already
  }
  // Nothing to read: a second start would find a part of it only.
  if (input >= 0) {
    ::dup2(input, STDIN_FILENO);
  } else if (const int nothing = ::open("/dev/null", O_RDONLY); nothing >= 0) {
    ::dup2(nothing, STDIN_FILENO);
    ::close(nothing);
  }
  if (output >= 0) {
    ::dup2(output, STDOUT_FILENO);
    ::dup2(errors, STDERR_FILENO);
  }
  ::sigprocmask(SIG_SETMASK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::execvp(arguments[0], arguments.data());
  return errno;
}

/// Parent and whether it has ended, of /proc/N/stat.
struct process_state {
  pid_t parent = 0;
  bool ended = true;
};

process_state state_of(pid_t process) {
  std::ifstream file{gradus::join({"/proc/", process, "/stat"})};
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');  // the name may have any characters
  if (name_end == std::string::npos || name_end + 4 >= line.size()) {
    return {};
  }
  process_state state{.parent = 0, .ended = line[name_end + 2] == 'Z' || line[name_end + 2] == 'X'};
  std::from_chars(line.data() + name_end + 4, line.data() + line.size(), state.parent);
  return state;
}

/// The processes of the tree below `root`, without `others` and what is below them.
std::vector<pid_t> tree_below(pid_t root, const std::set<pid_t>& others) {
  struct entry {
    pid_t process;
    process_state state;
  };
  std::vector<entry> all;
  std::error_code failed;
  for (std::filesystem::directory_iterator at{"/proc", failed}, end; !failed && at != end; at.increment(failed)) {
    const std::string name = at->path().filename();
    pid_t process = 0;
    const auto [rest, bad] = std::from_chars(name.data(), name.data() + name.size(), process);
    if (bad == std::errc{} && rest == name.data() + name.size() && !others.contains(process)) {
      all.push_back({process, state_of(process)});
    }
  }
  std::set<pid_t> found{root};
  for (bool more = true; more;) {
    more = false;
    for (const entry& each : all) {
      more = (found.contains(each.state.parent) && found.insert(each.process).second) || more;
    }
  }
  std::vector<pid_t> living;
  for (const entry& each : all) {
    if (each.process != root && found.contains(each.process) && !each.state.ended) {
      living.push_back(each.process);
    }
  }
  return living;
}

}  // namespace

descriptor::descriptor(descriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}

descriptor& descriptor::operator=(descriptor&& other) noexcept {
  if (this != &other) {
    if (number_ >= 0) {
      ::close(number_);
    }
    number_ = std::exchange(other.number_, -1);
  }
  return *this;
}

descriptor::~descriptor() {
  if (number_ >= 0) {
    ::close(number_);
  }
}

started_job start_job(const std::vector<std::string>& command, const sigset_t& signals, bool piped, bool input) {
  std::vector<std::string> copies = command;
  std::vector<char*> arguments;
  for (std::string& each : copies) {
    arguments.push_back(each.data());
  }
  arguments.push_back(nullptr);
  pipe_ends output, errors, given;
  if (input) {
    given = make_pipe();
  }
  if (piped) {
    output = make_pipe();
    errors = make_pipe();
  }
  pipe_ends failure = make_pipe();  // execvp closes it
  const pid_t parent = ::getpid();
  const pid_t process = ::fork();
  if (process == 0) {
    const int number = become(arguments, signals, parent, given.read.get(), output.write.get(), errors.write.get());
    ::_exit(::write(failure.write.get(), &number, sizeof(number)) == sizeof(number) ? 127 : 126);
  }
  if (process < 0) {
    return {.end = {.number = EXIT_FAILURE}, .failure = std::strerror(errno)};
  }
  failure.write.close();
  int number = 0;
  ssize_t length = 0;
  do {
    length = ::read(failure.read.get(), &number, sizeof(number));
  } while (length < 0 && errno == EINTR);
  if (length == sizeof(number)) {
    ::waitpid(process, nullptr, 0);
    return {.end = {.number = number == ENOENT ? 127 : 126}, .failure = std::strerror(number)};
  }
  return {.process = process,
          .output = std::move(output.read),
          .errors = std::move(errors.read),
          .input = std::move(given.write)};
}

descendants::descendants() {
  for (const pid_t each : tree_below(::getpid(), {})) {
    others_.insert(each);
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

std::optional<ending> descendants::reap(pid_t awaited) const {
  std::optional<ending> end;
  int status = 0;
  for (pid_t process = 0; (process = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (process == awaited) {
      end = WIFEXITED(status) ? ending{.what = ending::kind::exited, .number = WEXITSTATUS(status)}
                              : ending{.what = ending::kind::killed, .number = WTERMSIG(status)};
    }
  }
  return end;
}

std::vector<pid_t> descendants::living() const {
  return tree_below(::getpid(), others_);
}

bool descendants::wait(std::chrono::milliseconds longest, pid_t awaited, std::optional<ending>& end) const {
  const auto deadline = std::chrono::steady_clock::now() + longest;
  for (;;) {
    if (const auto found = reap(awaited)) {
      end = found;
    }
    if (living().empty()) {
      return true;
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(between_looks);
  }
}

bool descendants::kill_all(pid_t awaited, std::optional<ending>& end) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{30};
  while (std::chrono::steady_clock::now() < deadline) {
    for (const pid_t each : living()) {
      ::kill(each, SIGKILL);
    }
    if (wait(10 * between_looks, awaited, end)) {
      return true;
    }
  }
  return false;
}

}  // namespace supervisor
