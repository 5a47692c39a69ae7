// SPDX-License-Identifier: BSL-1.0
//
// What reproducible training costs: the time of a step of thread ranks by it and without it, in turn, in one run.
//
//   bench_comm_reproducible [RANKS [ROUNDS [VIRTUAL_WORKERS]]]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "../program/statistics.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/output.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/models/mnist.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/train/reproducible.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace parallel = gradus::parallel;
using gradus::index_t;
using network = gradus::nn::network<float, gradus::nhwc>;

constexpr index_t batch = 64;  // over all ranks

struct settings {
  int ranks = 1;
  int rounds = 9;
  int virtual_workers = 8;
};

struct problem {
  const char* name;
  void (*build)(network& net);
  gradus::data::synthetic_options images;
};

const problem problems[] = {
    {"MNIST",
     [](network& net) { gradus::models::mnist(net); },
     {.examples = 10 * batch, .channels = 1, .height = 28, .width = 28, .classes = 10}},
    {"ResNet-20, 32 x 32",
     [](network& net) { gradus::models::cifar_resnet(net, 20); },
     {.examples = 5 * batch, .channels = 3, .height = 32, .width = 32, .classes = 11}},
};

/// The times between the steps of an epoch but the first.
struct step_times {
  std::vector<double>* seconds;
  std::chrono::steady_clock::time_point last{};
  index_t steps = 0;

  void on_step(const gradus::train::step_report& /*step*/) {
    const auto now = std::chrono::steady_clock::now();
    if (steps++ > 0 && seconds != nullptr) {
      seconds->push_back(std::chrono::duration<double>(now - last).count());
    }
    last = now;
  }
};

/// Returns when all ranks have arrived, without taking a processor from them.
void meet_asleep(gradus::comm::threads& ranks) {
  gradus::comm::request all = gradus::comm::barrier(ranks);
  while (!all.test()) {
    std::this_thread::sleep_for(std::chrono::microseconds{200});
  }
}

/// A network, and a trainer of it, on one rank.
template <class Strategy>
struct training {
  network net;
  gradus::data::loader<float, gradus::nhwc> loader;
  gradus::train::trainer<network> trainer;
  std::vector<double> seconds;

  training(gradus::cpu& device, gradus::comm::threads& world, const problem& what,
           const gradus::data::image_dataset& images, index_t at_once, const Strategy& strategy)
      : net{made(device, what, at_once)},
        loader{device, images, {.global_batch_size = batch, .seed = 1}},
        trainer{net, gradus::optim::sgd{.momentum = 0.9}, world, strategy} {}

  static network made(gradus::cpu& device, const problem& what, index_t at_once) {
    network net{device, {what.images.channels, what.images.height, what.images.width}};
    what.build(net);
    net.compile({.max_batch_size = at_once, .seed = 1});
    return net;
  }

  void turn(bool warm_up) {
    trainer.fit(loader, {.epochs = 1, .learning_rate = 0.0}, step_times{warm_up ? nullptr : &seconds});
  }
};

void print(const gradus::comm::threads& world, const char* name, const std::vector<double>& seconds, double plain) {
  if (world.rank() == 0) {
    const double median = program::median(seconds);
    std::printf("  %-30s %9.3f ms, %.3f times\n", name, 1e3 * median, median / plain);
  }
}

void measure(gradus::comm::threads& world, const settings& how, const problem& what) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto images = gradus::data::make_synthetic(what.images);
  gradus::comm::threads turn = world.duplicate();
  const index_t of_rank = batch / world.size();
  const index_t of_worker = (batch + how.virtual_workers - 1) / how.virtual_workers;
  training all{device, world, what, images, of_rank, parallel::all_reduce{}};
  training parts{device, world, what, images, of_rank, parallel::sharded_update{}};
  training same_all{
      device,    world,
      what,      images,
      of_worker, parallel::reproducible<parallel::all_reduce>{.strategy = {}, .virtual_workers = how.virtual_workers}};
  training same_parts{
      device,
      world,
      what,
      images,
      of_worker,
      parallel::reproducible<parallel::sharded_update>{.strategy = {}, .virtual_workers = how.virtual_workers}};
  for (int round = 0; round <= how.rounds; ++round) {
    const auto in_turn = [&](auto& which) {
      meet_asleep(turn);
      which.turn(round == 0);
    };
    in_turn(all);
    in_turn(same_all);
    in_turn(parts);
    in_turn(same_parts);
  }
  if (world.rank() == 0) {
    std::printf("%s, %d ranks of one thread, %lld images over all, %d virtual workers; medians of %d rounds\n",
                what.name, world.size(), static_cast<long long>(batch), how.virtual_workers, how.rounds);
  }
  const double plain_all = program::median(all.seconds);
  const double plain_parts = program::median(parts.seconds);
  print(world, "all_reduce", all.seconds, plain_all);
  print(world, "reproducible{all_reduce}", same_all.seconds, plain_all);
  print(world, "sharded_update", parts.seconds, plain_parts);
  print(world, "reproducible{sharded_update}", same_parts.seconds, plain_parts);
}

}  // namespace

int main(int argc, char** argv) {
  settings how;
  int* const numbers[] = {&how.ranks, &how.rounds, &how.virtual_workers};
  for (int i = 1; i < argc && i <= 3; ++i) {
    *numbers[i - 1] = std::atoi(argv[i]);
    if (*numbers[i - 1] < 1) {
      std::fprintf(stderr, "bench_comm_reproducible: expected numbers above 0, got '%s'\n", argv[i]);
      return 2;
    }
  }
  for (const problem& each : problems) {
    gradus::comm::run_ranks(how.ranks, [&](gradus::comm::threads& world) { measure(world, how, each); });
  }
  return gradus::close_output("bench_comm_reproducible", 0);
}
