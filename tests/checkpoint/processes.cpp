// SPDX-License-Identifier: BSL-1.0
//
// Checkpoints on the system's files: two jobs in one folder, jobs that are killed, full and read-only file systems,
// symbolic links.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "checkpoint_example.hpp"
#include "gradus/checkpoint/file.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"

namespace {

namespace comm = gradus::comm;
namespace io = gradus::io;
namespace fs = std::filesystem;
using gradus_test::checkpoint_example;

class temporary_folder {
 public:
  temporary_folder() {
    std::string pattern = fs::temp_directory_path() / "gradus_checkpoint_XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() { fs::remove_all(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Runs a function in a process of its own, which ends with what it returns; 99 after an exception.
template <class Function>
::pid_t begin_process(const Function& function) {
  const ::pid_t child = ::fork();
  if (child == 0) {
    int status = 99;
    try {
      status = function();
    } catch (const std::exception& failure) {
      std::fprintf(stderr, "child: %s\n", failure.what());
    }
    ::_exit(status);
  }
  return child;
}
int status_of(::pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
template <class Function>
int in_process(const Function& function) {
  return status_of(begin_process(function));
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& each : fs::directory_iterator{folder}) {
    names.push_back(each.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string save_error(const std::string& folder, std::int64_t step, bool large = false) {
  comm::self world;
  io::checkpoint_writer writer{world, {.folders = {{.path = folder}}}};
  return writer.save(checkpoint_example{step, large}.of_rank(0, 1)).error;
}

}  // namespace

BOOST_AUTO_TEST_CASE(two_jobs_in_one_folder_leave_each_other_alone) {
  const temporary_folder folder;
  constexpr std::int64_t saves = 60;
  const std::string dead = folder.path() + "/step-000000001.00000000000000aa.partial";
  std::ofstream{dead} << "of a dead job";
  fs::last_write_time(dead, fs::file_time_type::clock::now() - std::chrono::minutes{1});
  std::vector<::pid_t> jobs;
  for (const std::int64_t odd : {0, 1}) {
    jobs.push_back(begin_process([&] {
      comm::self world;
      io::checkpoint_writer writer{
          world, {.folders = {{.path = folder.path(), .keep_newest = 2}}, .stale_after = std::chrono::seconds{5}}};
      for (std::int64_t i = 1; i <= saves; ++i) {
        const std::int64_t step = 2 * i + odd;
        const checkpoint_example example{step};
        writer.start(example.of_rank(0, 1));
        writer.wait();
        // It is there at once, and the one before too, whatever the other job does.
        for (const std::int64_t each : {step, step - 2}) {
          const std::string path = folder.path() + "/" + io::detail::name_of_step(each);
          if (writer.take_error() || (each > 3 && !gradus_test::difference(checkpoint_example{each}, path).empty())) {
            return 1;
          }
        }
      }
      return 0;
    }));
  }
  for (const ::pid_t job : jobs) {
    BOOST_TEST(status_of(job) == 0);
  }
  const std::vector<std::string> expected{"step-000000118.safetensors", "step-000000119.safetensors",
                                          "step-000000120.safetensors", "step-000000121.safetensors"};
  BOOST_TEST(names_in(folder.path()) == expected, boost::test_tools::per_element());
  BOOST_TEST(io::find_newest(folder.path()).step == 121);
}

BOOST_AUTO_TEST_CASE(two_jobs_at_the_same_steps_do_not_replace_each_other) {
  const temporary_folder folder;
  std::vector<::pid_t> jobs;
  for (const std::uint64_t variant : {1U, 2U}) {
    jobs.push_back(begin_process([&] {
      comm::self world;
      io::checkpoint_writer writer{world, {.folders = {{.path = folder.path(), .keep_newest = 100}}}};
      int saved = 0;
      for (std::int64_t step = 1; step <= 40; ++step) {
        const checkpoint_example example{step, false, variant};
        const io::checkpoint_save_report report = writer.save(example.of_rank(0, 1));
        if (report.error.empty()) {
          ++saved;
          if (!gradus_test::difference(example, report.paths[0]).empty()) {
            return 98;
          }
        } else if (report.error.find("is of another job") == std::string::npos) {
          return 97;
        }
      }
      return saved;
    }));
  }
  const int first = status_of(jobs[0]);
  const int second = status_of(jobs[1]);
  BOOST_TEST(first + second == 40);
  BOOST_TEST(names_in(folder.path()).size() == 40U);
}

BOOST_AUTO_TEST_CASE(a_killed_job_leaves_complete_checkpoints_and_a_file_that_the_next_removes) {
  const temporary_folder folder;
  std::int64_t newest = 0;
  int left_over = 0;
  for (int round = 0; round < 25; ++round) {
    const ::pid_t job = begin_process([&] {
      comm::self world;
      io::checkpoint_writer writer{
          world, {.folders = {{.path = folder.path(), .keep_newest = 1}}, .stale_after = std::chrono::seconds{0}}};
      for (std::int64_t step = newest + 1;; ++step) {
        if (!writer.save(checkpoint_example{step, true}.of_rank(0, 1)).error.empty()) {
          return 1;
        }
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds{15000 + round * 1337});
    ::kill(job, SIGKILL);
    BOOST_TEST(status_of(job) == 128 + SIGKILL);
    const io::checkpoint_report found = io::find_newest(folder.path());
    BOOST_TEST(found.skipped.size() == 0U);
    BOOST_TEST(found.step >= (newest == 0 ? -1 : newest));
    if (found.found()) {
      BOOST_TEST(gradus_test::difference(checkpoint_example{found.step, true}, found.path) == "");
      newest = found.step;
    }
    for (const std::string& name : names_in(folder.path())) {
      left_over += name.ends_with(".partial") ? 1 : 0;
    }
  }
  BOOST_TEST(newest > 0);
  BOOST_TEST_MESSAGE(left_over << " left-over files were there");
  comm::self world;
  io::checkpoint_writer writer{world, {.folders = {{.path = folder.path()}}, .stale_after = std::chrono::seconds{0}}};
  BOOST_TEST(writer.save(checkpoint_example{newest + 1}.of_rank(0, 1)).error == "");
  for (const std::string& name : names_in(folder.path())) {
    BOOST_TEST(!name.ends_with(".partial"));
  }
}

BOOST_AUTO_TEST_CASE(links_are_neither_followed_nor_deleted) {
  const temporary_folder folder;
  const temporary_folder elsewhere;
  const std::string precious = elsewhere.path() + "/precious";
  std::ofstream{precious} << "precious";
  comm::self world;
  io::checkpoint_writer writer{
      world, {.folders = {{.path = folder.path(), .keep_newest = 1}}, .stale_after = std::chrono::seconds{0}}};
  BOOST_TEST(writer.save(checkpoint_example{5}.of_rank(0, 1)).error == "");
  fs::rename(folder.path() + "/step-000000005.safetensors", elsewhere.path() + "/step-000000005.safetensors");
  const std::vector<std::string> links{"step-000000001.00000000000000ff.partial", "step-000000005.safetensors"};
  fs::create_symlink(precious, folder.path() + "/" + links[0]);
  fs::create_symlink(elsewhere.path() + "/step-000000005.safetensors", folder.path() + "/" + links[1]);
  BOOST_TEST(io::find_newest(folder.path()).step == 5);  // a link may be read
  BOOST_TEST(writer.save(checkpoint_example{6}.of_rank(0, 1)).error == "");
  BOOST_TEST(writer.save(checkpoint_example{5, false, 1}.of_rank(0, 1)).error.find("is of another job") !=
             std::string::npos);  // nor replaced
  for (const std::string& each : links) {
    BOOST_TEST(fs::is_symlink(folder.path() + "/" + each));
  }
  BOOST_TEST(fs::file_size(precious) == 8U);
  BOOST_TEST(gradus_test::difference(checkpoint_example{5}, elsewhere.path() + "/step-000000005.safetensors") == "");
}

BOOST_AUTO_TEST_CASE(things_that_are_no_files_are_skipped) {
  const temporary_folder folder;
  BOOST_TEST(save_error(folder.path(), 1) == "");
  fs::create_directory(folder.path() + "/step-000000002.safetensors");
  BOOST_TEST_REQUIRE(::mkfifo((folder.path() + "/step-000000003.safetensors").c_str(), 0600) == 0);
  fs::create_symlink("/nowhere", folder.path() + "/step-000000004.safetensors");
  fs::create_symlink("/dev/zero", folder.path() + "/step-000000005.safetensors");
  const io::checkpoint_report found = io::find_newest(folder.path());
  BOOST_TEST(found.step == 1);
  BOOST_TEST(found.skipped.size() == 4U);
}

BOOST_AUTO_TEST_CASE(a_file_that_grows_too_large_is_reported) {
  const temporary_folder folder;
  BOOST_TEST(save_error(folder.path(), 1) == "");
  const int status = in_process([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{20'000, 20'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) {
      return 2;
    }
    const std::string error = save_error(folder.path(), 2, true);
    return error.find("File too large (errno 27)") != std::string::npos ? 0 : 1;
  });
  BOOST_TEST(status == 0);
  BOOST_TEST(names_in(folder.path()) == std::vector<std::string>{"step-000000001.safetensors"},
             boost::test_tools::per_element());
}

// In a namespace with a small file system of its own, where the system allows one.
BOOST_AUTO_TEST_CASE(full_and_read_only_file_systems_are_reported) {
  const temporary_folder folder;
  const int status = in_process([&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=128k") != 0) {
      return 77;
    }
    comm::self world;
    io::checkpoint_writer writer{world, {.folders = {{.path = folder.path()}}}};
    const auto save = [&](std::int64_t step) {
      writer.start(checkpoint_example{step, true}.of_rank(0, 1));
      writer.wait();
      return writer.take_error().value_or("");
    };
    if (!save(1).empty()) {  // 74 kB
      return 1;
    }
    const std::string full = save(2);
    std::fprintf(stderr, "%s\n", full.c_str());
    if (full.find("No space left on device (errno 28)") == std::string::npos ||
        full.find("bytes are free in") == std::string::npos || names_in(folder.path()).size() != 1 ||
        io::find_newest(folder.path()).step != 1) {
      return 2;
    }
    if (::mount("none", folder.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
      return 3;
    }
    const std::string read_only = save(3);
    std::fprintf(stderr, "%s\n", read_only.c_str());
    if (read_only.find("Read-only file system (errno 30)") == std::string::npos ||
        io::find_newest(folder.path()).step != 1) {
      return 4;
    }
    try {
      io::checkpoint_writer other{world, {.folders = {{.path = folder.path()}}}};
    } catch (const gradus::configuration_error& failure) {
      return std::string_view{failure.what()}.find("Read-only file system") == std::string_view::npos ? 5 : 0;
    }
    return 6;
  });
  if (status == 77) {
    BOOST_TEST_MESSAGE("left out: no file system can be mounted here");
  } else {
    BOOST_TEST(status == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_folder_without_permission_is_refused_at_once) {
  if (::geteuid() == 0) {
    BOOST_TEST_MESSAGE("left out: everything is permitted to root");
    return;
  }
  const temporary_folder folder;
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
  BOOST_CHECK_THROW(save_error(folder.path(), 1), gradus::configuration_error);
  fs::permissions(folder.path(), fs::perms::owner_all);
}

BOOST_AUTO_TEST_CASE(ranks_write_one_file_of_the_system) {
  const temporary_folder folder;
  const std::string path = folder.path() + "/new/folder/of/jobs";
  for (const int ranks : {1, 2, 4}) {
    comm::run_ranks(ranks, [&](comm::threads& world) {
      io::checkpoint_writer writer{world, {.folders = {{.path = path}}}};
      const checkpoint_example example{ranks, true};
      const io::checkpoint_content content = example.of_rank(world.rank(), ranks);
      for (int i = 0; i < 3; ++i) {
        writer.start(content);
      }
      writer.wait();
      if (const auto error = writer.take_error()) {
        throw std::runtime_error{*error};
      }
    });
    BOOST_TEST(gradus_test::difference(checkpoint_example{ranks, true}, path + "/" + io::detail::name_of_step(ranks)) ==
               "");
  }
}
