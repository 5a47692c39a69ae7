// SPDX-License-Identifier: BSL-1.0
//
// Small trainings with batch normalization by the statistics of all ranks.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/nn/layers/synchronized_batch_norm.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/synchronized_statistics.hpp"
#include "training_runs.hpp"

namespace gradus_test::synchronized {

namespace nn = gradus::nn;

/// How a rank trains.
struct way {
  gradus::index_t global_batch = 8;  // of 53 examples: the last batch has 5 examples, with 4 only 1
  bool recompute = false;
  bool branches = false;
};

struct outcome {
  std::vector<double> weights;
  std::vector<double> statistics;  // running means and variances
  std::vector<double> losses;
  double evaluated = 0;
};

/// Normalization behind a convolution, in two branches and before the sum that joins them.
template <class Network, class Norm>
void build(Network& net, const Norm& norm) {
  nn::value x = net.add("conv1", nn::conv2d{.out_channels = 5, .kernel = {3, 3}, .bias = false}, net.input());
  x = net.add("norm1", norm, x);
  x = net.add("relu1", nn::relu{}, x);
  nn::value left = net.add("left", nn::conv2d{.out_channels = 6, .kernel = {3, 3}, .padding = nn::padding::same()}, x);
  left = net.add("norm_left", norm, left);
  left = net.add("relu_left", nn::relu{}, left);
  left = net.add("left2", nn::conv2d{.out_channels = 6}, left);
  nn::value right = net.add("right", nn::conv2d{.out_channels = 6}, x);
  right = net.add("norm_right", norm, right);
  x = net.add("sum", nn::add{}, {left, right});
  x = net.add("norm2", norm, x);
  x = net.add("relu2", nn::relu{}, x);
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 4}, x));
}

/// @param after  called with the trainer after each step
template <class Layout, class Element = double, class Communicator, class Norm, class Strategy, class After>
outcome train(Communicator& world, const Norm& norm, const way& how, const Strategy& strategy, const After& after) {
  gradus::cpu device{{.intra_op_threads = how.branches ? 2 : 1, .inter_op_threads = how.branches ? 2 : 1}};
  gradus::data::loader<Element, Layout> loader{
      device,
      gradus_test::small_dataset(),
      {.global_batch_size = how.global_batch, .seed = 11, .shard = {.rank = world.rank(), .ranks = world.size()}}};
  nn::network<Element, Layout> net{device, {2, 9, 8}};
  build(net, norm);
  net.compile({.max_batch_size = std::max<gradus::index_t>(1, loader.local_batch_size()),
               .seed = 11,
               .recompute = how.recompute,
               .parallel_branches = how.branches});
  gradus::train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9}, world, strategy};
  outcome result;
  struct recorder {
    std::vector<double>* losses;
    const After* after;
    void on_step(const gradus::train::step_report& step) { (*after)(step); }
    void on_epoch(const gradus::train::epoch_report& epoch) { losses->push_back(epoch.loss); }
  };
  trainer.fit(loader, {.epochs = 3, .learning_rate = 0.05}, recorder{&result.losses, &after});
  const std::span<const Element> statistics = net.buffer_values();
  result.statistics.assign(statistics.begin(), statistics.end());
  result.evaluated = trainer.evaluate(loader).loss;
  const std::span<const Element> weights = net.values();
  result.weights.assign(weights.begin(), weights.end());
  return result;
}

template <class Layout, class Element = double, class Communicator, class Norm,
          class Strategy = gradus::parallel::all_reduce>
outcome train(Communicator& world, const Norm& norm, const way& how = {}, const Strategy& strategy = {}) {
  return train<Layout, Element>(world, norm, how, strategy, [](const gradus::train::step_report& /*step*/) {});
}

template <class Layout, class Element = double>
outcome one_process(const way& how = {}) {
  gradus::comm::self alone;
  return train<Layout, Element>(alone, nn::batch_norm{}, how);
}

/// The same on ranks in threads, which share their statistics.
template <class Layout, class Element = double, class Strategy = gradus::parallel::all_reduce>
std::vector<outcome> on_ranks(int ranks, const way& how = {}, const Strategy& strategy = {}) {
  return gradus::comm::run_ranks(ranks, [&](gradus::comm::threads& world) {
    gradus::parallel::synchronized_statistics statistics{world};
    return train<Layout, Element>(world, nn::synchronized_batch_norm{.group = &statistics}, how, strategy);
  });
}

}  // namespace gradus_test::synchronized
