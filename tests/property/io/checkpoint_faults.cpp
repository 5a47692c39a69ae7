// SPDX-License-Identifier: BSL-1.0
//
// Each call of the file system fails once, in each way; each byte of a checkpoint is changed.
#include <boost/test/unit_test.hpp>
#include <cerrno>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint_example.hpp"
#include "gradus/checkpoint/file.hpp"
#include "gradus/comm/link_of.hpp"
#include "gradus/comm/threads.hpp"
#include "simulated_disk.hpp"

namespace {

namespace comm = gradus::comm;
namespace io = gradus::io;
using gradus_test::checkpoint_example;
using gradus_test::faulty_disk;
using gradus_test::simulated_disk;

/// Boost's checks are for one thread: on a rank, a failure ends all ranks.
void expect(bool condition, const std::string& what) {
  if (!condition) {
    throw std::runtime_error{what};
  }
}

bool has_partial_files(const simulated_disk& disk) {
  for (const std::string& path : disk.paths()) {
    if (path.ends_with(".partial")) {
      return true;
    }
  }
  return false;
}

struct fault_case {
  faulty_disk::fault how;
  bool harmless = false;  // the save must succeed
};

const fault_case fault_cases[] = {
    {.how = {.errno_value = EIO}},
    {.how = {.errno_value = EIO, .performed = true}},
    {.how = {.errno_value = ENOSPC}},
    {.how = {.errno_value = EIO, .repeated = true}},
    {.how = {.errno_value = EINTR}, .harmless = true},
    {.how = {.errno_value = 0}, .harmless = true},  // a transfer of one byte
};

}  // namespace

BOOST_AUTO_TEST_CASE(each_call_of_a_save_fails_once) {
  const checkpoint_example older{100};
  const checkpoint_example newer{200};
  const checkpoint_example next{300};
  for (const int ranks : {1, 2}) {
    for (const fault_case& each : fault_cases) {
      int faults = 0;
      for (int k = 0;; ++k) {
        simulated_disk disk;
        faulty_disk faulty{disk};
        std::vector<std::string> errors(static_cast<std::size_t>(ranks));
        bool reached = false;
        comm::run_ranks(ranks, [&](comm::threads& world) {
          const auto own = [&](const checkpoint_example& of) { return of.of_rank(world.rank(), world.size()); };
          io::checkpoint_writer writer{world, {.folders = {{.path = "folder", .keep_newest = 1}}}, faulty};
          expect(writer.save(own(older)).error.empty(), "the first save");
          comm::barrier(world).wait();
          if (world.rank() == 0) {
            faulty.arm(k, each.how);
          }
          comm::barrier(world).wait();
          writer.start(own(newer));
          writer.wait();
          errors[static_cast<std::size_t>(world.rank())] = writer.report().error;
          expect(writer.take_error().has_value() == !writer.report().error.empty(), "take_error");
          expect(!writer.take_error().has_value(), "take_error again");
          comm::barrier(world).wait();
          if (world.rank() == 0) {
            reached = faulty.failed();
            faulty.disarm();
            BOOST_TEST_CONTEXT(ranks << " ranks, errno " << each.how.errno_value << " of call " << k << ", "
                                     << faulty.failed_call() << ": " << errors[0]) {
              const std::string_view call = faulty.failed_call();
              const bool needed = call == "create" || call == "open" || call == "ftruncate" || call == "pwrite" ||
                                  call == "fsync" || call == "rename" || call == "fsync of the folder";
              if (each.harmless || !reached) {
                BOOST_TEST(errors[0] == "");
              } else if (needed) {
                BOOST_TEST(errors[0].find(io::errno_text(each.how.errno_value)) != std::string::npos);
                BOOST_TEST(errors[0].find("folder") != std::string::npos);
                BOOST_TEST(errors[0].find("12345 bytes are free") != std::string::npos);
              }
              const io::checkpoint_report found = io::find_newest("folder", disk);
              BOOST_TEST(found.skipped.size() == 0U);
              if (errors[0].empty()) {
                BOOST_TEST(found.step == 200);
              }
              BOOST_TEST(gradus_test::difference(found.step == 200 ? newer : older, found.path, disk) == "");
              BOOST_TEST((call == "unlink" || !has_partial_files(disk)));
              BOOST_TEST(disk.open_files() == 0U);
            }
          }
          comm::barrier(world).wait();
          expect(errors[0] == writer.report().error, "the same error on all ranks");
          expect(writer.save(own(next)).error.empty(), "the save after the failure");
          comm::barrier(world).wait();
        });
        BOOST_TEST(!has_partial_files(disk));
        BOOST_TEST(disk.paths() == std::vector<std::string>{"folder/step-000000300.safetensors"},
                   boost::test_tools::per_element());
        if (!reached) {
          break;
        }
        ++faults;
      }
      BOOST_TEST(faults > 15);
    }
  }
}

BOOST_AUTO_TEST_CASE(each_call_of_a_new_writer_fails_once) {
  for (const fault_case& each : fault_cases) {
    bool reached = true;
    for (int k = 0; reached; ++k) {
      simulated_disk disk;
      faulty_disk faulty{disk};
      faulty.arm(k, each.how);
      int made = 0;
      std::vector<char> threw(2);
      comm::run_ranks(2, [&](comm::threads& world) {
        try {
          io::checkpoint_writer writer{world, {.folders = {{.path = "folder"}}}, faulty};
          comm::barrier(world).wait();
          faulty.disarm();
          expect(writer.save(checkpoint_example{5}.of_rank(world.rank(), 2)).error.empty(), "a save");
          if (world.rank() == 0) {
            made = 1;
          }
        } catch (const gradus::configuration_error& failure) {
          threw[static_cast<std::size_t>(world.rank())] = 1;
          expect(std::string{failure.what()}.find("a folder that can be written: 'folder'") != std::string::npos,
                 failure.what());
          comm::barrier(world).wait();
        }
      });
      BOOST_TEST(threw[0] == threw[1]);
      BOOST_TEST((made == 1) == (threw[0] == 0));
      if (each.harmless) {
        BOOST_TEST(made == 1);
      }
      reached = faulty.failed();
    }
  }
}

BOOST_AUTO_TEST_CASE(each_call_of_a_search_fails_once) {
  const checkpoint_example older{100};
  const checkpoint_example newer{200};
  simulated_disk disk;
  comm::run_ranks(1, [&](comm::threads& world) {
    io::checkpoint_writer writer{world, {.folders = {{.path = "folder"}}}, disk};
    BOOST_TEST_REQUIRE(writer.save(older.of_rank(0, 1)).error == "");
    BOOST_TEST_REQUIRE(writer.save(newer.of_rank(0, 1)).error == "");
  });
  for (const fault_case& each : fault_cases) {
    for (const int ranks : {0, 1, 3}) {  // 0: the search of one process
      bool reached = true;
      for (int k = 0; reached; ++k) {
        faulty_disk faulty{disk};
        faulty.arm(k, each.how);
        std::vector<std::string> reports(static_cast<std::size_t>(ranks == 0 ? 1 : ranks));
        io::checkpoint_report report;
        if (ranks == 0) {
          report = io::find_newest("folder", faulty);
          reports[0] = to_string(report);
        } else {
          comm::run_ranks(ranks, [&](comm::threads& world) {
            comm::link_of group{world};
            const std::string folder = "folder";
            const io::shared_checkpoint found{group, std::span{&folder, 1}, faulty};
            reports[static_cast<std::size_t>(world.rank())] = to_string(found.report());
            if (world.rank() == 0) {
              report = found.report();
            }
            if (found.found()) {
              const auto tensors = (found.report().step == 200 ? newer : older).tensors();
              std::vector<std::byte> bytes(tensors[0].second.size());
              try {
                const io::checkpoint_fetch fetch{.tensor = tensors[0].first, .into = bytes};
                found.fetch(std::span{&fetch, 1});
                expect(bytes == tensors[0].second, "the bytes");
              } catch (const gradus::format_error& failure) {
                expect(!each.harmless, failure.what());
              }
            }
          });
        }
        for (const std::string& text : reports) {
          BOOST_TEST(text == reports[0]);
        }
        if (each.harmless || !faulty.failed()) {
          BOOST_TEST(report.step == 200);
          BOOST_TEST(report.skipped.size() == 0U);
        } else if (report.step != 200) {
          BOOST_TEST(report.skipped.size() != 0U);
          BOOST_TEST(reports[0].find(io::errno_text(each.how.errno_value)) != std::string::npos);
        }
        reached = faulty.failed();
      }
    }
  }
  BOOST_TEST(disk.open_files() == 0U);
}

BOOST_AUTO_TEST_CASE(each_changed_byte_is_found) {
  const checkpoint_example older{100};
  const checkpoint_example newer{200};
  simulated_disk disk;
  comm::run_ranks(2, [&](comm::threads& world) {
    io::checkpoint_writer writer{world, {.folders = {{.path = "folder"}}}, disk};
    writer.save(older.of_rank(world.rank(), 2));
    writer.save(newer.of_rank(world.rank(), 2));
  });
  const std::string path = "folder/step-000000200.safetensors";
  gradus_test::file_bytes& bytes = disk.at(path);
  const gradus_test::file_bytes valid = bytes;
  const auto expect_older = [&](const std::string& what) {
    BOOST_TEST_CONTEXT(what) {
      const io::checkpoint_report found = io::find_newest("folder", disk);
      BOOST_TEST(found.step == 100);
      BOOST_TEST_REQUIRE(found.skipped.size() == 1U);
      BOOST_TEST(found.skipped[0].path == path);
      BOOST_TEST(found.skipped[0].reason.find(path) != std::string::npos);
    }
    bytes = valid;
  };
  const std::size_t data = io::checkpoint_reader(path, disk).header().buffer_begin;
  std::size_t tensors = 0;  // bytes whose change is found in a tensor
  for (std::size_t i = 0; i < valid.size(); ++i) {
    bytes[i] ^= std::byte{1} << (i % 8);
    if (i >= data && to_string(io::find_newest("folder", disk)).find("expected the tensor '") != std::string::npos) {
      ++tensors;
    }
    expect_older("bit " + std::to_string(i % 8) + " of byte " + std::to_string(i));
    bytes[i] ^= std::byte{0xFF};
    expect_older("all bits of byte " + std::to_string(i));
  }
  BOOST_TEST(tensors == valid.size() - data);
  for (std::size_t size = 0; size < valid.size(); ++size) {
    bytes.resize(size);
    expect_older("the first " + std::to_string(size) + " bytes");
  }
  bytes.push_back(std::byte{0});
  expect_older("a byte behind the end");
  BOOST_TEST(io::find_newest("folder", disk).step == 200);
}
