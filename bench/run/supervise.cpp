// SPDX-License-Identifier: BSL-1.0
//
// Runs a job until it is complete, or no further start would help.
#include "supervise.hpp"

#include <poll.h>          // poll
#include <sys/signalfd.h>  // signalfd
#include <sys/stat.h>      // stat
#include <unistd.h>        // read, write

#include <algorithm>         // std::clamp, std::max, std::min
#include <array>             // std::array
#include <cerrno>            // errno
#include <chrono>            // std::chrono::steady_clock
#include <cmath>             // std::ceil
#include <cstdint>           // std::int64_t
#include <cstdio>            // std::fputs, std::snprintf
#include <ctime>             // std::strftime
#include <initializer_list>  // std::initializer_list
#include <limits>            // std::numeric_limits
#include <map>               // std::map
#include <string>            // std::string
#include <system_error>      // std::system_error
#include <utility>           // std::move

#include "gradus/checkpoint/search.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/file_system.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"
#include "processes.hpp"

namespace supervisor {

namespace {

using clock = std::chrono::steady_clock;
using seconds = std::chrono::duration<double>;

constexpr double never = std::numeric_limits<double>::infinity();

/// The signals with which users, terminals and schedulers end a job.
constexpr int ending_signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGQUIT};

void say(std::initializer_list<gradus::text_piece> pieces) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char time[40];
  std::strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S%z", &parts);
  const std::string line = gradus::join({"gradus_run: ", time, ": ", gradus::printable(gradus::join(pieces)), "\n"});
  std::fputs(line.c_str(), stderr);  // is not buffered: one write
}

std::string digits(double value) {
  char text[40];
  gradus::format_text(text, sizeof(text), "%.1f", value);
  return text;
}

/// The checkpoints in the job's folders.
class checkpoint_folders {
 public:
  explicit checkpoint_folders(const std::vector<std::string>& paths) : paths_{paths} {}

  /// The step of the newest checkpoint that is whole: from it the next start goes on. -1 if there is none. Reads all
  /// bytes of a file, once while it does not change. A file that is damaged is named, once.
  [[nodiscard]] std::int64_t newest_step() {
    gradus::io::checkpoint_report unread;
    for (const auto& each : gradus::io::detail::checkpoint_candidates(paths_, gradus::io::operating_system(), unread)) {
      const std::string path = each.path_among(paths_);
      const auto [known, is_new] = whole_.try_emplace(state_of(path), false);
      if (is_new) {
        known->second = is_whole(path);
      }
      if (known->second) {
        return each.step;
      }
    }
    return -1;
  }

  /// A text that changes when a checkpoint comes, changes or goes.
  [[nodiscard]] std::string state() const {
    gradus::io::checkpoint_report unread;
    std::string all;
    for (const auto& each : gradus::io::detail::checkpoint_candidates(paths_, gradus::io::operating_system(), unread)) {
      all += state_of(each.path_among(paths_));
    }
    return all;
  }

 private:
  static std::string state_of(const std::string& path) {
    struct stat found {};
    if (::stat(path.c_str(), &found) != 0) {
      return path;
    }
    return gradus::join({path, " ", static_cast<std::int64_t>(found.st_ino), " ",
                         static_cast<std::int64_t>(found.st_size), " ", static_cast<std::int64_t>(found.st_mtim.tv_sec),
                         " ", static_cast<std::int64_t>(found.st_mtim.tv_nsec), "\n"});
  }

  static bool is_whole(const std::string& path) {
    try {
      gradus::io::detail::open_candidate(path, gradus::io::operating_system())->compare_checksums();
      return true;
    } catch (const gradus::error& failure) {
      say({"a checkpoint does not count: ", failure.message()});
      return false;
    }
  }

  const std::vector<std::string>& paths_;
  std::map<std::string, bool> whole_;  // by state_of
};

/// Signals wait until they are read.
class signal_queue {
 public:
  signal_queue() {
    ::signal(SIGCHLD, SIG_DFL);  // where it is ignored, the exit status of children is lost
    ::signal(SIGPIPE, SIG_IGN);  // the relay of a stream whose reader has ended closes
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGCHLD);
    for (const int each : ending_signals) {
      struct sigaction found {};
      if (::sigaction(each, nullptr, &found) == 0 &&
          found.sa_handler != SIG_IGN) {  // ignored ones, as by nohup, stay so
        sigaddset(&held, each);
      }
    }
    ::sigprocmask(SIG_BLOCK, &held, &before_);
    queue_ = descriptor{::signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK)};
    if (!queue_.open()) {
      throw std::system_error{errno, std::generic_category(), "cannot read signals"};
    }
  }

  /// What a job begins with.
  [[nodiscard]] const sigset_t& before() const noexcept { return before_; }
  [[nodiscard]] int readable() const noexcept { return queue_.get(); }

  /// The next one, 0 if there is none.
  [[nodiscard]] int take() const {
    signalfd_siginfo came{};
    return ::read(queue_.get(), &came, sizeof(came)) == sizeof(came) ? static_cast<int>(came.ssi_signo) : 0;
  }

 private:
  sigset_t before_{};
  descriptor queue_;
};

/// Passes a stream on, and never waits for its reader.
class relay {
 public:
  relay(descriptor from, int to) : from_{std::move(from)}, to_{to} {}

  [[nodiscard]] bool open() const noexcept { return from_.open(); }
  /// Whether it has what its reader has not taken.
  [[nodiscard]] bool full() const noexcept { return open() && begin_ < end_; }
  [[nodiscard]] pollfd wait() const noexcept {
    return {.fd = !open()  ? -1
                  : full() ? to_
                           : from_.get(),
            .events = static_cast<short>(full() ? POLLOUT : POLLIN),
            .revents = 0};
  }

  /// After poll() has found it ready. @return whether something has come
  bool pass() {
    if (begin_ < end_) {
      const ssize_t written = ::write(to_, buffer_.data() + begin_, end_ - begin_);
      if (written >= 0) {
        begin_ += static_cast<std::size_t>(written);
      } else if (errno != EINTR && errno != EAGAIN) {
        from_.close();  // the job learns of it as if it wrote there itself
      }
      return false;
    }
    const ssize_t length = ::read(from_.get(), buffer_.data(), buffer_.size());
    if (length <= 0) {
      if (length == 0 || errno != EINTR) {
        from_.close();
      }
      return false;
    }
    begin_ = 0;
    end_ = static_cast<std::size_t>(length);
    return true;
  }

 private:
  descriptor from_;
  int to_;
  std::array<char, 4096> buffer_{};  // at most this is free in a pipe that is ready
  std::size_t begin_ = 0, end_ = 0;
};

class supervision {
 public:
  explicit supervision(const settings& chosen) : chosen_{chosen}, checkpoints_{chosen.checkpoints} {}

  int run() {
    series now;
    for (;;) {
      const attempt last = try_once(now);
      decision what = decide(now, last, chosen_.allowed);
      if (stuck_) {
        what = {.status = status_of(last.end), .reason = "processes of the job cannot be killed: they would write too"};
      }
      const std::string at_end = gradus::join({start_text(now), " ended after ", digits(last.seconds), " s by ",
                                               text_of(last.end), checkpoint_text(last.progress), "; next: "});
      if (!what.again) {
        say({at_end, "no start: ", what.reason});
        return finish(now, what.status, what.reason);
      }
      say({at_end, start_text(what.next), " in ", digits(what.next.pause), " s", what.reason.empty() ? "" : ": ",
           what.reason});
      if (const int signal = pause(what.next.pause)) {
        return finish(now, status_between_starts(signal),
                      gradus::join({name_of_signal(signal), " has come between two starts"}));
      }
      now = what.next;
    }
  }

 private:
  [[nodiscard]] double elapsed() const { return seconds{clock::now() - begin_}.count(); }

  [[nodiscard]] std::string start_text(const series& now) const {
    const int ranks = chosen_.allowed.ranks[now.choice];
    return ranks == 0 ? gradus::join({"start ", now.starts})
                      : gradus::join({"start ", now.starts, " on ", ranks, " ranks"});
  }

  [[nodiscard]] std::string checkpoint_text(bool progress) {
    if (chosen_.checkpoints.empty()) {
      return {};
    }
    const std::int64_t newest = checkpoints_.newest_step();
    return newest < 0 ? ", no checkpoint"
                      : gradus::join({", newest checkpoint: step ", newest, progress ? "" : " as before"});
  }

  int finish(const series& now, int status, const std::string& reason) const {
    say({"end after ", now.starts, now.starts == 1 ? " start, " : " starts, ", digits(elapsed()), " s, exit status ",
         status, ": ", reason});
    return status;
  }

  /// One start, until nothing is left of it.
  attempt try_once(const series& now) {
    const std::vector<std::string> command = command_on(chosen_.command, chosen_.allowed.ranks[now.choice]);
    std::string words;
    for (const std::string& each : command) {
      gradus::append_text(words, {" ", each});
    }
    say({start_text(now), ":", words});
    const std::int64_t before = checkpoints_.newest_step();
    const double start = elapsed();
    attempt last;
    started_job job = start_job(command, signals_.before(), chosen_.silent_for > 0, chosen_.signals_by_input);
    if (job.process < 0) {
      say({start_text(now), ": '", command.front(), "' cannot be started: ", job.failure});
      last.end = job.end;
    } else {
      wait_for(std::move(job), last);
    }
    last.seconds = elapsed() - start;
    last.progress = chosen_.checkpoints.empty() ? last.seconds >= at_once : checkpoints_.newest_step() > before;
    return last;
  }

  static void tell(const started_job& job, int signal, attempt& last) {
    last.passed_on = signal;
    if (!job.input.open()) {
      ::kill(-job.process, signal);
      return;
    }
    const std::string line = gradus::join({signal, "\n"});
    if (::write(job.input.get(), line.data(), line.size()) < 0) {
      ::kill(-job.process, signal);  // it does not read any more
    }
  }

  /// Passes on output and signals until the job has ended, and ends what is left of it.
  void wait_for(started_job job, attempt& last) {
    std::array<relay, 2> streams{relay{std::move(job.output), STDOUT_FILENO},
                                 relay{std::move(job.errors), STDERR_FILENO}};
    std::optional<ending> end;
    double sign_of_life = elapsed();
    std::string saved = checkpoints_.state();
    double kill_at = never;
    bool silent = false;
    const double check_every = chosen_.silent_for > 0 ? std::clamp(chosen_.silent_for / 4, 0.01, 10.0) : never;
    double check_at = elapsed() + check_every;
    while (!end) {
      const double limit = chosen_.time_limit > 0 && last.passed_on == 0 ? chosen_.time_limit : never;
      if (wait_until(std::min({limit, kill_at, check_at}), streams) || streams[0].full() || streams[1].full()) {
        sign_of_life = elapsed();  // a job that waits for the reader of its output does not hang
      }
      for (int signal = 0; (signal = signals_.take()) != 0;) {
        if (signal != SIGCHLD) {
          say({name_of_signal(signal), " has come: passed on to the job; no start follows"});
          tell(job, signal, last);
        }
      }
      end = processes_.reap(job.process);
      if (end) {
        break;
      }
      if (elapsed() >= limit) {
        say({"--time-limit ", digits(chosen_.time_limit), " s is over: SIGTERM to the job; no start follows"});
        tell(job, SIGTERM, last);
        kill_at = elapsed() + chosen_.grace;
      }
      if (elapsed() >= kill_at) {
        say({"the job has not ended ", digits(chosen_.grace), " s after SIGTERM: it is killed"});
        kill_all(job.process, end);
      }
      if (elapsed() >= check_at) {
        if (std::string found = checkpoints_.state(); found != saved) {
          saved = std::move(found);
          sign_of_life = elapsed();
        }
        check_at = elapsed() + check_every;
        if (elapsed() - sign_of_life > chosen_.silent_for && last.passed_on == 0) {
          say({"nothing has come from the job for ", digits(chosen_.silent_for), " s: it is killed"});
          silent = true;
          kill_all(job.process, end);
        }
      }
      if (stuck_) {
        break;
      }
    }
    last.end = silent ? ending{.what = ending::kind::silent, .number = SIGKILL}
                      : end.value_or(ending{.what = ending::kind::killed, .number = SIGKILL});
    end_the_rest(job.process, last, streams);
  }

  /// Waits for a signal, output, or a time of elapsed(). @return whether output has come
  bool wait_until(double time, std::array<relay, 2>& streams) const {
    std::array<pollfd, 3> ready{pollfd{.fd = signals_.readable(), .events = POLLIN, .revents = 0}, streams[0].wait(),
                                streams[1].wait()};
    const double milliseconds = std::ceil(std::clamp((time - elapsed()) * 1000, 0.0, 60'000.0));
    ::poll(ready.data(), ready.size(), static_cast<int>(milliseconds));
    bool came = false;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (ready[i + 1].revents != 0) {
        came = streams[i].pass() || came;
      }
    }
    return came;
  }

  void kill_all(pid_t job, std::optional<ending>& end) { stuck_ = !processes_.kill_all(job, end); }

  /// Ranks may outlive their launcher. Those that have got a signal may be saving; those of a complete job are the
  /// user's.
  void end_the_rest(pid_t job, const attempt& last, std::array<relay, 2>& streams) {
    std::optional<ending> end;
    const bool complete = last.end.what == ending::kind::exited && last.end.number == 0;
    if (last.passed_on != 0) {
      const double deadline = elapsed() + chosen_.grace;
      while (!processes_.living().empty() && elapsed() < deadline) {
        wait_until(std::min(deadline, elapsed() + 0.02), streams);
        static_cast<void>(processes_.reap(job));
      }
    }
    if (!complete || last.passed_on != 0) {
      if (const std::size_t left = processes_.living().size(); left > 0) {
        say({left, left == 1 ? " process" : " processes", " of the job outlived it: killed"});
      }
      kill_all(job, end);
    }
    const double deadline = elapsed() + 1;  // what is still in the pipes
    while ((streams[0].open() || streams[1].open()) && elapsed() < deadline) {
      wait_until(deadline, streams);
    }
  }

  /// @return the signal that ended the pause, or 0
  int pause(double length) {
    const double end = elapsed() + length;
    const double limit = chosen_.time_limit > 0 ? chosen_.time_limit : never;
    std::array<relay, 2> none{relay{descriptor{}, -1}, relay{descriptor{}, -1}};
    while (true) {
      for (int signal = 0; (signal = signals_.take()) != 0;) {
        if (signal != SIGCHLD) {
          return signal;
        }
      }
      if (elapsed() >= limit) {
        say({"--time-limit ", digits(chosen_.time_limit), " s is over"});
        return SIGTERM;
      }
      if (elapsed() >= end) {
        return 0;
      }
      wait_until(std::min(end, limit), none);
    }
  }

  const settings& chosen_;
  checkpoint_folders checkpoints_;
  descendants processes_;
  signal_queue signals_;
  clock::time_point begin_ = clock::now();
  bool stuck_ = false;  // some processes cannot be killed
};

}  // namespace

int supervise(const settings& chosen) {
  return supervision{chosen}.run();
}

}  // namespace supervisor
