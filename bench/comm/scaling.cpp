// SPDX-License-Identifier: BSL-1.0
//
// Weak scaling inside a machine: thread ranks of one thread each train alone and then together, in turn, in one
// process.
//
//   bench_comm_scaling [--model NAME] [--batch-size N] [--ranks N] [--steps N] [--rounds N] [--no-overlap]
//
// The efficiency is the median time of a step of one rank alone over that of all ranks together, each with a batch of
// its own. "side by side" is the same work at the same time without communication: what the machine itself costs.
#include <CLI/CLI.hpp>
#include <barrier>
#include <cstdio>
#include <string>
#include <vector>

#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/train/trainer.hpp"
#include "model.hpp"
#include "result.hpp"

namespace {

namespace comm = gradus::comm;
namespace data = gradus::data;
namespace train = gradus::train;
using gradus::index_t;

struct settings {
  bench::model_options model{.name = "mnist", .batch_size = 64};
  int ranks = 2;
  index_t steps = 10;
  int rounds = 9;
  bool overlap = true;
};

/// A network and what it learns from, on one rank.
struct training {
  data::loader<float, gradus::nhwc> loader;
  bench::network net;

  training(gradus::cpu& device, const data::image_dataset& images, const settings& what, data::shard shard)
      : loader{device, images, {.batch_size = what.model.batch_size * shard.ranks, .seed = 1, .shard = shard}},
        net{bench::make_network(device, what.model)} {}
};

struct step_times {
  std::vector<double> alone;
  std::vector<double> side_by_side;
  std::vector<double> all_reduce;
  std::vector<double> sharded_update;

  void append(const step_times& other) {
    for (auto member :
         {&step_times::alone, &step_times::side_by_side, &step_times::all_reduce, &step_times::sharded_update}) {
      (this->*member).insert((this->*member).end(), (other.*member).begin(), (other.*member).end());
    }
  }
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
  train::trainer parts{shared.net, gradus::optim::sgd{.momentum = 0.9}, world, gradus::parallel::sharded_update{}};
  const train::fit_options once{.epochs = 1, .learning_rate = 0.0};
  step_times times;
  for (int round = 0; round <= what.rounds; ++round) {
    step_times warm_up;
    step_times& into = round == 0 ? warm_up : times;
    for (int rank = 0; rank < world.size(); ++rank) {
      turn.arrive_and_wait();
      if (rank == world.rank()) {
        one.fit(own.loader, once, bench::step_clock{&into.alone});
      }
    }
    turn.arrive_and_wait();
    one.fit(own.loader, once, bench::step_clock{&into.side_by_side});
    turn.arrive_and_wait();
    all.fit(shared.loader, once, bench::step_clock{&into.all_reduce});
    turn.arrive_and_wait();
    parts.fit(shared.loader, once, bench::step_clock{&into.sharded_update});
  }
  return times;
}

void print(const char* name, const std::vector<double>& seconds, double alone) {
  const driver::step_statistics found = driver::statistics_of(seconds);
  std::printf("%-14s %9.3f ms, p5 %9.3f ms, efficiency %.1f %%\n", name, 1e3 * found.median, 1e3 * found.p5,
              100 * alone / found.median);
}

}  // namespace

int main(int argc, char** argv) {
  settings what;
  CLI::App app{"Weak scaling of thread ranks, alone and together in turn"};
  bench::add_model_options(app, what.model);
  app.add_option("--ranks", what.ranks)->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--steps", what.steps, "of a turn")->check(CLI::Range(2, 1000))->capture_default_str();
  app.add_option("--rounds", what.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_flag("!--no-overlap", what.overlap, "send the gradients after backward");
  CLI11_PARSE(app, argc, argv);

  bench::require_network(what.model);
  // One epoch of all ranks is `steps` steps, and one of a rank alone as many times longer as there are ranks.
  const data::image_dataset images = bench::make_images(what.model, what.steps * what.model.batch_size * what.ranks);
  std::barrier turn{what.ranks};
  const auto of_ranks =
      comm::run_ranks(what.ranks, [&](comm::threads& world) { return run_rank(world, turn, images, what); });
  step_times all;
  for (const step_times& each : of_ranks) {
    all.append(each);
  }
  const double alone = driver::statistics_of(all.alone).median;
  std::printf("%s, %d ranks of %lld images, %d rounds; medians of all steps\n", what.model.name.c_str(), what.ranks,
              static_cast<long long>(what.model.batch_size), what.rounds);
  print("alone", all.alone, alone);
  print("side by side", all.side_by_side, alone);
  print("all_reduce", all.all_reduce, alone);
  print("sharded_update", all.sharded_update, alone);
  return 0;
}
