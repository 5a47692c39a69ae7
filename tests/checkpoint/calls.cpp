// SPDX-License-Identifier: BSL-1.0
//
// The calls that a save makes are those that the simulated disk records, in this order: what holds for its crashes
// holds for the system's. Run with LD_PRELOAD=recorder.
#include <dlfcn.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint_example.hpp"
#include "gradus/checkpoint/file.hpp"
#include "gradus/comm/self.hpp"
#include "simulated_disk.hpp"

namespace {

namespace comm = gradus::comm;
namespace io = gradus::io;

/// Three saves, of which the last replaces the one before. Returns the job.
std::string save_three(io::file_system& files, const std::string& folder) {
  comm::self world;
  io::checkpoint_writer writer{world, {.folders = {{.path = folder, .keep_newest = 1}}}, files};
  std::uint64_t variant = 0;
  for (const std::int64_t step : {1, 2, 2}) {
    BOOST_TEST(writer.save(gradus_test::checkpoint_example{step, true, variant++}.of_rank(0, 1)).error == "");
  }
  return writer.job();
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string calls_on_the_system() {
  using take_calls = const char*();
  auto* const take = reinterpret_cast<take_calls*>(::dlsym(RTLD_DEFAULT, "gradus_recorded_calls"));
  BOOST_TEST_REQUIRE((take != nullptr), "run it with LD_PRELOAD=libcheckpoint_recorder.so");
  const std::string folder = (std::filesystem::temp_directory_path() / ("gradus_calls_" + std::to_string(::getpid())));
  std::filesystem::create_directory(folder);
  const std::string canonical = std::filesystem::canonical(folder);
  (void)take();
  const std::string job = save_three(io::operating_system(), canonical);
  const std::string calls = take();
  std::filesystem::remove_all(folder);
  return replaced(replaced(calls, job, "JOB"), canonical, "FOLDER");
}

std::string calls_on_the_simulated_disk() {
  gradus_test::simulated_disk disk;
  const std::string job = save_three(disk, "FOLDER");
  std::vector<std::string> names;  // of the files, by number
  std::string calls;
  for (const gradus_test::disk_operation& each : disk.log) {
    using kind = gradus_test::disk_operation::kind;
    switch (each.what) {
      case kind::create:
        names.resize(each.file + 1);
        names[each.file] = each.path;
        calls += "create " + each.path;
        break;
      case kind::write:
        calls +=
            "write " + names[each.file] + " " + std::to_string(each.offset) + " " + std::to_string(each.bytes.size());
        break;
      case kind::resize:
        calls += "resize " + names[each.file] + " " + std::to_string(each.offset);
        break;
      case kind::sync:
        calls += "sync " + names[each.file];
        break;
      case kind::sync_folder:
        calls += "sync " + each.path;
        break;
      case kind::rename:
        calls += "rename " + each.path + " " + each.to;
        names[each.file] = each.to;
        break;
      case kind::remove:
        calls += "remove " + each.path;
        break;
      case kind::mark:
        break;
    }
    calls += '\n';
  }
  return replaced(calls, job, "JOB");
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_recorded_calls_are_the_real_ones) {
  const std::string real = calls_on_the_system();
  const std::string simulated = calls_on_the_simulated_disk();
  BOOST_TEST(real == simulated);
  BOOST_TEST(real.find("sync FOLDER\nremove FOLDER/step-000000001.safetensors\n") != std::string::npos);
}
