// SPDX-License-Identifier: BSL-1.0
//
// After a crash at any time there is a complete checkpoint: the last one whose save has returned, or the one under way.
#include <boost/test/unit_test.hpp>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint_example.hpp"
#include "gradus/checkpoint/file.hpp"
#include "gradus/comm/threads.hpp"
#include "simulated_disk.hpp"

namespace {

namespace comm = gradus::comm;
namespace io = gradus::io;
using gradus_test::checkpoint_example;
using gradus_test::crash_states;
using gradus_test::simulated_disk;

struct crash_run {
  std::size_t operations = 0;
  std::size_t states = 0;
  std::vector<std::string> violations = {};
};

/// Saves checkpoints on some ranks, of which one is kept, and looks at every state of the disk, up to the first
/// violation. The third replaces the second.
crash_run run_crashes(int ranks, bool background, const std::function<bool(int, bool)>& ignores_sync = {}) {
  const std::vector<checkpoint_example> saves{checkpoint_example{100}, checkpoint_example{250},
                                              checkpoint_example{250, false, 1}, checkpoint_example{300}};
  simulated_disk disk;
  std::size_t begin = 0;
  comm::run_ranks(ranks, [&](comm::threads& world) {
    io::checkpoint_writer writer{world, {.folders = {{.path = "folder", .keep_newest = 1}}}, disk};
    comm::barrier(world).wait();
    if (world.rank() == 0) {
      disk.ignores_sync = ignores_sync;
      begin = disk.log.size();
    }
    comm::barrier(world).wait();
    for (std::size_t i = 0; i < saves.size(); ++i) {
      const io::checkpoint_content content = saves[i].of_rank(world.rank(), world.size());
      if (background) {
        writer.start(content);
        writer.wait();
      } else {
        writer.save(content);
      }
      BOOST_TEST_REQUIRE(writer.report().error == "");
      comm::barrier(world).wait();
      if (world.rank() == 0) {
        disk.mark(i + 1);
      }
      comm::barrier(world).wait();
    }
  });
  crash_run run{.operations = disk.log.size() - begin};
  for (std::size_t count = begin; count <= disk.log.size() && run.violations.empty(); ++count) {
    const crash_states states{disk.log, count};
    states.for_each([&](simulated_disk& crashed) {
      if (!run.violations.empty()) {
        return;
      }
      ++run.states;
      const auto violation = [&](const std::string& what) {
        run.violations.push_back("after operation " + std::to_string(count - begin) + ": " + what);
      };
      const io::checkpoint_report report = io::find_newest("folder", crashed);
      if (!report.skipped.empty()) {
        violation("'" + report.skipped[0].path + "' is not complete: " + report.skipped[0].reason);
      }
      std::size_t found = 0;  // the number of the save, from 1
      for (std::size_t i = 0; report.found() && i < saves.size(); ++i) {
        if (gradus_test::difference(saves[i], report.path, crashed).empty()) {
          found = i + 1;
        }
      }
      if (report.found() && found == 0) {
        violation("the checkpoint is none of those that were saved");
      } else if (found < states.last_mark() || found > states.last_mark() + 1) {
        violation("checkpoint " + std::to_string(found) + " is there after save " + std::to_string(states.last_mark()) +
                  " has returned");
      }
    });
  }
  return run;
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_crash_leaves_a_complete_checkpoint) {
  for (const int ranks : {1, 2, 3}) {
    for (const bool background : {false, true}) {
      const crash_run run = run_crashes(ranks, background);
      BOOST_TEST_CONTEXT(ranks << " ranks, " << run.operations << " operations, " << run.states << " states") {
        BOOST_TEST(run.operations > 50U);
        BOOST_TEST(run.states > 200U);
        BOOST_TEST(run.violations.size() == 0U);
        if (!run.violations.empty()) {
          BOOST_TEST(run.violations[0] == "");
        }
      }
    }
  }
}

// Each sync is there for a reason: without it there is a crash after which a checkpoint is gone or not complete.
BOOST_AUTO_TEST_CASE(without_a_sync_a_crash_loses_a_checkpoint) {
  // On one rank: its data, the header, the folder, for each of four saves. The sync of the header keeps the data too.
  for (int sync = 0; sync < 12; ++sync) {
    BOOST_TEST_CONTEXT("sync " << sync) {
      const crash_run run = run_crashes(1, false, [sync](int number, bool) { return number == sync; });
      BOOST_TEST(run.violations.empty() == (sync % 3 == 0));
    }
  }
  // On two ranks, rank 1 syncs what it has written.
  BOOST_TEST(!run_crashes(2, false, [](int, bool of_maker) { return !of_maker; }).violations.empty());
}
