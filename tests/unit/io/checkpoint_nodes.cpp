// SPDX-License-Identifier: BSL-1.0
//
// Checkpoints in the memory of nodes: each node has a simulated disk of its own. Nodes are lost, full, and hold damaged
// copies.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
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

const std::string memory = "memory";
const io::checkpoint_writer_options in_memory{.folders = {{.path = memory, .keep_newest = 2, .on_each_node = true}}};

std::string path_of_step(std::int64_t step) {
  return memory + "/" + io::detail::name_of_step(step);
}

/// Boost's checks are for one thread: on a rank, a failure ends all ranks.
void require_on_rank(bool condition, const std::string& what) {
  if (!condition) {
    throw std::runtime_error{what};
  }
}

/// The disks of some nodes, which have the same paths.
class node_disks {
 public:
  explicit node_disks(int nodes) {
    for (int i = 0; i < nodes; ++i) {
      disks_.push_back(std::make_unique<simulated_disk>());
    }
  }
  [[nodiscard]] simulated_disk& of(int node) { return *disks_[static_cast<std::size_t>(node)]; }
  void lose(int node) { disks_[static_cast<std::size_t>(node)] = std::make_unique<simulated_disk>(); }

 private:
  std::vector<std::unique_ptr<simulated_disk>> disks_;
};

/// Saves a checkpoint in the background, on ranks that run on these nodes.
void save_on(node_disks& disks, const std::vector<int>& node_of_rank, const checkpoint_example& example) {
  const int ranks = static_cast<int>(node_of_rank.size());
  comm::run_ranks(ranks, [&](comm::threads& world) {
    const int rank = world.rank();
    io::checkpoint_writer writer{world, in_memory, disks.of(node_of_rank[static_cast<std::size_t>(rank)])};
    writer.start(example.of_rank(rank, ranks));
    writer.wait();
    const auto error = writer.take_error();
    require_on_rank(!error, error.value_or(""));
    require_on_rank(writer.report().paths.size() == 1, "one path");
  });
}

/// What ranks on these nodes find, if each gets all bytes of the example of that step.
io::checkpoint_report read_on(node_disks& disks, const std::vector<int>& node_of_rank,
                              const checkpoint_example* example, bool all_read) {
  std::vector<std::string> texts(node_of_rank.size());
  io::checkpoint_report report;
  comm::run_ranks(static_cast<int>(node_of_rank.size()), [&](comm::threads& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    comm::link_of group{world};
    const io::shared_checkpoint found{group, std::span{&memory, 1}, disks.of(node_of_rank[rank])};
    texts[rank] = to_string(found.report());
    if (rank == 0) {
      report = found.report();
    }
    require_on_rank(found.found() == (example != nullptr), texts[rank]);
    if (example == nullptr) {
      return;
    }
    require_on_rank(found.all_ranks_read() == all_read, "who reads");
    for (const auto& [name, bytes] : example->tensors()) {
      std::vector<std::byte> read(bytes.size());
      const io::checkpoint_fetch fetch{.tensor = name, .into = read};
      found.fetch(std::span{&fetch, 1});
      require_on_rank(read == bytes, name);
    }
  });
  for (const std::string& each : texts) {
    BOOST_TEST(each == texts[0]);
  }
  return report;
}

/// Changes a bit of the first broadcast that rank 1 receives.
class changing_link final : public comm::forwarding_link {
 public:
  explicit changing_link(comm::link& inner) : forwarding_link{inner} {}
  void broadcast(std::span<std::byte> bytes, int root, std::source_location where) override {
    inner().broadcast(bytes, root, where);
    if (rank() == 1 && !std::exchange(changed_, true)) {
      bytes[0] ^= std::byte{1};
    }
  }

 private:
  bool changed_ = false;
};

bool has(std::string_view text, std::string_view piece) {
  return text.find(piece) != std::string_view::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_node_gets_a_whole_copy) {
  const checkpoint_example example{42, true};
  for (const std::vector<int>& node_of_rank :
       {std::vector{0}, {0, 0, 0}, {0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 2}, {0, 1, 1, 2, 0}}) {
    const int nodes = *std::max_element(node_of_rank.begin(), node_of_rank.end()) + 1;
    node_disks disks{nodes};
    save_on(disks, node_of_rank, example);
    for (int node = 0; node < nodes; ++node) {
      simulated_disk& disk = disks.of(node);
      BOOST_TEST_CONTEXT(node_of_rank.size() << " ranks, node " << node) {
        BOOST_TEST(disk.paths() == std::vector<std::string>{path_of_step(42)}, boost::test_tools::per_element());
        BOOST_TEST(gradus_test::difference(example, path_of_step(42), disk) == "");
        BOOST_TEST((disk.at(path_of_step(42)) == disks.of(0).at(path_of_step(42))));
        BOOST_TEST(disk.open_files() == 0U);
      }
    }
    BOOST_TEST(read_on(disks, node_of_rank, &example, true).node == "");
  }
}

BOOST_AUTO_TEST_CASE(on_one_node_the_calls_of_a_save_are_those_of_a_shared_folder) {
  const checkpoint_example example{42, true};
  std::vector<std::string> calls[2];
  for (const bool on_each_node : {false, true}) {
    simulated_disk disk;
    comm::run_ranks(3, [&](comm::threads& world) {
      io::checkpoint_writer writer{world, {.folders = {{.path = memory, .on_each_node = on_each_node}}}, disk};
      comm::barrier(world).wait();
      if (world.rank() == 0) {
        disk.log.clear();
      }
      comm::barrier(world).wait();
      require_on_rank(writer.save(example.of_rank(world.rank(), 3)).error.empty(), "a save");
    });
    for (const auto& each : disk.log) {
      calls[on_each_node ? 1 : 0].push_back(std::to_string(static_cast<int>(each.what)) + " " +
                                            std::to_string(each.offset) + " " + std::to_string(each.bytes.size()));
    }
    std::sort(calls[on_each_node ? 1 : 0].begin(), calls[on_each_node ? 1 : 0].end());  // ranks write at the same time
  }
  BOOST_TEST(calls[0].size() > 10U);
  BOOST_TEST(calls[1] == calls[0], boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(one_node_that_is_left_is_enough) {
  const checkpoint_example example{7, true};
  for (const std::vector<int>& writers : {std::vector{0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1}}) {
    for (const int lost : {0, 1}) {
      node_disks disks{3};  // the last has no ranks when the checkpoint is written
      save_on(disks, writers, example);
      disks.lose(lost);
      const int left = 1 - lost;
      for (const std::vector<int>& readers :
           {std::vector{left}, {left, left}, {lost, left}, {left, lost}, {2, lost, left, left}, {2, 2, 2, 2, left}}) {
        const bool all_read =
            static_cast<std::size_t>(std::count(readers.begin(), readers.end(), left)) == readers.size();
        const io::checkpoint_report report = read_on(disks, readers, &example, all_read);
        BOOST_TEST(report.path == path_of_step(7));
        BOOST_TEST(report.step == 7);
        BOOST_TEST(report.skipped.size() == 0U);
        const auto first = std::find(readers.begin(), readers.end(), left) - readers.begin();
        BOOST_TEST(report.node.starts_with(all_read ? "" : "rank " + std::to_string(first) + " on '"));
      }
      read_on(disks, {2, lost}, nullptr, false);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_damaged_copy_is_skipped_and_named_with_its_node) {
  const checkpoint_example example{7, true};
  const checkpoint_example older{5, true};
  for (const int damaged : {0, 1}) {
    // The ranks of both nodes together would compare each byte of the two files only once.
    for (const std::vector<int>& ranks : {std::vector{0, 1}, {0, 0, 1, 1}, {1, 0}}) {
      node_disks disks{2};
      save_on(disks, {0, 1}, older);
      save_on(disks, {0, 1}, example);
      auto& bytes = disks.of(damaged).at(path_of_step(7));
      const auto whole = bytes;
      const auto check = [&](std::string_view reason) {
        const io::checkpoint_report report = read_on(disks, ranks, &example, false);
        BOOST_TEST(report.step == 7);
        BOOST_TEST_REQUIRE(report.skipped.size() == 1U);
        const auto rank = std::find(ranks.begin(), ranks.end(), damaged) - ranks.begin();
        BOOST_TEST(report.skipped[0].path == path_of_step(7));
        BOOST_TEST(has(report.skipped[0].node, "rank " + std::to_string(rank) + " on '"));
        BOOST_TEST(has(report.skipped[0].reason, reason));
        BOOST_TEST(
            has(to_string(report), "skipped: '" + path_of_step(7) + "' of rank " + std::to_string(rank) + " on '"));
      };
      bytes.resize(bytes.size() - 1);
      check("copied completely");
      for (const std::size_t at : {whole.size() - 1, whole.size() / 2 + 1000, whole.size() / 2 - 1000}) {
        bytes = whole;
        bytes[at] ^= std::byte{1};
        check("with the checksum");
      }
      bytes = whole;
      bytes[100] ^= std::byte{1};
      check("");
      bytes = whole;
      BOOST_TEST(read_on(disks, ranks, &example, true).skipped.size() == 0U);
      // Both copies: the older one is taken, and each is named.
      disks.of(damaged).at(path_of_step(7)).back() ^= std::byte{1};
      disks.of(1 - damaged).at(path_of_step(7)).resize(500);
      BOOST_TEST(read_on(disks, ranks, &older, true).skipped.size() == 2U);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_newest_of_all_nodes_is_taken) {
  const checkpoint_example older{10};
  const checkpoint_example newer{11};
  for (const int node : {0, 1}) {
    node_disks disks{2};
    save_on(disks, {0, 1}, older);
    save_on(disks, {node}, newer);
    const io::checkpoint_report report = read_on(disks, {0, 1, 1}, &newer, false);
    BOOST_TEST(report.skipped.size() == 0U);
    BOOST_TEST(report.node.starts_with("rank " + std::to_string(node) + " on '"));
    BOOST_TEST(report.node.ends_with(node == 1 ? "1 more" : "'"));
  }
}

BOOST_AUTO_TEST_CASE(nodes_with_different_checkpoints_of_one_step_agree_on_one) {
  const checkpoint_example one{10};
  const checkpoint_example other{10, false, 1};
  node_disks disks{2};
  save_on(disks, {0}, one);
  save_on(disks, {1}, other);
  const io::checkpoint_report first = read_on(disks, {0, 1}, &one, false);
  BOOST_TEST_REQUIRE(first.skipped.size() == 1U);
  BOOST_TEST(first.skipped[0].reason == "another checkpoint of this step was taken");
  BOOST_TEST(first.skipped[0].node.starts_with("rank 1 on '"));
  read_on(disks, {1, 0}, &other, false);
  disks.of(0).at(path_of_step(10)).back() ^= std::byte{1};
  const io::checkpoint_report second = read_on(disks, {0, 1}, &other, false);
  BOOST_TEST_REQUIRE(second.skipped.size() == 1U);
  BOOST_TEST(has(second.skipped[0].reason, "with the checksum"));
}

BOOST_AUTO_TEST_CASE(each_call_of_a_save_fails_once_on_one_node) {
  const checkpoint_example older{100};
  const checkpoint_example newer{200};
  const checkpoint_example next{300};
  struct fault_case {
    faulty_disk::fault how;
    bool harmless = false;  // the save must succeed
  };
  const fault_case cases[] = {{.how = {.errno_value = ENOSPC}},
                              {.how = {.errno_value = EIO, .performed = true}},
                              {.how = {.errno_value = EIO, .repeated = true}},
                              {.how = {.errno_value = EINTR}, .harmless = true}};
  for (const int faulty_node : {0, 1}) {
    for (const fault_case& each : cases) {
      int faults = 0;
      bool reached = true;
      for (int k = 0; reached; ++k) {
        simulated_disk disks[2];
        faulty_disk faulty{disks[faulty_node]};
        std::vector<std::string> errors(3);
        comm::run_ranks(3, [&](comm::threads& world) {  // rank 1 is on node 1
          const int rank = world.rank();
          const int node = rank == 1 ? 1 : 0;
          const auto own = [&](const checkpoint_example& of) { return of.of_rank(rank, 3); };
          io::file_system& files = node == faulty_node ? static_cast<io::file_system&>(faulty) : disks[node];
          io::checkpoint_writer writer{world, in_memory, files};
          require_on_rank(writer.save(own(older)).error.empty(), "the first save");
          comm::barrier(world).wait();
          if (rank == 0) {
            faulty.arm(k, each.how);
          }
          comm::barrier(world).wait();
          writer.start(own(newer));
          writer.wait();
          errors[static_cast<std::size_t>(rank)] = writer.take_error().value_or("");
          const bool complete = writer.report().paths.size() == 1;
          comm::barrier(world).wait();
          if (rank == 0) {
            reached = faulty.failed();
            faulty.disarm();
            BOOST_TEST_CONTEXT("errno " << each.how.errno_value << " of call " << k << " of node " << faulty_node
                                        << ", " << faulty.failed_call() << ": " << errors[0]) {
              const std::string_view call = faulty.failed_call();
              const bool needed = call == "create" || call == "ftruncate" || call == "pwrite" || call == "fsync" ||
                                  call == "rename" || call == "fsync of the folder";
              BOOST_TEST(errors[1] == errors[0]);
              BOOST_TEST(errors[2] == errors[0]);
              BOOST_TEST(complete);
              if (each.harmless || !reached) {
                BOOST_TEST(errors[0] == "");
              } else if (needed) {
                BOOST_TEST(has(errors[0], io::errno_text(each.how.errno_value)));
                BOOST_TEST(has(errors[0], "is not saved: rank " + std::to_string(faulty_node) + " on '"));
                BOOST_TEST(has(errors[0], "12345 bytes are free"));
                BOOST_TEST(has(errors[0], "the copies of 1 of 2 nodes are complete"));
              }
              for (const int of : {0, 1}) {  // the other node has the new one, this one has one of both
                const io::checkpoint_report found = io::find_newest(memory, disks[of]);
                BOOST_TEST(found.skipped.size() == 0U);
                BOOST_TEST((of == faulty_node && !errors[0].empty() ? found.step >= 100 : found.step == 200));
                BOOST_TEST(gradus_test::difference(found.step == 200 ? newer : older, found.path, disks[of]) == "");
                BOOST_TEST(disks[of].open_files() == 0U);
              }
            }
          }
          comm::barrier(world).wait();
          require_on_rank(writer.save(own(next)).error.empty(), "the save after the failure");
        });
        for (simulated_disk& disk : disks) {
          BOOST_TEST(gradus_test::difference(next, path_of_step(300), disk) == "");
          for (const std::string& path : disk.paths()) {
            BOOST_TEST(!path.ends_with(".partial"));
          }
        }
        faults += reached ? 1 : 0;
      }
      BOOST_TEST(faults > 10);
    }
  }
}

BOOST_AUTO_TEST_CASE(bytes_that_change_on_the_way_to_a_node_are_no_copy) {
  const checkpoint_example example{7, true};
  simulated_disk disks[2];
  std::vector<std::string> errors(3);
  comm::run_ranks(3, [&](comm::threads& world) {
    const int rank = world.rank();
    comm::link_of inner{world};
    changing_link group{inner};
    const io::checkpoint_content content = example.of_rank(rank, 3);
    const std::string job = "0123456789abcdef";
    io::detail::save_plan plan;
    plan.step = 7;
    plan.layout = io::detail::lay_out_checkpoint(content, job, "");
    plan.arrays = io::detail::own_arrays(content, rank, 1);
    const io::detail::save_target target{.folder = memory, .shared = false, .leaders = {0, 1}};
    const io::detail::job_family family{.job = job, .ancestors = {}};
    errors[static_cast<std::size_t>(rank)] =
        io::detail::checkpoint_save{group, disks[rank == 1 ? 1 : 0], target, family, plan}.run().error;
  });
  for (const std::string& error : errors) {
    BOOST_TEST(error.starts_with("rank 1 on '"));
    BOOST_TEST(has(error, "have changed on the way from rank 0; the copies of 1 of 2 nodes are complete"));
  }
  BOOST_TEST(gradus_test::difference(example, path_of_step(7), disks[0]) == "");
  BOOST_TEST(disks[1].paths().size() == 0U);
}

BOOST_AUTO_TEST_CASE(a_node_without_a_folder_is_named_on_all_ranks) {
  for (const int node : {0, 1}) {
    simulated_disk disks[2];
    faulty_disk faulty{disks[node]};
    faulty.arm(0, {.errno_value = EACCES, .only = "mkdir"});
    std::vector<std::string> errors(2);
    comm::run_ranks(2, [&](comm::threads& world) {
      io::file_system& files =
          world.rank() == node ? static_cast<io::file_system&>(faulty) : disks[static_cast<std::size_t>(world.rank())];
      try {
        const io::checkpoint_writer writer{world, in_memory, files};
      } catch (const gradus::configuration_error& failure) {
        errors[static_cast<std::size_t>(world.rank())] = failure.what();
      }
    });
    for (const std::string& error : errors) {
      BOOST_TEST(has(error, "on each node: 'memory'"));
      BOOST_TEST(has(error, "rank " + std::to_string(node) + ": mkdir"));
    }
    for (const simulated_disk& disk : disks) {
      BOOST_TEST(disk.paths().size() == 0U);
    }
  }
}
