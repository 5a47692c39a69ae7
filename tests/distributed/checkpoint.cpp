// SPDX-License-Identifier: BSL-1.0
//
// Processes write one checkpoint together, behind other messages, and read it again; another number of ranks reads it
// too.
#include <unistd.h>

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
namespace io = gradus::io;
using gradus_test::checkpoint_example;

void require(bool holds, const std::string& what) {
  if (!holds) {
    throw std::runtime_error{what};
  }
}

/// Compares all tensors. Each rank reads all bytes.
template <class Communicator>
void compare(Communicator& world, const std::string& folder, const checkpoint_example& example, std::int64_t step) {
  comm::link_of group{world};
  const io::shared_checkpoint found{group, std::span{&folder, 1}};
  require(found.report().step == step && found.all_ranks_read(), to_string(found.report()));
  for (const auto& [name, bytes] : example.tensors()) {
    std::vector<std::byte> read(bytes.size());
    const io::checkpoint_fetch fetch{.tensor = name, .into = read};
    found.fetch(std::span{&fetch, 1});
    require(read == bytes, name);
  }
}

void write_and_read(comm::mpi& world) {
  std::int64_t number = ::getpid();
  comm::broadcast(world, std::span{&number, 1}).wait();  // the name of the folder: rank 0's
  const std::string folder =
      std::filesystem::temp_directory_path() / ("gradus_distributed_checkpoint_" + std::to_string(number));
  {
    io::checkpoint_writer writer{world, {.folders = {{.path = folder, .keep_newest = 2}}}};
    for (std::int64_t step = 1; step <= 10; ++step) {
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
  const checkpoint_example newest{10, true};
  compare(world, folder, newest, 10);
  comm::self alone;
  compare(alone, folder, newest, 10);
  require(gradus_test::difference(checkpoint_example{9, true}, folder + "/step-000000009.safetensors").empty(),
          "step 9");
  comm::barrier(world).wait();
  if (world.rank() == 0) {
    std::filesystem::remove_all(folder);
  }
}

}  // namespace

int main(int argc, char** argv) {
  comm::mpi_environment environment{argc, argv};
  return communicator_tests::run_conformance(environment, argc, argv, [&](comm::mpi& world) {
    write_and_read(world);
    if (world.rank() == 0) {
      std::printf("passed: write and read\n");
    }
  });
}
