// SPDX-License-Identifier: BSL-1.0
//
// Weak scaling inside a machine: thread ranks of one thread each train alone and then together, in turn, in one
// process.
//
//   bench_comm_scaling [--model mnist|resnet50] [--batch-size N] [--ranks N] [--steps N] [--rounds N] [--no-overlap]
//
// The efficiency is the median time of a step of one rank alone over that of all ranks together, each with a batch of
// its own. "side by side" is the same work at the same time without communication: what the machine itself costs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/models/mnist.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace comm = gradus::comm;
namespace data = gradus::data;
namespace train = gradus::train;
using gradus::index_t;
using network = gradus::nn::network<float, gradus::nhwc>;

struct settings {
  std::string model = "mnist";
  index_t batch_size = 64;
  int ranks = 2;
  index_t steps = 10;
  int rounds = 9;
  bool overlap = true;

  [[nodiscard]] gradus::nn::value_shape image() const {
    return model == "mnist" ? gradus::nn::value_shape{1, 28, 28} : gradus::nn::value_shape{3, 224, 224};
  }
};

/// A network and what it learns from, on one rank.
struct training {
  data::loader<float, gradus::nhwc> loader;
  network net;

  training(gradus::cpu& device, const data::image_dataset& images, const settings& what, data::shard shard)
      : loader{device, images, {.batch_size = what.batch_size * shard.ranks, .seed = 1, .shard = shard}},
        net{device, what.image()} {
    if (what.model == "mnist") {
      gradus::models::mnist(net);
    } else {
      gradus::models::resnet(net, 50);
    }
    net.freeze({.batch_size = what.batch_size, .seed = 1});
  }
};

/// A callback: the seconds of each step that follows another one of its epoch.
struct step_clock {
  std::vector<double>* seconds;
  std::chrono::steady_clock::time_point before{};

  void on_step(const train::step_report& step) {
    const auto now = std::chrono::steady_clock::now();
    if (step.step_in_epoch > 0) {
      seconds->push_back(std::chrono::duration<double>(now - before).count());
    }
    before = now;
  }
};

struct step_times {
  std::vector<double> alone;
  std::vector<double> side_by_side;
  std::vector<double> together;
};

step_times run_rank(comm::threads& world, std::barrier<>& turn, const data::image_dataset& images,
                    const settings& what) {
  gradus::cpu device{{.intra_op_threads = 1}};
  comm::self self;
  training own{device, images, what, {}};
  training shared{device, images, what, {.rank = world.rank(), .ranks = world.size()}};
  train::trainer one{own.net, gradus::optim::sgd{.momentum = 0.9}, self};
  train::trainer all{shared.net, gradus::optim::sgd{.momentum = 0.9}, world,
                     gradus::parallel::all_reduce{.overlap = what.overlap}};
  const train::fit_options once{.epochs = 1, .learning_rate = 0.0};
  step_times times;
  for (int round = 0; round <= what.rounds; ++round) {
    step_times warm_up;
    step_times& into = round == 0 ? warm_up : times;
    for (int rank = 0; rank < world.size(); ++rank) {
      turn.arrive_and_wait();
      if (rank == world.rank()) {
        one.fit(own.loader, once, step_clock{&into.alone});
      }
    }
    turn.arrive_and_wait();
    one.fit(own.loader, once, step_clock{&into.side_by_side});
    turn.arrive_and_wait();
    all.fit(shared.loader, once, step_clock{&into.together});
  }
  return times;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void print(const char* name, const std::vector<double>& seconds, double alone) {
  const double middle = median(seconds);
  std::printf("%-14s %9.3f ms, best %9.3f ms, efficiency %.1f %%\n", name, 1e3 * middle,
              1e3 * *std::min_element(seconds.begin(), seconds.end()), 100 * alone / middle);
}

}  // namespace

int main(int argc, char** argv) {
  settings what;
  CLI::App app{"Weak scaling of thread ranks, alone and together in turn"};
  app.add_option("--model", what.model)->check(CLI::IsMember({"mnist", "resnet50"}))->capture_default_str();
  app.add_option("--batch-size", what.batch_size, "of a rank")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--ranks", what.ranks)->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--steps", what.steps, "of a turn")->check(CLI::Range(2, 1000))->capture_default_str();
  app.add_option("--rounds", what.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_flag("!--no-overlap", what.overlap, "send the gradients after backward");
  CLI11_PARSE(app, argc, argv);

  const gradus::nn::value_shape image = what.image();
  // One epoch of all ranks is `steps` steps, and one of a rank alone as many times longer as there are ranks.
  const data::image_dataset images = data::make_synthetic({.examples = what.steps * what.batch_size * what.ranks,
                                                           .channels = image.channels,
                                                           .height = image.height,
                                                           .width = image.width});
  std::barrier turn{what.ranks};
  const auto of_ranks =
      comm::run_ranks(what.ranks, [&](comm::threads& world) { return run_rank(world, turn, images, what); });
  step_times all;
  for (const step_times& each : of_ranks) {
    all.alone.insert(all.alone.end(), each.alone.begin(), each.alone.end());
    all.side_by_side.insert(all.side_by_side.end(), each.side_by_side.begin(), each.side_by_side.end());
    all.together.insert(all.together.end(), each.together.begin(), each.together.end());
  }
  const double alone = median(all.alone);
  std::printf("%s, %d ranks of %lld images, %d rounds; medians of all steps\n", what.model.c_str(), what.ranks,
              static_cast<long long>(what.batch_size), what.rounds);
  print("alone", all.alone, alone);
  print("side by side", all.side_by_side, alone);
  print("together", all.together, alone);
  return 0;
}
