// SPDX-License-Identifier: BSL-1.0
//
// Trainings whose bits must not depend on how the work is spread: parallel::reproducible.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/models/mnist.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/reproducible.hpp"
#include "gradus/train/trainer.hpp"

namespace gradus_test {

/// What a rank has after a training, as bits.
struct training_bits {
  std::vector<std::uint32_t> weights;
  std::vector<std::uint32_t> statistics;  // running ones
  std::vector<std::uint64_t> reports;     // losses, accuracies and norms of epochs and evaluations

  friend bool operator==(const training_bits&, const training_bits&) = default;
};

struct bits_setup {
  gradus::index_t batch_size = 20;  // over all ranks
  int epochs = 2;
  int threads = 1;
  gradus::index_t max_batch_size = 3;
  gradus::index_t micro_batch_size = 0;
};

/// A network, and images for it. No batch size divides the number of images.
template <class Network>
struct bits_problem {
  void (*build)(Network& net);
  gradus::data::synthetic_options images;
};

/// The MNIST network with few hidden features, and dropout.
template <class Network>
bits_problem<Network> mnist_problem(gradus::index_t side = 12, gradus::index_t examples = 53) {
  return {[](Network& net) { gradus::models::mnist(net, {.hidden_features = 24}); },
          {.examples = examples, .channels = 1, .height = side, .width = side, .classes = 10, .seed = 3}};
}

/// A residual network with batch normalization.
template <class Network>
bits_problem<Network> resnet_problem(gradus::index_t side = 8, gradus::index_t examples = 53) {
  return {[](Network& net) {
            gradus::models::cifar_resnet(net, 8, {.classes = 4, .version = gradus::models::resnet_version::v1});
          },
          {.examples = examples, .channels = 3, .height = side, .width = side, .classes = 4, .seed = 4}};
}

/// Trains, and evaluates after each epoch, on this rank of `world`.
template <class Network, class Communicator, class Rule, class Strategy>
training_bits train_bits(Communicator& world, const bits_problem<Network>& problem, const Rule& rule,
                         const Strategy& strategy, const bits_setup& setup = {}) {
  using layout = typename Network::layout_type;
  using loader_type = gradus::data::loader<typename Network::element_type, layout>;
  gradus::cpu device{{.intra_op_threads = setup.threads}};
  const auto images = gradus::data::make_synthetic(problem.images);
  loader_type loader{device, images, {.global_batch_size = setup.batch_size, .seed = 5}};
  loader_type test{device, images, {.global_batch_size = setup.batch_size + 1, .shuffle = false, .seed = 5}};
  Network net{device, {problem.images.channels, problem.images.height, problem.images.width}};
  problem.build(net);
  net.compile({.max_batch_size = setup.max_batch_size, .seed = 7, .micro_batch_size = setup.micro_batch_size});
  gradus::train::trainer trainer{net, rule, world, strategy};
  training_bits result;
  const auto note = [&](double number) { result.reports.push_back(std::bit_cast<std::uint64_t>(number)); };
  struct recorder {
    const decltype(note)& add;
    void on_epoch(const gradus::train::epoch_report& epoch) {
      add(epoch.loss);
      add(epoch.accuracy);
      if (epoch.gradient_norm) {
        add(epoch.gradient_norm->mean);
        add(epoch.gradient_norm->largest);
      }
      add(epoch.evaluation->loss);
      add(epoch.evaluation->accuracy);
    }
  };
  trainer.fit(loader, {.epochs = setup.epochs, .learning_rate = 0.05}, gradus::train::evaluate_every{test},
              recorder{note});
  for (const float each : net.values()) {
    result.weights.push_back(std::bit_cast<std::uint32_t>(each));
  }
  for (const float each : net.buffer_values()) {
    result.statistics.push_back(std::bit_cast<std::uint32_t>(each));
  }
  return result;
}

}  // namespace gradus_test
