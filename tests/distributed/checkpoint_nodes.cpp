// SPDX-License-Identifier: BSL-1.0
//
// Checkpoints in the memory of two nodes, which processes of one machine pretend to be: the folders of the nodes have
// different paths, and then the same path, at which each process mounts the folder of its node.
#if defined(__linux__)
#include <sched.h>      // unshare
#include <sys/mount.h>  // mount
#endif
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../support/communicators_mpi.hpp"
#include "checkpoint_example.hpp"
#include "gradus/checkpoint/file.hpp"
#include "gradus/comm/link_of.hpp"
#include "gradus/comm/self.hpp"

namespace {

namespace comm = gradus::comm;
namespace fs = std::filesystem;
namespace io = gradus::io;
using gradus_test::checkpoint_example;

void require(bool holds, const std::string& what) {
  if (!holds) {
    throw std::runtime_error{what};
  }
}

/// From now on this process sees `from` at `to`, if it has the rights for that.
bool mount_folder([[maybe_unused]] const std::string& from, [[maybe_unused]] const std::string& to) {
#if defined(__linux__)
  return ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount(from.c_str(), to.c_str(), nullptr, MS_BIND, nullptr) == 0;
#else
  return false;
#endif
}

void unmount_folder([[maybe_unused]] const std::string& folder) {
#if defined(__linux__)
  require(::umount2(folder.c_str(), MNT_DETACH) == 0, "a folder that can be unmounted");
#endif
}

int node_of(int rank) {
  return rank % 2;
}

/// What the ranks find in memory and on the shared file system. Each compares all bytes.
template <class Communicator>
io::checkpoint_report compare(Communicator& world, const std::vector<std::string>& folders,
                              const checkpoint_example& example, std::int64_t step, bool all_read) {
  comm::link_of group{world};
  const io::shared_checkpoint found{group, folders};
  require(found.report().step == step && found.all_ranks_read() == all_read, to_string(found.report()));
  for (const auto& [name, bytes] : example.tensors()) {
    std::vector<std::byte> read(bytes.size());
    const io::checkpoint_fetch fetch{.tensor = name, .into = read};
    found.fetch(std::span{&fetch, 1});
    require(read == bytes, name);
  }
  return found.report();
}

/// @param folders  in memory, and on the file system
/// @param node_folder  where a node's files are for all processes
template <class NodeFolder>
void lose_nodes(comm::mpi& world, const std::vector<std::string>& folders, const NodeFolder& node_folder) {
  const int nodes = std::min(world.size(), 2);
  const int node = node_of(world.rank());
  {
    io::checkpoint_writer writer{world,
                                 {.folders = {{.path = folders[0], .keep_newest = 2, .on_each_node = true},
                                              {.path = folders[1], .keep_newest = 2, .every = 3}}}};
    for (std::int64_t step = 1; step <= 8; ++step) {
      const checkpoint_example example{step, true};
      writer.start(example.of_rank(world.rank(), world.size()));
      for (int i = 0; i < 20; ++i) {  // the steps meanwhile
        std::vector<float> gradient(1000, 1.0F);
        comm::all_reduce(world, gradient).wait();
        require(gradient[7] == static_cast<float>(world.size()), "the sum");
      }
    }
    writer.wait();
    const auto error = writer.take_error();
    require(!error, error.value_or(""));
  }
  comm::barrier(world).wait();
  const checkpoint_example newest{8, true};
  const std::string name = "/step-000000008.safetensors";
  for (int each = 0; each < nodes; ++each) {
    require(gradus_test::difference(newest, node_folder(each) + name).empty(), "a whole copy of node");
    require(std::distance(fs::directory_iterator{node_folder(each)}, {}) == 2, "two files are kept, and no others");
  }
  compare(world, folders, newest, 8, true);
  comm::self alone;
  compare(alone, folders, newest, 8, true);

  for (int damaged = 0; damaged < nodes; ++damaged) {
    // A copy that ends too early, and then none.
    const std::string file = node_folder(damaged) + name;
    comm::barrier(world).wait();
    if (world.rank() == 0) {
      fs::copy_file(file, folders[1] + "/kept");
      fs::resize_file(file, fs::file_size(file) - 7);
    }
    comm::barrier(world).wait();
    const auto expect = [&](auto& ranks, bool has_others, bool is_damaged) {
      if (has_others) {
        return compare(ranks, folders, newest, 8, !is_damaged);
      }
      return compare(ranks, folders, checkpoint_example{is_damaged ? 7 : 8, true}, is_damaged ? 7 : 8, true);
    };
    const io::checkpoint_report report = expect(world, nodes == 2, true);
    require(report.skipped.size() == 1, to_string(report));
    require(nodes == 1 || report.skipped[0].node.starts_with("rank " + std::to_string(damaged) + " on '"),
            to_string(report));
    expect(alone, false, node == damaged);
    comm::barrier(world).wait();
    if (world.rank() == 0) {
      for (const auto& each : fs::directory_iterator{node_folder(damaged)}) {
        fs::remove(each.path());
      }
    }
    comm::barrier(world).wait();
    if (nodes == 2) {
      require(compare(world, folders, newest, 8, false).skipped.empty(), "nothing is skipped");
    } else {
      compare(world, folders, checkpoint_example{6, true}, 6, true);  // of the file system
    }
    compare(alone, folders, checkpoint_example{node == damaged ? 6 : 8, true}, node == damaged ? 6 : 8, true);
    comm::barrier(world).wait();
    if (world.rank() == 0) {
      fs::rename(folders[1] + "/kept", file);
    }
    comm::barrier(world).wait();
  }
}

void in_two_ways(comm::mpi& world) {
  std::int64_t number = ::getpid();
  comm::broadcast(world, std::span{&number, 1}).wait();  // the name of the folder: rank 0's
  const std::string base = fs::temp_directory_path() / ("gradus_distributed_nodes_" + std::to_string(number));
  const auto in = [&](const std::string& name) { return base + "/" + name; };
  const auto folder_of = [&](int node) { return in("node" + std::to_string(node)); };
  const std::string own = folder_of(node_of(world.rank()));
  lose_nodes(world, {own, in("shared")}, folder_of);

  comm::barrier(world).wait();
  const auto other_of = [&](int node) { return in("other" + std::to_string(node)); };
  if (world.rank() == 0) {
    for (const std::string& each : {other_of(0), other_of(1), in("memory")}) {
      fs::create_directory(each);
    }
  }
  comm::barrier(world).wait();
  std::int32_t mounted = mount_folder(other_of(node_of(world.rank())), in("memory")) ? 1 : 0;
  comm::all_reduce(world, std::span{&mounted, 1}, comm::reduction::minimum).wait();
  if (mounted == 1) {
    lose_nodes(world, {in("memory"), in("other_shared")}, other_of);
  }
  comm::barrier(world).wait();
  if (mounted == 1) {
    unmount_folder(in("memory"));
  }
  comm::barrier(world).wait();
  if (world.rank() == 0) {
    std::printf("passed: nodes with %s\n", mounted == 1 ? "different paths and with one path" : "different paths");
    fs::remove_all(base);
  }
}

}  // namespace

int main(int argc, char** argv) {
  comm::mpi_environment environment{argc, argv};
  return communicator_tests::run_conformance(environment, argc, argv, [&](comm::mpi& world) { in_two_ways(world); });
}
