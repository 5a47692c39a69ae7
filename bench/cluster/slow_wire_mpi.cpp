// SPDX-License-Identifier: BSL-1.0
//
// Steps of ranks that exchange less than an all-reduce does, and the bytes that they send.
//
//   run_on_cluster --hosts 2 --rate 1gbit -- bench_cluster_slow_wire_mpi UPDATE STEPS [EVERY]
//
// UPDATE is independent, all_reduce, bfloat16, int8, averaging or diloco; the last two exchange every EVERY steps (20),
// and STEPS is a multiple of that. Each rank trains the MNIST network (3.3 million parameters) on 16
// synthetic images; gradients travel in parts of 4 MB. Rank 0 prints a line of JSON: the mean time of a step over all
// STEPS, in milliseconds, and the bytes that its interface eth0 has sent in a step, with all headers.
// `scripts/bench --only slow_wire` runs all of them.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "gradus/comm/communicator.hpp"
#include "gradus/comm/mpi.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/core/output.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/models/mnist.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/compressed_all_reduce.hpp"
#include "gradus/parallel/int8_blocks.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace comm = gradus::comm;
namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
using gradus::index_t;

struct run_options {
  std::string update;
  index_t steps = 60;
  int every = 20;
};

/// Bytes that the interface eth0 of this host has sent; 0 where there is none.
std::uint64_t sent_bytes() {
  std::ifstream devices{"/proc/net/dev"};
  for (std::string line; std::getline(devices, line);) {
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && line.substr(0, colon).find("eth0") != std::string::npos) {
      std::istringstream columns{line.substr(colon + 1)};
      std::uint64_t number = 0;
      for (int column = 0; column < 9; ++column) {
        columns >> number;
      }
      return number;
    }
  }
  return 0;
}

/// @param ranks  those that exchange
template <class Communicator, class Strategy>
void measure(comm::mpi& world, Communicator& ranks, const run_options& chosen, const Strategy& strategy) {
  using gradus::nhwc;
  constexpr index_t images_of_rank = 16;
  gradus::cpu device{{.intra_op_threads = 1}};
  const index_t batch = images_of_rank * ranks.size();
  const auto images =
      gradus::data::make_synthetic({.examples = batch * chosen.steps, .height = 28, .width = 28, .classes = 10});
  gradus::nn::network<float, nhwc> net{device, {.channels = 1, .height = 28, .width = 28}};
  gradus::models::mnist(net);
  net.compile({.max_batch_size = images_of_rank, .seed = 1});
  gradus::data::loader<float, nhwc> batches{
      device, images, {.global_batch_size = batch, .shard = {.rank = ranks.rank(), .ranks = ranks.size()}}};
  gradus::train::trainer trainer{net, optim::sgd{.momentum = 0.9}, ranks, strategy};
  trainer.fit(batches, {.epochs = 1, .learning_rate = 0.001});  // allocates, connects
  comm::barrier(world).wait();
  const std::uint64_t before = sent_bytes();
  const auto began = std::chrono::steady_clock::now();
  trainer.fit(batches, {.epochs = 1, .learning_rate = 0.001});
  comm::barrier(world).wait();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (world.rank() == 0) {
    const auto steps = static_cast<double>(chosen.steps);
    std::printf(
        "{\"update\": \"%s\", \"parameters\": %td, \"ranks\": %d, \"batch_size\": %td, \"steps\": %td, \"step_ms\": "
        "%.3f, "
        "\"sent_bytes\": %.0f}\n",
        chosen.update.c_str(), net.structure().parameter_count(), world.size(), images_of_rank, chosen.steps,
        1e3 * seconds / steps, static_cast<double>(sent_bytes() - before) / steps);
  }
}

int run(comm::mpi& world, const run_options& chosen) {
  if (chosen.steps < 1 || chosen.every < 1 || chosen.steps % chosen.every != 0) {
    throw std::invalid_argument{"expected STEPS that are a multiple of EVERY, got " + std::to_string(chosen.steps) +
                                " and " + std::to_string(chosen.every)};
  }
  const parallel::all_reduce in_parts{.partition_bytes = index_t{4} << 20};
  if (chosen.update == "independent") {
    comm::self alone;
    measure(world, alone, chosen, parallel::all_reduce{});
  } else if (chosen.update == "all_reduce") {
    measure(world, world, chosen, in_parts);
  } else if (chosen.update == "bfloat16") {
    measure(world, world, chosen, parallel::compressed_all_reduce<>{in_parts});
  } else if (chosen.update == "int8") {
    measure(world, world, chosen, parallel::compressed_all_reduce<parallel::int8_blocks>{in_parts});
  } else if (chosen.update == "averaging") {
    measure(world, world, chosen, parallel::model_averaging{.every_steps = chosen.every});
  } else if (chosen.update == "diloco") {
    measure(
        world, world, chosen,
        parallel::model_averaging{.every_steps = chosen.every, .outer = optim::sgd{.momentum = 0.9, .nesterov = true}});
  } else {
    throw std::invalid_argument{"expected independent, all_reduce, bfloat16, int8, averaging or diloco, got '" +
                                chosen.update + "'"};
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s independent|all_reduce|bfloat16|int8|averaging|diloco STEPS [EVERY]\n", argv[0]);
    return 2;
  }
  run_options chosen{.update = argv[1], .steps = std::atol(argv[2])};
  if (argc > 3) {
    chosen.every = std::atoi(argv[3]);
  }
  comm::mpi_environment environment{argc, argv};
  return gradus::close_output("bench_cluster_slow_wire_mpi",
                              environment.run([&](comm::mpi& world) { return run(world, chosen); }));
}
