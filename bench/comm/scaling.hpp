// SPDX-License-Identifier: BSL-1.0
//
// Weak scaling inside a machine: ranks of one thread each train alone and then together, in turn, in one run.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "gradus/comm/communicator.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/train/trainer.hpp"
#include "model.hpp"
#include "result.hpp"

namespace scaling {

using gradus::index_t;

struct settings {
  bench::model_options model{.name = "mnist", .batch_size_per_rank = 64};
  index_t steps = 10;
  int rounds = 9;
  bool overlap = true;
};

inline void add_options(CLI::App& app, settings& what) {
  bench::add_model_options(app, what.model);
  app.add_option("--steps", what.steps, "of a turn")->check(CLI::Range(2, 1000))->capture_default_str();
  app.add_option("--rounds", what.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_flag("!--no-overlap", what.overlap, "send the gradients after backward");
}

/// A network and what it learns from, on one rank.
struct training {
  gradus::data::loader<float, gradus::nhwc> loader;
  bench::network net;

  training(gradus::cpu& device, const gradus::data::image_dataset& images, const settings& what,
           gradus::data::shard shard)
      : loader{device,
               images,
               {.global_batch_size = what.model.batch_size_per_rank * shard.ranks, .seed = 1, .shard = shard}},
        net{bench::make_network(device, what.model)} {}
};

/// Returns when all ranks have arrived. They sleep between polls: a processor that polls without pause slows the other.
template <class Communicator>
void meet_asleep(Communicator& ranks) {
  gradus::comm::request all = gradus::comm::barrier(ranks);
  while (!all.test()) {
    std::this_thread::sleep_for(std::chrono::microseconds{200});
  }
}

/// Prints the median of the steps of all ranks on rank 0. @return it, on all ranks
template <class Communicator>
double print(Communicator& ranks, const char* name, const std::vector<double>& seconds, double alone) {
  std::vector<double> all(seconds.size() * static_cast<std::size_t>(ranks.size()));
  gradus::comm::all_gather(ranks, seconds, all).wait();
  const driver::step_statistics found = driver::statistics_of(all);
  if (ranks.rank() == 0) {
    std::printf("%-14s %9.3f ms, p5 %9.3f ms, efficiency %.1f %%\n", name, 1e3 * found.median, 1e3 * found.p5,
                100 * (alone > 0 ? alone : found.median) / found.median);
    std::fflush(stdout);
  }
  return found.median;
}

/// Called by all ranks. Prints the medians of all steps: of one rank by itself; of all ranks at the same time without
/// communication, which shows the cost of sharing the machine; and of all ranks that train together. The efficiency is
/// the first median divided by each.
template <class Communicator>
void measure(Communicator& world, const settings& what) {
  namespace parallel = gradus::parallel;
  // An epoch of all ranks has `steps` steps; an epoch of one rank by itself has `steps` times the number of ranks.
  const gradus::data::image_dataset images =
      bench::make_images(what.model, what.steps * what.model.batch_size_per_rank * world.size());
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::comm::self self;
  Communicator turn = world.duplicate();
  training own{device, images, what, {}};
  training shared{device, images, what, {.rank = world.rank(), .ranks = world.size()}};
  const gradus::optim::sgd rule{.momentum = 0.9};
  gradus::train::trainer one{own.net, rule, self};
  gradus::train::trainer all{shared.net, rule, world, parallel::all_reduce{.overlap = what.overlap}};
  gradus::train::trainer parts{shared.net, rule, world, parallel::sharded_update{}};
  const gradus::train::fit_options once{.epochs = 1, .learning_rate = 0.0};
  std::vector<double> warm_up;
  std::vector<double> alone;
  std::vector<double> side_by_side;
  std::vector<double> all_reduce;
  std::vector<double> sharded_update;
  for (int round = 0; round <= what.rounds; ++round) {
    const auto clock = [&](std::vector<double>& times) { return bench::step_clock{round == 0 ? &warm_up : &times}; };
    for (int rank = 0; rank < world.size(); ++rank) {
      meet_asleep(turn);
      if (rank == world.rank()) {
        one.fit(own.loader, once, clock(alone));
      }
    }
    meet_asleep(turn);
    one.fit(own.loader, once, clock(side_by_side));
    meet_asleep(turn);
    all.fit(shared.loader, once, clock(all_reduce));
    meet_asleep(turn);
    parts.fit(shared.loader, once, clock(sharded_update));
  }
  if (world.rank() == 0) {
    std::printf("%s, %d ranks (%s) of %lld images, %d rounds; medians of all steps\n", what.model.name.c_str(),
                world.size(), std::string{Communicator::name}.c_str(),
                static_cast<long long>(what.model.batch_size_per_rank), what.rounds);
  }
  const double of_one = print(turn, "alone", alone, 0);
  print(turn, "side by side", side_by_side, of_one);
  print(turn, "all_reduce", all_reduce, of_one);
  print(turn, "sharded_update", sharded_update, of_one);
}

}  // namespace scaling
