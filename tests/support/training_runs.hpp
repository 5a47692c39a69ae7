// SPDX-License-Identifier: BSL-1.0
//
// Small trainings whose outcome must not depend on how the work is spread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/train/trainer.hpp"

namespace gradus_test {

/// 53 examples of (2, 9, 8) in 4 classes: no batch size and number of ranks divides them.
inline const gradus::data::image_dataset& small_dataset() {
  static const auto dataset =
      gradus::data::make_synthetic({.examples = 53, .channels = 2, .height = 9, .width = 8, .classes = 4, .seed = 3});
  return dataset;
}

/// A network with everything whose result could depend on ranks: dropout, biases, several kinds of layers.
template <class Network>
void build_training_network(Network& net) {
  namespace nn = gradus::nn;
  nn::value x = net.input();
  x = net.add("conv1", nn::conv2d{.out_channels = 5, .kernel = {3, 3}, .padding = nn::padding::same()}, x);
  x = net.add("relu1", nn::relu{}, x);
  x = net.add("pool1", nn::max_pool2d{}, x);
  x = net.add("conv2", nn::conv2d{.out_channels = 6, .kernel = {3, 3}, .stride = {2, 2}}, x);
  x = net.add("relu2", nn::relu{}, x);
  x = net.add("dropout", nn::dropout{.rate = 0.3}, x);
  x = net.add("scores", nn::dense{.out_features = 4}, x);
  net.loss(nn::softmax_cross_entropy{}, x);
}

struct training_result {
  std::vector<double> weights;  // all parameters, flat
  std::vector<double> losses;   // of the epochs
  double accuracy = 0;          // on the training set, after training
};

template <class Rule>
inline const Rule default_rule{};
template <>
inline const gradus::optim::sgd default_rule<gradus::optim::sgd>{
    .momentum = 0.9, .nesterov = true, .weight_decay = 0.01};

template <class Rule = gradus::optim::sgd>
struct training_setup_with {
  gradus::index_t batch_size = 8;  // over all ranks
  int epochs = 5;
  std::uint64_t seed = 11;
  double learning_rate = 0.1;
  gradus::parallel::all_reduce strategy{};
  gradus::index_t micro_batch_size = 0;
  Rule rule = default_rule<Rule>;
};
using training_setup = training_setup_with<>;

struct ignore_trainer {
  template <class Trainer>
  void operator()(Trainer& /*trainer*/) const {}
};

struct as_it_is {
  template <class Network>
  Network& operator()(Network& net) const {
    return net;
  }
};

/// Trains on a device with any strategy and returns what one rank has at the end.
/// @param mine  the share of this rank among those that train
/// @param look  called with the trainer after training
/// @param wrap  makes of the network what the trainer is given
template <class Layout, class Element = double, class Device, class Communicator, class Strategy,
          class Look = ignore_trainer, class Wrap = as_it_is, class Rule = gradus::optim::sgd>
training_result run_training_on(Device& device, Communicator& communicator, const training_setup_with<Rule>& setup,
                                const Strategy& strategy, const gradus::data::shard& mine, const Look& look = {},
                                const Wrap& wrap = {}) {
  gradus::data::loader<Element, Layout, Device> loader{
      device, small_dataset(), {.global_batch_size = setup.batch_size, .seed = setup.seed, .shard = mine}};
  gradus::nn::network<Element, Layout, Device> net{device, {2, 9, 8}};
  build_training_network(net);
  net.compile({.max_batch_size = std::max<gradus::index_t>(1, loader.local_batch_size()),
               .seed = setup.seed,
               .micro_batch_size = setup.micro_batch_size});
  auto&& trained = wrap(net);
  gradus::train::trainer trainer{trained, setup.rule, communicator, strategy};
  training_result result;
  struct recorder {
    std::vector<double>* losses;
    void on_epoch(const gradus::train::epoch_report& epoch) { losses->push_back(epoch.loss); }
  };
  trainer.fit(loader, {.epochs = setup.epochs, .learning_rate = setup.learning_rate}, recorder{&result.losses});
  result.accuracy = trainer.evaluate(loader).accuracy;
  std::vector<typename decltype(net)::parameter_element_type> weights(net.values().size());
  device.copy_to_host(weights.data(), net.values().data(), net.values().size_bytes());
  result.weights.assign(weights.begin(), weights.end());
  look(trainer);
  return result;
}

/// The same by all-reduce.
template <class Layout, class Element = double, class Device, class Communicator, class Rule = gradus::optim::sgd>
training_result run_training_on(Device& device, Communicator& communicator,
                                const training_setup_with<Rule>& setup = {}) {
  return run_training_on<Layout, Element>(device, communicator, setup, setup.strategy,
                                          {.rank = communicator.rank(), .ranks = communicator.size()});
}

/// The same on one thread of the CPU.
template <class Layout, class Element = double, class Communicator, class Strategy, class Look = ignore_trainer,
          class Rule = gradus::optim::sgd>
training_result run_training_with(Communicator& communicator, const training_setup_with<Rule>& setup,
                                  const Strategy& strategy, const gradus::data::shard& mine, const Look& look = {}) {
  gradus::cpu device{{.intra_op_threads = 1}};
  return run_training_on<Layout, Element>(device, communicator, setup, strategy, mine, look);
}

/// By all-reduce, on one thread of the CPU.
template <class Layout, class Element = double, class Communicator, class Rule = gradus::optim::sgd>
training_result run_training(Communicator& communicator, const training_setup_with<Rule>& setup = {}) {
  gradus::cpu device{{.intra_op_threads = 1}};
  return run_training_on<Layout, Element>(device, communicator, setup);
}

/// The largest |a - b| / (1e-3 + |b|).
inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) {
    return 1e300;
  }
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]) / (1e-3 + std::abs(b[i]));
    largest = difference > largest || std::isnan(difference) ? difference : largest;
  }
  return largest;
}

}  // namespace gradus_test
